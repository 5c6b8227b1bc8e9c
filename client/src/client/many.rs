//! Many writes at once: separate requests, packed together into few frames.
//!
//! They are not atomic: each one succeeds or fails independently, executes at most once, and has its own result. Use
//! [`Client::transaction`], or an extension, for all or nothing. See "Many writes are many requests" in docs/notes.md.

use wire::{Completion, Condition, Request};

use super::Client;
use crate::{Error, answers};

/// One of many writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write<'a> {
    /// Key of the object.
    pub key: &'a [u8],
    /// New value; `None` deletes the object.
    pub value: Option<&'a [u8]>,
    /// Condition of the write.
    pub condition: Condition,
    /// Time to live in milliseconds; `None` for no expiry.
    pub ttl_ms: Option<u64>,
}

impl<'a> Write<'a> {
    /// Returns the request for one table.
    pub(crate) fn request(&self, table: u32) -> Request<'a> {
        let Write { key, condition, .. } = *self;
        match (self.value, self.ttl_ms) {
            (Some(value), None) => Request::Put { table, key, value, condition },
            (Some(value), Some(ttl_ms)) => Request::PutFor { table, key, value, condition, ttl_ms },
            (None, _) => Request::Delete { table, key, condition },
        }
    }
}

impl Client {
    /// Writes many objects unconditionally. `results[i]` is the new version of `objects[i]`, or the reason why it was
    /// not written.
    ///
    /// # Errors
    /// If the session fails as a whole; then it is unknown which objects were written.
    pub fn multi_put(
        &mut self,
        table: u32,
        objects: &[(&[u8], &[u8])],
    ) -> Result<Vec<Result<u64, Error>>, Error> {
        let put =
            |&(key, value)| Write { key, value: Some(value), condition: Condition::Always, ttl_ms: None };
        self.multi_write(table, &objects.iter().map(put).collect::<Vec<_>>())
    }

    /// Deletes many objects. `results[i]` is the version of the deletion of `keys[i]`, or the refusal; `NotFound` if
    /// there was no object.
    ///
    /// # Errors
    /// As [`Client::multi_put`].
    pub fn multi_delete(&mut self, table: u32, keys: &[&[u8]]) -> Result<Vec<Result<u64, Error>>, Error> {
        let delete = |&key| Write { key, value: None, condition: Condition::Always, ttl_ms: None };
        self.multi_write(table, &keys.iter().map(delete).collect::<Vec<_>>())
    }

    /// Writes and deletes many objects, each on its own condition, in any order.
    ///
    /// # Errors
    /// As [`Client::multi_put`].
    pub fn multi_write(
        &mut self,
        table: u32,
        writes: &[Write<'_>],
    ) -> Result<Vec<Result<u64, Error>>, Error> {
        let mut results: Vec<_> = writes.iter().map(|_| Err(Error::NotSent)).collect();
        let first_tag = self.session.own_tags(writes.len());
        let mut take = |completion: Completion<'_>| {
            if let Some(place) = results.get_mut(completion.tag.wrapping_sub(first_tag) as usize) {
                *place = answers::version(Error::check(&completion));
            }
        };
        let mut refused = Vec::new();
        for ((index, write), tag) in writes.iter().enumerate().zip(first_tag..) {
            match self.session.submit_own(&write.request(table), tag, &mut take) {
                Ok(()) => {}
                // A request that no server accepts fails alone.
                Err(error @ Error::Refused { .. }) => refused.push((index, error)),
                Err(error) => return Err(error),
            }
        }
        self.session.await_own(&mut take)?;
        for (index, error) in refused {
            results[index] = Err(error);
        }
        Ok(results)
    }
}
