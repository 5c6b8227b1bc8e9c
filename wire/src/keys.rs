//! The keys of a multi-get: a borrowed list that is checked once, when it is decoded.
//!
//! On the wire each key is two bytes of length and its bytes. [`Keys::decode`] checks the count and every length, so
//! iterating never fails. A caller that builds a request lends a list of slices instead; both forms iterate alike.

use crate::limits::{KEY_BYTES_MAX, MULTI_GET_KEYS_MAX};
use crate::status::Status;

/// The keys of a multi-get, in the order of its reply. Iterate over a copy to use it again.
#[derive(Clone, Copy, Debug)]
pub struct Keys<'a> {
    form: Form<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Form<'a> {
    /// `count` keys, each behind its length; checked.
    Encoded { count: usize, bytes: &'a [u8] },
    /// The caller's own list.
    Listed(&'a [&'a [u8]]),
}

impl<'a> Keys<'a> {
    /// Lends a list of keys to a request.
    pub fn from_slices(keys: &'a [&'a [u8]]) -> Keys<'a> {
        Keys { form: Form::Listed(keys) }
    }

    /// Checks that `bytes` holds exactly `count` keys. Cost: one step per key.
    ///
    /// # Errors
    /// [`Status::LimitExceeded`] for more than [`MULTI_GET_KEYS_MAX`] keys, otherwise [`Status::Malformed`].
    pub fn decode(count: usize, bytes: &'a [u8]) -> Result<Keys<'a>, Status> {
        if count > MULTI_GET_KEYS_MAX {
            return Err(Status::LimitExceeded);
        }
        let mut rest = bytes;
        for _ in 0..count {
            (_, rest) = split_key(rest).ok_or(Status::Malformed)?;
        }
        if !rest.is_empty() {
            return Err(Status::Malformed);
        }
        Ok(Keys { form: Form::Encoded { count, bytes } })
    }

    /// Returns the number of keys left.
    pub fn len(&self) -> usize {
        match self.form {
            Form::Encoded { count, .. } => count,
            Form::Listed(keys) => keys.len(),
        }
    }

    /// Returns whether no key is left.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes of the encoded list.
    pub(crate) fn encoded_bytes(&self) -> usize {
        match self.form {
            Form::Encoded { bytes, .. } => bytes.len(),
            Form::Listed(keys) => keys.iter().map(|key| 2 + key.len()).sum(),
        }
    }

    /// Checks the list against the protocol's limits.
    pub(crate) fn check(&self) -> Result<(), Status> {
        if self.len() > MULTI_GET_KEYS_MAX {
            return Err(Status::LimitExceeded);
        }
        match self.form {
            Form::Listed(keys) if keys.iter().any(|key| key.len() > KEY_BYTES_MAX) => {
                Err(Status::KeyTooLarge)
            }
            _ => Ok(()),
        }
    }

    /// Encodes the list into `out`, which has exactly [`Keys::encoded_bytes`].
    pub(crate) fn encode(&self, out: &mut [u8]) {
        match self.form {
            Form::Encoded { bytes, .. } => out.copy_from_slice(bytes),
            Form::Listed(keys) => {
                let mut rest = out;
                for key in keys {
                    let (length, behind) = rest.split_at_mut(2);
                    length.copy_from_slice(&(key.len() as u16).to_le_bytes());
                    let (bytes, behind) = behind.split_at_mut(key.len());
                    bytes.copy_from_slice(key);
                    rest = behind;
                }
            }
        }
    }
}

impl<'a> Iterator for Keys<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        match &mut self.form {
            Form::Encoded { count, bytes } => {
                *count = count.checked_sub(1)?;
                let (key, rest) = split_key(bytes)?;
                *bytes = rest;
                Some(key)
            }
            Form::Listed(keys) => {
                let (key, rest) = keys.split_first()?;
                *keys = rest;
                Some(key)
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.len(), Some(self.len()))
    }
}

impl ExactSizeIterator for Keys<'_> {}

impl PartialEq for Keys<'_> {
    fn eq(&self, other: &Self) -> bool {
        Iterator::eq(*self, *other)
    }
}

impl Eq for Keys<'_> {}

#[inline]
fn split_key(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<2>()?;
    rest.split_at_checked(u16::from_le_bytes(*length) as usize)
}
