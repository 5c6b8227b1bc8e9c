//! The first block of a disk's file: see docs/formats.md.

use crate::BLOCK_BYTES;
use crate::buffer::Buffer;

/// The version of the file's format.
pub const FORMAT: u32 = 2;
/// The one before, whose files do not say how many frames are reserved.
const FORMAT_BEFORE: u32 = 1;

/// Bytes of an [`Identity`].
pub const IDENTITY_BYTES: usize = 16;

/// Who made the file: its maker chooses it, and compares it when it opens the file again.
pub type Identity = [u8; IDENTITY_BYTES];

const MAGIC: [u8; 8] = *b"SPLNDISK";
const RESERVED_AT: usize = 12;
const FRAME_BYTES_AT: usize = 16;
const IDENTITY_AT: usize = 24;
const CHECKSUM_AT: usize = IDENTITY_AT + IDENTITY_BYTES;

/// The content of the first block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Superblock {
    /// See [`crate::Options::reserved_frames`]; 0 of a file of before it was noted.
    pub(crate) reserved_frames: u32,
    pub(crate) frame_bytes: u64,
    pub(crate) identity: Identity,
}

impl Superblock {
    /// Returns the block.
    pub(crate) fn encode(self) -> Buffer {
        let mut block = Buffer::new(BLOCK_BYTES);
        block[..8].copy_from_slice(&MAGIC);
        block[8..12].copy_from_slice(&FORMAT.to_le_bytes());
        block[RESERVED_AT..FRAME_BYTES_AT].copy_from_slice(&self.reserved_frames.to_le_bytes());
        block[FRAME_BYTES_AT..IDENTITY_AT].copy_from_slice(&self.frame_bytes.to_le_bytes());
        block[IDENTITY_AT..CHECKSUM_AT].copy_from_slice(&self.identity);
        let checksum = crc32c::crc32c(&block[..CHECKSUM_AT]);
        block[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&checksum.to_le_bytes());
        block
    }

    /// Reads the block.
    ///
    /// # Errors
    /// What is wrong with it, and what to do.
    pub(crate) fn decode(block: &[u8]) -> Result<Self, String> {
        assert_eq!(block.len(), BLOCK_BYTES, "a block");
        if block[..8] != MAGIC {
            return Err("it is no log of this server; move it away or name another directory".to_owned());
        }
        let word = |at: usize| u32::from_le_bytes(block[at..at + 4].try_into().expect("four bytes"));
        // Before the checksum: another format may have it elsewhere.
        if ![FORMAT, FORMAT_BEFORE].contains(&word(8)) {
            let found = word(8);
            return Err(format!(
                "its format is {found}, and this server knows {FORMAT_BEFORE} and {FORMAT}; start the release that wrote it"
            ));
        }
        if word(CHECKSUM_AT) != crc32c::crc32c(&block[..CHECKSUM_AT]) {
            return Err("its first block is damaged; restore the directory from a copy".to_owned());
        }
        let frame_bytes = block[FRAME_BYTES_AT..IDENTITY_AT].try_into().expect("eight bytes");
        let identity = block[IDENTITY_AT..CHECKSUM_AT].try_into().expect("sixteen bytes");
        let reserved_frames = word(RESERVED_AT);
        Ok(Self { reserved_frames, frame_bytes: u64::from_le_bytes(frame_bytes), identity })
    }
}
