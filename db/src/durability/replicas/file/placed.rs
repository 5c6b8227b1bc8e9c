//! Reading replicas from the frames of a disk.

use cluster::replication::Item;
use disk::{
    Buffer, Disk, DiskError, FRAGMENT_HEADER_BYTES, Fragment, FrameId, REPLICA_HEADER_BYTES, Read,
    ReplicaHeader,
};

/// A replica in its file, for readers on other threads.
#[derive(Clone, Debug)]
pub struct PlacedReplica {
    /// What it is of.
    pub item: Item,
    /// See [`ReplicaHeader::number`].
    pub number: u64,
    /// See [`disk::Trailer::class`].
    pub class: u8,
    pub(super) frames: Vec<FrameId>,
    /// The place of the first of them in the replica.
    pub(super) first: u32,
    /// Its end, if that is known.
    pub(super) end: Option<(u64, u32)>,
}

impl PlacedReplica {
    /// Returns the last cut, and the number of bytes from the first one on; zeros if nothing is whole. Reads the last frame,
    /// unless they are known.
    ///
    /// # Errors
    /// If the disk does not read.
    pub fn end(&self, disk: &mut dyn Disk, buffer: &mut Buffer) -> Result<(u64, u32), DiskError> {
        if let Some(end) = self.end {
            return Ok(end);
        }
        let mut end = (0, 0);
        for (place, frame) in self.frames.iter().enumerate().rev() {
            let index = self.first + place as u32;
            let mut note = |fragment: Fragment, bytes: &[u8]| {
                end = (fragment.cut, fragment.at + bytes.len() as u32);
            };
            read_frame(disk, buffer, (*frame, self.number, index), &mut note)?;
            if end != (0, 0) {
                break;
            }
        }
        Ok(end)
    }

    /// Reads what is stable of the replica: calls `visit` with each fragment and its bytes. A segment's is read up to the first
    /// damage; of digests, some may lack their beginning or their end.
    ///
    /// # Errors
    /// If the disk does not read.
    pub fn read(
        &self,
        disk: &mut dyn Disk,
        buffer: &mut Buffer,
        visit: &mut dyn FnMut(Fragment, &[u8]),
    ) -> Result<(), DiskError> {
        for (place, frame) in self.frames.iter().enumerate() {
            let index = self.first + place as u32;
            let is_full = read_frame(disk, buffer, (*frame, self.number, index), visit)?;
            // Frames of earlier digests may be used by others by now.
            if !is_full && self.item != Item::Digest {
                break;
            }
        }
        Ok(())
    }
}

/// Reads a frame of a replica; returns whether it is full.
fn read_frame(
    disk: &mut dyn Disk,
    buffer: &mut Buffer,
    (frame, number, index): (FrameId, u64, u32),
    visit: &mut dyn FnMut(Fragment, &[u8]),
) -> Result<bool, DiskError> {
    let bytes = &mut buffer[..disk.frame_bytes()];
    disk.read(&mut [Read::of(frame, 0, bytes)])?;
    let header =
        ReplicaHeader::decode(bytes).filter(|(header, _)| (header.number, header.index) == (number, index));
    let Some((_, mut chain)) = header else { return Ok(false) };
    let mut at = REPLICA_HEADER_BYTES;
    while let Some((fragment, content, next)) = Fragment::decode(&bytes[at..], chain) {
        (at, chain) = (at + FRAGMENT_HEADER_BYTES + content.len(), next);
        visit(fragment, content);
    }
    Ok(bytes.len() - at <= FRAGMENT_HEADER_BYTES)
}
