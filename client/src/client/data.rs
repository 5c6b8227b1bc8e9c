//! Objects: reading, writing, incrementing.

use wire::{Completion, Condition, Keys, Request};

use super::Client;
use crate::Error;
use crate::answers::{self, Object};

impl Client {
    /// Reads an object; returns `None` if it does not exist.
    ///
    /// # Errors
    /// The server's refusal, or no reply.
    pub fn get(&mut self, table: u32, key: &[u8]) -> Result<Option<Object>, Error> {
        answers::object(self.call(&Request::Get { table, key }))
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
        answers::version(self.call(&Request::Put { table, key, value, condition }))
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
        answers::version(self.call(&Request::PutFor { table, key, value, condition, ttl_ms }))
    }

    /// Deletes an object. Returns the version of the deletion, or `None` if there was no object.
    ///
    /// # Errors
    /// As [`Client::put`].
    pub fn delete(&mut self, table: u32, key: &[u8]) -> Result<Option<u64>, Error> {
        answers::deletion(self.delete_if(table, key, Condition::Always))
    }

    /// Deletes an object if a condition holds. Returns the version of the deletion.
    ///
    /// # Errors
    /// [`Error::ConditionFailed`] with the current version, `NotFound` if there is no object, else as [`Client::put`].
    pub fn delete_if(&mut self, table: u32, key: &[u8], condition: Condition) -> Result<u64, Error> {
        answers::version(self.call(&Request::Delete { table, key, condition }))
    }

    /// Adds to the number that an object holds. An absent object counts as 0. Returns sum and version.
    ///
    /// # Errors
    /// As [`Client::put`]; `NotANumber` and `Overflow` write nothing.
    pub fn increment(&mut self, table: u32, key: &[u8], delta: i64) -> Result<(i64, u64), Error> {
        answers::number(self.call(&Request::Increment { table, key, delta }))
    }

    /// Adds to an object's floating-point number; an absent object counts as 0. Returns sum and version.
    ///
    /// # Errors
    /// As [`Client::increment`]; `OutOfRange` if `delta` is not finite.
    pub fn increment_float(&mut self, table: u32, key: &[u8], delta: f64) -> Result<(f64, u64), Error> {
        answers::float(self.call(&Request::IncrementFloat { table, key, delta_bits: delta.to_bits() }))
    }

    /// Reads many objects of a table, in the order of `keys`. Splits them into concurrent requests whose replies fit
    /// datagrams. Reads each object separately, not all at one moment.
    ///
    /// # Errors
    /// The first refusal, or no reply.
    pub fn multi_get(&mut self, table: u32, keys: &[&[u8]]) -> Result<Vec<Option<Object>>, Error> {
        let chunks = self.chunks.split(keys);
        let mut objects: Vec<Option<Object>> = vec![None; keys.len()];
        let mut failure = None;
        let mut bytes = 0;
        let first_tag = self.session.own_tags(chunks.len());
        let mut take = |completion: Completion<'_>| {
            let chunk = completion.tag.wrapping_sub(first_tag) as usize;
            let Some(places) = chunks.get(chunk).cloned() else { return };
            match answers::objects(Error::check(&completion), &mut objects[places]) {
                Ok(own) => bytes += own,
                Err(error) => _ = failure.get_or_insert(error),
            }
        };
        for (chunk, tag) in chunks.iter().cloned().zip(first_tag..) {
            let request = Request::MultiGet { table, keys: Keys::from_slices(&keys[chunk]) };
            self.session.submit_own(&request, tag, &mut take)?;
        }
        self.session.await_own(&mut take)?;
        if let Some(error) = failure {
            return Err(error);
        }
        self.chunks.learn(keys.len(), bytes);
        Ok(objects)
    }
}
