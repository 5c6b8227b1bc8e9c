//! The reply of a scan: some objects in order, and the cursor to continue from.
//!
//! Cursor bytes u32, cursor (empty at the end), count u16, then the objects as in a listing.

use super::listing::{Listed, Listing};
use crate::limits::{ENUMERATE_OBJECTS_MAX, SCAN_CURSOR_BYTES_MAX};
use crate::status::Status;

/// Writes and reads the reply; its objects are those of a [`Listing`].
#[derive(Clone, Copy, Debug)]
pub struct Scanned;

const HEAD_BYTES: usize = 6;

impl Scanned {
    /// Returns the length of the encoded body of objects that take `objects_bytes` together.
    #[must_use]
    pub const fn body_bytes(cursor_bytes: usize, objects_bytes: usize) -> usize {
        HEAD_BYTES + cursor_bytes + objects_bytes
    }

    /// Writes the body; copies every key and value once.
    ///
    /// # Panics
    /// Unless `body` has exactly [`Scanned::body_bytes`], or if there are too many objects.
    pub fn encode<'o>(
        body: &mut [u8],
        cursor: [&[u8]; 2],
        count: usize,
        objects: impl Iterator<Item = Listed<'o>>,
    ) {
        let cursor_bytes = cursor[0].len() + cursor[1].len();
        assert!(cursor_bytes <= SCAN_CURSOR_BYTES_MAX && count <= ENUMERATE_OBJECTS_MAX);
        let (head, mut rest) = body.split_at_mut(HEAD_BYTES);
        head[..4].copy_from_slice(&(cursor_bytes as u32).to_le_bytes());
        head[4..].copy_from_slice(&(count as u16).to_le_bytes());
        for part in cursor {
            let (place, behind) = rest.split_at_mut(part.len());
            place.copy_from_slice(part);
            rest = behind;
        }
        for object in objects {
            rest = Listing::encode_object(rest, &object);
        }
        assert!(rest.is_empty(), "the body was made for these objects");
    }

    /// Reads the body and checks every object.
    ///
    /// # Errors
    /// [`Status::Malformed`].
    pub fn decode(body: &[u8]) -> Result<Listing<'_>, Status> {
        let (head, rest) = body.split_first_chunk::<HEAD_BYTES>().ok_or(Status::Malformed)?;
        let cursor_bytes = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
        let (cursor, objects) = rest.split_at_checked(cursor_bytes).ok_or(Status::Malformed)?;
        if cursor_bytes > SCAN_CURSOR_BYTES_MAX {
            return Err(Status::Malformed);
        }
        Listing::of_objects(cursor, u16::from_le_bytes([head[4], head[5]]).into(), objects)
    }
}
