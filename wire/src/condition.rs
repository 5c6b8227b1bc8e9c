//! The condition of a put or a delete.
//!
//! On the wire: one byte of kind and, only for [`Condition::Version`], eight bytes of version. The server checks and
//! writes in one step, so two clients with the same condition never both succeed.

use crate::status::Status;

/// The condition under which a write takes place.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Condition {
    /// No condition.
    #[default]
    Always,
    /// There is no object under the key.
    Absent,
    /// There is an object under the key.
    Present,
    /// The object has exactly this version.
    Version(u64),
}

impl Condition {
    pub(crate) const fn kind(self) -> u8 {
        match self {
            Condition::Always => 0,
            Condition::Absent => 1,
            Condition::Present => 2,
            Condition::Version(_) => 3,
        }
    }

    /// Returns the bytes behind the kind.
    pub(crate) const fn tail_bytes(self) -> usize {
        match self {
            Condition::Version(_) => 8,
            _ => 0,
        }
    }

    /// Writes the tail at the start of `bytes` and returns the rest.
    #[inline]
    pub(crate) fn write_tail(self, bytes: &mut [u8]) -> &mut [u8] {
        match self {
            Condition::Version(version) => {
                let (tail, rest) = bytes.split_at_mut(8);
                tail.copy_from_slice(&version.to_le_bytes());
                rest
            }
            _ => bytes,
        }
    }

    /// Reads a condition of `kind` whose tail, if it has one, starts `bytes`; returns the rest too.
    #[inline]
    pub(crate) fn read_tail(kind: u8, bytes: &[u8]) -> Result<(Condition, &[u8]), Status> {
        match kind {
            0 => Ok((Condition::Always, bytes)),
            1 => Ok((Condition::Absent, bytes)),
            2 => Ok((Condition::Present, bytes)),
            3 => {
                let (tail, rest) = bytes.split_first_chunk::<8>().ok_or(Status::Malformed)?;
                Ok((Condition::Version(u64::from_le_bytes(*tail)), rest))
            }
            _ => Err(Status::Malformed),
        }
    }
}
