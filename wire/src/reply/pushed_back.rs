//! The reply to an invocation that its client is to run itself.

use super::Object;
use crate::limits::KEY_BYTES_MAX;
use crate::status::Status;

/// Bytes before the records.
const HEAD_BYTES: usize = 4;
/// Bytes of a record before its key.
const RECORD_HEAD_BYTES: usize = 12;
/// Object bytes of a record whose object is absent.
const ABSENT: u32 = u32::MAX;

/// The body of `PushedBack`: version u32, then per object that the function has read: table u32, key bytes u32, bytes u32
/// of the object as in the reply of a get, or all bits set if there is none, key, object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PushedBack<'a> {
    /// Version of the extension that the server chose for this invocation.
    pub version: u32,
    records: &'a [u8],
}

/// An object that a function has read before it was pushed back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadRecord<'a> {
    /// Id of the table.
    pub table: u32,
    /// The key.
    pub key: &'a [u8],
    /// The object; `None` if there was none.
    pub object: Option<Object<'a>>,
}

impl ReadRecord<'_> {
    /// Returns the length of the encoded record.
    #[must_use]
    pub fn bytes(&self) -> usize {
        RECORD_HEAD_BYTES + self.key.len() + self.object.map_or(0, |object| object.body_bytes())
    }

    /// Writes the record to the front of `into`, and returns its length; `None` if it does not fit.
    pub fn encode(&self, into: &mut [u8]) -> Option<usize> {
        let bytes = self.bytes();
        let (head, rest) = into.get_mut(..bytes)?.split_first_chunk_mut::<RECORD_HEAD_BYTES>()?;
        let object_bytes = self.object.map_or(ABSENT, |object| object.body_bytes() as u32);
        for (place, number) in
            head.as_chunks_mut().0.iter_mut().zip([self.table, self.key.len() as u32, object_bytes])
        {
            *place = number.to_le_bytes();
        }
        let (key, object) = rest.split_at_mut(self.key.len());
        key.copy_from_slice(self.key);
        if let Some(found) = self.object {
            found.encode(object);
        }
        Some(bytes)
    }
}

impl<'a> PushedBack<'a> {
    /// Returns the body without records, and so the beginning of each body.
    #[must_use]
    pub const fn head(version: u32) -> [u8; HEAD_BYTES] {
        version.to_le_bytes()
    }

    /// Reads the body. The records are read one by one by [`PushedBack::records`].
    ///
    /// # Errors
    /// [`Status::Malformed`] if it is shorter than a version.
    pub fn decode(body: &'a [u8]) -> Result<PushedBack<'a>, Status> {
        let (version, records) = body.split_first_chunk().ok_or(Status::Malformed)?;
        Ok(PushedBack { version: u32::from_le_bytes(*version), records })
    }

    /// Returns the records up to the first one that is malformed.
    pub fn records(&self) -> impl Iterator<Item = ReadRecord<'a>> + use<'a> {
        let mut rest = self.records;
        core::iter::from_fn(move || {
            let (record, behind) = split_record(rest)?;
            rest = behind;
            Some(record)
        })
    }
}

/// Reads the first record; returns it and the bytes behind it.
fn split_record(records: &[u8]) -> Option<(ReadRecord<'_>, &[u8])> {
    let (head, rest) = records.split_first_chunk::<RECORD_HEAD_BYTES>()?;
    let word = |index: usize| Some(u32::from_le_bytes(*head.as_chunks().0.get(index)?));
    let (table, key_bytes, object_bytes) = (word(0)?, word(1)? as usize, word(2)?);
    let (key, rest) = rest.split_at_checked(key_bytes).filter(|_| key_bytes <= KEY_BYTES_MAX)?;
    if object_bytes == ABSENT {
        return Some((ReadRecord { table, key, object: None }, rest));
    }
    let (object, rest) = rest.split_at_checked(object_bytes as usize)?;
    Some((ReadRecord { table, key, object: Some(Object::decode(object).ok()?) }, rest))
}

#[cfg(test)]
mod tests {
    use super::{HEAD_BYTES, PushedBack, ReadRecord};
    use crate::reply::Object;
    use crate::status::Status;

    #[test]
    fn what_was_read_comes_back_and_what_is_cut_off_does_not() {
        let records = [
            ReadRecord { table: 7, key: b"key", object: None },
            ReadRecord {
                table: 8,
                key: b"",
                object: Some(Object { version: 3, ttl_ms: Some(9), value: b"value" }),
            },
            ReadRecord {
                table: 7,
                key: b"other",
                object: Some(Object { version: 4, ttl_ms: None, value: b"" }),
            },
        ];
        let mut body = PushedBack::head(5).to_vec();
        for record in &records {
            let start = body.len();
            body.resize(start + record.bytes(), 0xaa);
            assert_eq!(record.encode(&mut body[start..]), Some(record.bytes()));
            assert_eq!(record.encode(&mut vec![0; record.bytes() - 1]), None);
        }
        let decoded = PushedBack::decode(&body).expect("as encoded");
        assert_eq!((decoded.version, decoded.records().collect::<Vec<_>>()), (5, records.to_vec()));
        for bytes in HEAD_BYTES..body.len() {
            let cut = PushedBack::decode(&body[..bytes]).expect("it has its head");
            let found: Vec<_> = cut.records().collect();
            assert!(found.len() < records.len() && records.starts_with(&found));
        }
        assert_eq!(PushedBack::decode(&body[..3]), Err(Status::Malformed));
        let mut huge = PushedBack::head(5).to_vec();
        huge.extend([0; 4].into_iter().chain([0xff; 4]).chain([0; 4]));
        assert_eq!(PushedBack::decode(&huge).expect("it has its head").records().count(), 0);
    }
}
