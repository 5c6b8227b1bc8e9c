//! Objects: reading, writing, incrementing.

use wire::{Completion, Condition, Keys, Request, Status, reply};

use super::{Client, Object};
use crate::Error;

/// First estimate of the bytes per object in the reply to a multi-get.
pub(super) const ENTRY_BYTES_FIRST: usize = 128;
/// Bytes that the reply to one multi-get may fill within a datagram.
const ANSWER_BYTES: usize = 1_400;
/// Bytes that the keys of one multi-get may fill within a datagram.
const KEYS_BYTES: usize = 1_380;

impl Client {
    /// Reads an object; returns `None` if it does not exist.
    ///
    /// # Errors
    /// The server's refusal, or no reply.
    pub fn get(&mut self, table: u32, key: &[u8]) -> Result<Option<Object>, Error> {
        match self.call(&Request::Get { table, key }) {
            Ok(()) => {}
            Err(Error::Refused { status: Status::NotFound, .. }) => return Ok(None),
            Err(error) => return Err(error),
        }
        let object = reply::Object::decode(&self.body).map_err(|_| unintelligible("an object"))?;
        Ok(Some(Object { value: object.value.to_vec(), version: object.version, ttl_ms: object.ttl_ms }))
    }

    /// Writes an object unconditionally; returns its version.
    ///
    /// # Errors
    /// The server's refusal, or no reply; see [`Error::outcome_is_unknown`].
    pub fn put(&mut self, table: u32, key: &[u8], value: &[u8]) -> Result<u64, Error> {
        self.put_if(table, key, value, Condition::Always)
    }

    /// Writes an object if a condition holds; returns its version.
    ///
    /// # Errors
    /// [`Error::ConditionFailed`] with the current version, else as [`Client::put`].
    pub fn put_if(
        &mut self,
        table: u32,
        key: &[u8],
        value: &[u8],
        condition: Condition,
    ) -> Result<u64, Error> {
        self.call(&Request::Put { table, key, value, condition })?;
        self.version()
    }

    /// Writes an object with a time to live if a condition holds; returns its version. After `ttl_ms` milliseconds the
    /// object is absent. A later put sets or removes the expiry.
    ///
    /// # Errors
    /// `OutOfRange` for a time of 0 or beyond [`crate::TTL_MS_MAX`], else as [`Client::put_if`].
    pub fn put_for(
        &mut self,
        table: u32,
        key: &[u8],
        value: &[u8],
        ttl_ms: u64,
        condition: Condition,
    ) -> Result<u64, Error> {
        self.call(&Request::PutFor { table, key, value, condition, ttl_ms })?;
        self.version()
    }

    /// Deletes an object. Returns the version of the deletion, or `None` if there was no object.
    ///
    /// # Errors
    /// As [`Client::put`].
    pub fn delete(&mut self, table: u32, key: &[u8]) -> Result<Option<u64>, Error> {
        match self.delete_if(table, key, Condition::Always) {
            Ok(version) => Ok(Some(version)),
            Err(Error::Refused { status: Status::NotFound, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Deletes an object if a condition holds. Returns the version of the deletion.
    ///
    /// # Errors
    /// [`Error::ConditionFailed`] with the current version, `NotFound` if there is no object, else as [`Client::put`].
    pub fn delete_if(&mut self, table: u32, key: &[u8], condition: Condition) -> Result<u64, Error> {
        self.call(&Request::Delete { table, key, condition })?;
        self.version()
    }

    /// Adds to the number that an object holds. An absent object counts as 0. Returns sum and version.
    ///
    /// # Errors
    /// As [`Client::put`]; `NotANumber` and `Overflow` write nothing.
    pub fn increment(&mut self, table: u32, key: &[u8], delta: i64) -> Result<(i64, u64), Error> {
        self.call(&Request::Increment { table, key, delta })?;
        let number = reply::Number::decode(&self.body).map_err(|_| unintelligible("a number"))?;
        Ok((number.value, number.version))
    }

    /// Adds to an object's floating-point number; an absent object counts as 0. Returns sum and version.
    ///
    /// # Errors
    /// As [`Client::increment`]; `OutOfRange` if `delta` is not finite.
    pub fn increment_float(&mut self, table: u32, key: &[u8], delta: f64) -> Result<(f64, u64), Error> {
        self.call(&Request::IncrementFloat { table, key, delta_bits: delta.to_bits() })?;
        let number = reply::Number::decode(&self.body).map_err(|_| unintelligible("a number"))?;
        Ok((f64::from_bits(number.value as u64), number.version))
    }

    /// Reads many objects of a table, in the order of `keys`. Splits them into concurrent requests whose replies fit
    /// datagrams. Reads each object separately, not all at one moment.
    ///
    /// # Errors
    /// The first refusal, or no reply.
    pub fn multi_get(&mut self, table: u32, keys: &[&[u8]]) -> Result<Vec<Option<Object>>, Error> {
        let chunks = self.cut(keys);
        let mut objects: Vec<Option<Object>> = vec![None; keys.len()];
        let mut failure = None;
        let mut bytes = 0;
        let first_tag = self.session.own_tags(chunks.len());
        let mut take = |completion: Completion<'_>| {
            let chunk = completion.tag.wrapping_sub(first_tag) as usize;
            let Some(&(first, end)) = chunks.get(chunk) else { return };
            bytes += completion.body.len();
            if let Err(error) = fill(&mut objects[first..end], &completion) {
                failure.get_or_insert(error);
            }
        };
        for (&(first, end), tag) in chunks.iter().zip(first_tag..) {
            let request = Request::MultiGet { table, keys: Keys::from_slices(&keys[first..end]) };
            self.session.submit_own(&request, tag, &mut take)?;
        }
        self.session.await_own(&mut take)?;
        if let Some(error) = failure {
            return Err(error);
        }
        if let Some(seen) = bytes.checked_div(keys.len()) {
            self.entry_bytes = (self.entry_bytes + seen.max(1)) / 2;
        }
        Ok(objects)
    }

    /// Splits keys into ranges whose requests, and probably replies, fit a datagram.
    fn cut(&self, keys: &[&[u8]]) -> Vec<(usize, usize)> {
        let keys_max = (ANSWER_BYTES / self.entry_bytes.max(1)).max(1);
        let mut chunks = Vec::new();
        let (mut first, mut bytes) = (0, 0);
        for (index, key) in keys.iter().enumerate() {
            let key_bytes = key.len() + 2;
            if index > first && (index - first >= keys_max || bytes + key_bytes > KEYS_BYTES) {
                chunks.push((first, index));
                (first, bytes) = (index, 0);
            }
            bytes += key_bytes;
        }
        if first < keys.len() {
            chunks.push((first, keys.len()));
        }
        chunks
    }

    fn version(&self) -> Result<u64, Error> {
        reply::decode_version(&self.body).map_err(|_| unintelligible("a version"))
    }
}

/// Stores the objects of one reply in their places.
fn fill(places: &mut [Option<Object>], completion: &Completion<'_>) -> Result<(), Error> {
    let body = Error::check(completion)?;
    let entries = reply::Objects::decode(body).map_err(|_| unintelligible("objects"))?;
    if entries.len() != places.len() {
        return Err(unintelligible("an object for each key"));
    }
    for (place, entry) in places.iter_mut().zip(entries) {
        *place = match entry.status {
            Status::Ok => Some(Object { value: entry.value.to_vec(), version: entry.version, ttl_ms: None }),
            Status::NotFound => None,
            status => return Err(Error::of_answer(status, &[])),
        };
    }
    Ok(())
}

pub(super) fn unintelligible(expected: &'static str) -> Error {
    Error::Unintelligible { expected }
}
