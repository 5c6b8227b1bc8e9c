//! The records of a TCP stream.
//!
//! ```text
//! record bytes u32 (all that follows) | code u8 | flags u8 | reserved u16 | sequence u64
//!        | first unacknowledged u64 | view u64 | body
//! ```
//! Requests and replies have the same header; a reply repeats the sequence. Data requests over a stream share the
//! sequences and the exactly-once window of the session's frames. The transport reads and writes the bytes, and needs
//! only the first field.

use crate::limits::{INSTALL_BODY_BYTES_MAX, RECORD_HEADER_BYTES, STREAM_BODY_BYTES_MAX};
use crate::opcode;
use crate::status::Status;

/// The header of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RecordHeader {
    /// Length of the body behind the header.
    pub body_bytes: u32,
    /// Opcode of a request, status of a reply.
    pub code: u8,
    /// Those of a [`crate::RequestDurability`] in a data request; others are ignored.
    pub flags: u8,
    /// Chosen by the client, repeated in the reply; 0 for opening and administration.
    pub sequence: u64,
    /// From a client: every sequence below is acknowledged. Otherwise 0.
    pub first_unacknowledged: u64,
    /// The view under which a data request was sent, or the server's in its reply; 0 for opening and administration.
    pub view: u64,
}

impl RecordHeader {
    /// Bytes of the first field: it tells a transport how many bytes follow.
    pub const LENGTH_BYTES: usize = 4;

    /// Returns the encoded header, length field included.
    ///
    /// # Panics
    /// If the body is longer than the maximum ([`INSTALL_BODY_BYTES_MAX`]).
    pub fn encode(&self) -> [u8; RECORD_HEADER_BYTES] {
        assert!(self.body_bytes as usize <= INSTALL_BODY_BYTES_MAX, "a body beyond every limit");
        let record_bytes = (RECORD_HEADER_BYTES - Self::LENGTH_BYTES) as u32 + self.body_bytes;
        let mut head = [0; RECORD_HEADER_BYTES];
        head[..4].copy_from_slice(&record_bytes.to_le_bytes());
        head[4] = self.code;
        head[5] = self.flags;
        head[8..16].copy_from_slice(&self.sequence.to_le_bytes());
        head[16..24].copy_from_slice(&self.first_unacknowledged.to_le_bytes());
        head[24..].copy_from_slice(&self.view.to_le_bytes());
        head
    }

    /// Returns a whole record: header and body in one allocation.
    ///
    /// # Panics
    /// As [`RecordHeader::encode`]; `self.body_bytes` is ignored.
    pub fn encode_record(&self, body: &[u8]) -> Vec<u8> {
        let header = RecordHeader { body_bytes: u32::try_from(body.len()).unwrap_or(u32::MAX), ..*self };
        let mut record = Vec::with_capacity(RECORD_HEADER_BYTES + body.len());
        record.extend_from_slice(&header.encode());
        record.extend_from_slice(body);
        record
    }

    /// Reads a header, length field included.
    ///
    /// # Errors
    /// [`Status::Malformed`] if the length is shorter than the header or the reserved field is not zero;
    /// [`Status::LimitExceeded`] if the body is longer than [`RecordHeader::body_bytes_max`].
    pub fn decode(head: &[u8; RECORD_HEADER_BYTES]) -> Result<RecordHeader, Status> {
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&head[at..at + 8]);
            u64::from_le_bytes(word)
        };
        let record_bytes = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
        let body_bytes = record_bytes
            .checked_sub((RECORD_HEADER_BYTES - Self::LENGTH_BYTES) as u32)
            .ok_or(Status::Malformed)?;
        if head[6] | head[7] != 0 {
            return Err(Status::Malformed);
        }
        let header = RecordHeader {
            body_bytes,
            code: head[4],
            flags: head[5],
            sequence: word(8),
            first_unacknowledged: word(16),
            view: word(24),
        };
        if body_bytes as usize > Self::body_bytes_max(header.code) {
            return Err(Status::LimitExceeded);
        }
        Ok(header)
    }

    /// Splits a whole record, passed without its length field, into header and body.
    ///
    /// # Errors
    /// As [`RecordHeader::decode`].
    pub fn split(record: &[u8]) -> Result<(RecordHeader, &[u8]), Status> {
        let (head, body) = record
            .split_first_chunk::<{ RECORD_HEADER_BYTES - Self::LENGTH_BYTES }>()
            .ok_or(Status::Malformed)?;
        let mut whole = [0; RECORD_HEADER_BYTES];
        let record_bytes = u32::try_from(record.len()).map_err(|_| Status::LimitExceeded)?;
        whole[..Self::LENGTH_BYTES].copy_from_slice(&record_bytes.to_le_bytes());
        whole[Self::LENGTH_BYTES..].copy_from_slice(head);
        Ok((Self::decode(&whole)?, body))
    }

    /// Returns the longest body behind a code.
    pub const fn body_bytes_max(code: u8) -> usize {
        if code == opcode::ADMINISTER { INSTALL_BODY_BYTES_MAX } else { STREAM_BODY_BYTES_MAX }
    }
}
