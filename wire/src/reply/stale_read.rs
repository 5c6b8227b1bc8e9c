//! The replies to a get that does not wait, from both servers of a migration.
//!
//! The target begins its reply with the hashes that have arrived, if that is news to the session; otherwise with an
//! empty list, which costs a byte. The source names the migration that took the key, so that no client combines
//! replies of two migrations.

use super::Object;
use crate::status::Status;

/// Maximum number of ranges in a reply.
const RANGES_MAX: usize = 15;
/// Bytes of a range: first and last hash.
const RANGE_BYTES: usize = 16;
/// Bytes of the longest [`Arrived`].
pub const ARRIVED_BYTES_MAX: usize = 1 + RANGES_MAX * RANGE_BYTES;

/// Ranges of hashes whose objects have arrived: count u8, then per range first hash u64, last hash u64. Empty:
/// nothing new.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrived<'a> {
    bytes: &'a [u8],
}

impl<'a> Arrived<'a> {
    /// Writes ranges, up to the maximum number, and returns their bytes.
    pub fn encode(ranges: impl Iterator<Item = (u64, u64)>, into: &mut [u8; ARRIVED_BYTES_MAX]) -> &[u8] {
        let (count, places) = into.split_first_mut().expect("a count comes first");
        *count = 0;
        for (place, (first, last)) in places.chunks_exact_mut(RANGE_BYTES).zip(ranges) {
            place[..8].copy_from_slice(&first.to_le_bytes());
            place[8..].copy_from_slice(&last.to_le_bytes());
            *count += 1;
        }
        let bytes = 1 + usize::from(*count) * RANGE_BYTES;
        &into[..bytes]
    }

    /// Reads the ranges from the front of a reply; returns them and the rest.
    ///
    /// # Errors
    /// [`Status::Malformed`].
    pub fn split(body: &'a [u8]) -> Result<(Arrived<'a>, &'a [u8]), Status> {
        let (count, rest) = body.split_first().ok_or(Status::Malformed)?;
        let (bytes, rest) =
            rest.split_at_checked(usize::from(*count) * RANGE_BYTES).ok_or(Status::Malformed)?;
        Ok((Arrived { bytes }, rest))
    }

    /// Returns the first and last hash of each range.
    pub fn ranges(&self) -> impl Iterator<Item = (u64, u64)> + use<'a> {
        let (words, _) = self.bytes.as_chunks::<8>();
        let (pairs, _) = words.as_chunks::<2>();
        pairs.iter().map(|[first, last]| (u64::from_le_bytes(*first), u64::from_le_bytes(*last)))
    }
}

/// The state of a key when it left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Left<'a> {
    /// There was no object.
    Absent,
    /// There was this object.
    Object(Object<'a>),
    /// The source has reported too much of this migration to report more: the client must ask only the target.
    Untold,
}

/// The body of `Frozen`: migration u32, kind u8 (0 absent, 1 present, 2 untold), then as of a get if present.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StaleRead<'a> {
    /// The migration that took the key.
    pub migration: u32,
    /// The state of the key.
    pub left: Left<'a>,
}

impl<'a> StaleRead<'a> {
    /// Bytes before the object.
    pub const HEAD_BYTES: usize = 5;

    /// Returns the length of the encoded body.
    pub const fn body_bytes(&self) -> usize {
        match &self.left {
            Left::Object(object) => Self::HEAD_BYTES + object.body_bytes(),
            Left::Absent | Left::Untold => Self::HEAD_BYTES,
        }
    }

    /// Writes the body; copies the value once.
    ///
    /// # Panics
    /// Unless `body` has exactly [`StaleRead::body_bytes`].
    pub fn encode(&self, body: &mut [u8]) {
        let (head, rest) = body.split_at_mut(Self::HEAD_BYTES);
        head[..4].copy_from_slice(&self.migration.to_le_bytes());
        match &self.left {
            Left::Absent => head[4] = 0,
            Left::Object(object) => {
                head[4] = 1;
                object.encode(rest);
            }
            Left::Untold => head[4] = 2,
        }
    }

    /// Reads the body.
    ///
    /// # Errors
    /// [`Status::Malformed`].
    pub fn decode(body: &'a [u8]) -> Result<StaleRead<'a>, Status> {
        let (migration, rest) = body.split_first_chunk().ok_or(Status::Malformed)?;
        let left = match rest {
            [0] => Left::Absent,
            [1, object @ ..] => Left::Object(Object::decode(object)?),
            [2] => Left::Untold,
            _ => return Err(Status::Malformed),
        };
        Ok(StaleRead { migration: u32::from_le_bytes(*migration), left })
    }
}

#[cfg(test)]
mod tests {
    use super::{ARRIVED_BYTES_MAX, Arrived, Left, RANGES_MAX, StaleRead};
    use crate::reply::Object;
    use crate::status::Status;

    #[test]
    fn what_has_arrived_stands_before_an_answer_and_may_be_nothing() {
        let mut place = [0; ARRIVED_BYTES_MAX];
        assert_eq!(Arrived::encode(std::iter::empty(), &mut place), [0]);
        let ranges = [(0, 9), (1 << 63, u64::MAX)];
        let body = [Arrived::encode(ranges.into_iter(), &mut place), b"rest"].concat();
        let (arrived, rest) = Arrived::split(&body).expect("as encoded");
        assert_eq!((arrived.ranges().collect::<Vec<_>>(), rest), (ranges.to_vec(), &b"rest"[..]));
        let many = Arrived::encode((0..99).map(|hash| (hash, hash)), &mut place);
        let (arrived, _) = Arrived::split(many).expect("as encoded");
        assert_eq!(arrived.ranges().count(), RANGES_MAX);
        assert_eq!(Arrived::split(&[]), Err(Status::Malformed));
        assert_eq!(Arrived::split(&body[..20]), Err(Status::Malformed));
    }

    #[test]
    fn what_a_key_was_comes_back_as_it_was_said() {
        let object = Object { version: 7, ttl_ms: Some(5), value: b"value" };
        for left in [Left::Absent, Left::Object(object), Left::Untold] {
            let frozen = StaleRead { migration: 9, left };
            let mut body = vec![0xaa; frozen.body_bytes()];
            frozen.encode(&mut body);
            assert_eq!(StaleRead::decode(&body), Ok(frozen));
            assert_eq!(StaleRead::decode(&body[..4]), Err(Status::Malformed));
        }
        assert_eq!(StaleRead::decode(&[1, 0, 0, 0, 0, 0]), Err(Status::Malformed));
        assert_eq!(StaleRead::decode(&[1, 0, 0, 0, 3]), Err(Status::Malformed));
    }
}
