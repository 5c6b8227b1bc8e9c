//! Replies to data requests, as the blocking and the async interface return them.

use std::ops::Range;

use wire::{Status, reply};

use crate::Error;

/// First estimate of the bytes per object in the reply to a multi-get.
const ENTRY_BYTES_FIRST: usize = 128;
/// Bytes that the reply to one multi-get may fill within a datagram.
const ANSWER_BYTES: usize = 1_400;
/// Bytes that the keys of one multi-get may fill within a datagram.
const KEYS_BYTES: usize = 1_380;

/// An object that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// Value of the object.
    pub value: Vec<u8>,
    /// Version of the object, which grows with every write.
    pub version: u64,
    /// Remaining time to live in milliseconds. `None` if the object does not expire. A multi-get never sets it.
    pub ttl_ms: Option<u64>,
}

/// Returns the error for a reply that is not what was asked for.
pub(crate) fn unintelligible(expected: &'static str) -> Error {
    Error::Unintelligible { expected }
}

/// Returns an object, or `None` if there is none.
pub(crate) fn object(answer: Result<&[u8], Error>) -> Result<Option<Object>, Error> {
    let body = match answer {
        Ok(body) => body,
        Err(Error::Refused { status: Status::NotFound, .. }) => return Ok(None),
        Err(error) => return Err(error),
    };
    let reply::Object { value, version, ttl_ms } =
        reply::Object::decode(body).map_err(|_| unintelligible("an object"))?;
    Ok(Some(Object { value: value.to_vec(), version, ttl_ms }))
}

/// Returns the version of a write.
pub(crate) fn version(answer: Result<&[u8], Error>) -> Result<u64, Error> {
    reply::decode_version(answer?).map_err(|_| unintelligible("a version"))
}

/// Returns the version of a deletion, or `None` if there was no object.
pub(crate) fn deletion(version: Result<u64, Error>) -> Result<Option<u64>, Error> {
    match version {
        Err(Error::Refused { status: Status::NotFound, .. }) => Ok(None),
        version => version.map(Some),
    }
}

/// Returns the sum and the version of an increment.
pub(crate) fn number(answer: Result<&[u8], Error>) -> Result<(i64, u64), Error> {
    let number = reply::Number::decode(answer?).map_err(|_| unintelligible("a number"))?;
    Ok((number.value, number.version))
}

/// The same of a floating-point number.
pub(crate) fn float(answer: Result<&[u8], Error>) -> Result<(f64, u64), Error> {
    number(answer).map(|(bits, version)| (f64::from_bits(bits as u64), version))
}

/// Stores the objects of a reply in their places; returns the bytes of the reply.
pub(crate) fn objects(answer: Result<&[u8], Error>, places: &mut [Option<Object>]) -> Result<usize, Error> {
    let body = answer?;
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
    Ok(body.len())
}

/// How the keys of a multi-get are split into requests, by the size of earlier replies.
pub(crate) struct KeyChunks {
    /// Estimated bytes per object in a reply.
    entry_bytes: usize,
}

impl KeyChunks {
    pub(crate) const fn new() -> KeyChunks {
        KeyChunks { entry_bytes: ENTRY_BYTES_FIRST }
    }

    /// Splits keys into ranges whose requests, and probably replies, fit a datagram.
    pub(crate) fn split(&self, keys: &[&[u8]]) -> Vec<Range<usize>> {
        let keys_max = (ANSWER_BYTES / self.entry_bytes.max(1)).max(1);
        let mut chunks = Vec::new();
        let (mut first, mut bytes) = (0, 0);
        for (index, key) in keys.iter().enumerate() {
            let key_bytes = key.len() + 2;
            if index > first && (index - first >= keys_max || bytes + key_bytes > KEYS_BYTES) {
                chunks.push(first..index);
                (first, bytes) = (index, 0);
            }
            bytes += key_bytes;
        }
        if first < keys.len() {
            chunks.push(first..keys.len());
        }
        chunks
    }

    /// Notes that the replies for so many keys had so many bytes.
    pub(crate) fn learn(&mut self, keys: usize, bytes: usize) {
        if let Some(seen) = bytes.checked_div(keys) {
            self.entry_bytes = (self.entry_bytes + seen.max(1)) / 2;
        }
    }
}
