//! The data requests, the same in frames and in streams.
//!
//! [`Request::decode`] is the edge: what it returns is within the limits of [`crate::limits`] and borrows the
//! frame; nothing is copied. Tables, extensions and permissions are not known here, the server checks them.
//! [`Request::check`] says before sending whether a server could take a request. The bodies are drawn in
//! `docs/formats.md`.

use crate::condition::Condition;
use crate::keys::Keys;
use crate::limits::{ARGUMENTS_BYTES_MAX, KEY_BYTES_MAX, VALUE_BYTES_MAX};
use crate::opcode;
use crate::status::Status;

/// A data request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request<'a> {
    /// Asks for an empty answer.
    Ping,
    /// Reads an object.
    Get {
        /// The table's id.
        table: u32,
        /// The object's key.
        key: &'a [u8],
    },
    /// Writes an object.
    Put {
        /// The table's id.
        table: u32,
        /// The object's key.
        key: &'a [u8],
        /// The new value.
        value: &'a [u8],
        /// When to write.
        condition: Condition,
    },
    /// Deletes an object.
    Delete {
        /// The table's id.
        table: u32,
        /// The object's key.
        key: &'a [u8],
        /// When to delete.
        condition: Condition,
    },
    /// Adds to an object that holds a little-endian `i64`; an absent one counts as 0.
    Increment {
        /// The table's id.
        table: u32,
        /// The object's key.
        key: &'a [u8],
        /// What to add.
        delta: i64,
    },
    /// Reads several objects of one table.
    MultiGet {
        /// The table's id.
        table: u32,
        /// The objects' keys.
        keys: Keys<'a>,
    },
    /// Calls a function of an extension.
    Invoke {
        /// The extension's id.
        extension: u32,
        /// Which version of it; 0 is the current one.
        version: u32,
        /// [`crate::function_hash`] of the function's name.
        function: u32,
        /// The table that the function is given.
        table: u32,
        /// The key that the function is given and that routes the call; may be empty.
        key: &'a [u8],
        /// Bytes for the function.
        arguments: &'a [u8],
    },
}

const GET_HEAD_BYTES: usize = 4;
const WRITE_HEAD_BYTES: usize = 8;
const INCREMENT_HEAD_BYTES: usize = 12;
const MULTI_GET_HEAD_BYTES: usize = 8;
const INVOKE_HEAD_BYTES: usize = 20;

impl<'a> Request<'a> {
    /// The request's number, one of [`crate::opcode`].
    #[inline]
    pub const fn opcode(&self) -> u8 {
        match self {
            Request::Ping => opcode::PING,
            Request::Get { .. } => opcode::GET,
            Request::Put { .. } => opcode::PUT,
            Request::Delete { .. } => opcode::DELETE,
            Request::Increment { .. } => opcode::INCREMENT,
            Request::MultiGet { .. } => opcode::MULTI_GET,
            Request::Invoke { .. } => opcode::INVOKE,
        }
    }

    /// Whether a second execution could be seen, so that exactly-once records are needed. An invocation
    /// counts, since only the server knows whether its function writes.
    #[inline]
    pub const fn is_mutation(&self) -> bool {
        !matches!(self, Request::Ping | Request::Get { .. } | Request::MultiGet { .. })
    }

    /// Length of the encoded body.
    #[inline]
    pub fn body_bytes(&self) -> usize {
        match self {
            Request::Ping => 0,
            Request::Get { key, .. } => GET_HEAD_BYTES + key.len(),
            Request::Put { key, value, condition, .. } => {
                WRITE_HEAD_BYTES + condition.tail_bytes() + key.len() + value.len()
            }
            Request::Delete { key, condition, .. } => WRITE_HEAD_BYTES + condition.tail_bytes() + key.len(),
            Request::Increment { key, .. } => INCREMENT_HEAD_BYTES + key.len(),
            Request::MultiGet { keys, .. } => MULTI_GET_HEAD_BYTES + keys.encoded_bytes(),
            Request::Invoke { key, arguments, .. } => INVOKE_HEAD_BYTES + key.len() + arguments.len(),
        }
    }

    /// Whether the request is within the protocol's limits, so that it may be encoded.
    ///
    /// # Errors
    /// [`Status::KeyTooLarge`], [`Status::ValueTooLarge`], [`Status::ArgumentsTooLarge`], or
    /// [`Status::LimitExceeded`] for too many keys: what a server would answer.
    #[inline]
    pub fn check(&self) -> Result<(), Status> {
        match self {
            Request::Ping => Ok(()),
            Request::Get { key, .. } | Request::Delete { key, .. } | Request::Increment { key, .. } => {
                at_most(key, KEY_BYTES_MAX, Status::KeyTooLarge)
            }
            Request::Put { key, value, .. } => {
                at_most(key, KEY_BYTES_MAX, Status::KeyTooLarge)?;
                at_most(value, VALUE_BYTES_MAX, Status::ValueTooLarge)
            }
            Request::MultiGet { keys, .. } => keys.check(),
            Request::Invoke { key, arguments, .. } => {
                at_most(key, KEY_BYTES_MAX, Status::KeyTooLarge)?;
                at_most(arguments, ARGUMENTS_BYTES_MAX, Status::ArgumentsTooLarge)
            }
        }
    }

    /// Writes the body. Copies key and value or arguments once.
    ///
    /// # Panics
    /// Unless [`Request::check`] passes and `body` has exactly [`Request::body_bytes`].
    #[inline]
    pub fn encode(&self, body: &mut [u8]) {
        match *self {
            Request::Ping => assert!(body.is_empty(), "a ping has no body"),
            Request::Get { table, key } => {
                let (head, rest) = body.split_at_mut(GET_HEAD_BYTES);
                head.copy_from_slice(&table.to_le_bytes());
                rest.copy_from_slice(key);
            }
            Request::Put { table, key, value, condition } => {
                let rest = write_head(body, table, key, condition);
                let (key_out, value_out) = rest.split_at_mut(key.len());
                key_out.copy_from_slice(key);
                value_out.copy_from_slice(value);
            }
            Request::Delete { table, key, condition } => {
                write_head(body, table, key, condition).copy_from_slice(key);
            }
            Request::Increment { table, key, delta } => {
                let (head, rest) = body.split_at_mut(INCREMENT_HEAD_BYTES);
                head[..4].copy_from_slice(&table.to_le_bytes());
                head[4..].copy_from_slice(&delta.to_le_bytes());
                rest.copy_from_slice(key);
            }
            Request::MultiGet { table, keys } => {
                let (head, rest) = body.split_at_mut(MULTI_GET_HEAD_BYTES);
                head[..4].copy_from_slice(&table.to_le_bytes());
                head[4..6].copy_from_slice(&(keys.len() as u16).to_le_bytes());
                head[6..].copy_from_slice(&[0; 2]);
                keys.encode(rest);
            }
            Request::Invoke { extension, version, function, table, key, arguments } => {
                let (head, rest) = body.split_at_mut(INVOKE_HEAD_BYTES);
                head[..4].copy_from_slice(&extension.to_le_bytes());
                head[4..8].copy_from_slice(&version.to_le_bytes());
                head[8..12].copy_from_slice(&function.to_le_bytes());
                head[12..16].copy_from_slice(&table.to_le_bytes());
                head[16..18].copy_from_slice(&key_bytes(key));
                head[18..].copy_from_slice(&[0; 2]);
                let (key_out, arguments_out) = rest.split_at_mut(key.len());
                key_out.copy_from_slice(key);
                arguments_out.copy_from_slice(arguments);
            }
        }
    }

    /// Reads a body. Borrows all of it; costs a few nanoseconds, and one step per key for a multi-get.
    ///
    /// # Errors
    /// The status to answer: [`Status::UnknownOpcode`], [`Status::Malformed`], or the limit exceeded as in
    /// [`Request::check`].
    #[inline]
    pub fn decode(number: u8, body: &'a [u8]) -> Result<Request<'a>, Status> {
        match number {
            opcode::GET => {
                let (table, key) = body.split_first_chunk().ok_or(Status::Malformed)?;
                at_most(key, KEY_BYTES_MAX, Status::KeyTooLarge)?;
                Ok(Request::Get { table: u32::from_le_bytes(*table), key })
            }
            opcode::PUT => {
                let WriteHead { table, condition, key, behind: value } = read_head(body)?;
                at_most(value, VALUE_BYTES_MAX, Status::ValueTooLarge)?;
                Ok(Request::Put { table, key, value, condition })
            }
            opcode::INVOKE => decode_invoke(body),
            opcode::MULTI_GET => decode_multi_get(body),
            opcode::DELETE => {
                let WriteHead { table, condition, key, behind } = read_head(body)?;
                if !behind.is_empty() {
                    return Err(Status::Malformed);
                }
                Ok(Request::Delete { table, key, condition })
            }
            opcode::INCREMENT => decode_increment(body),
            opcode::PING if body.is_empty() => Ok(Request::Ping),
            opcode::PING => Err(Status::Malformed),
            _ => Err(Status::UnknownOpcode),
        }
    }
}

#[inline]
fn decode_invoke(body: &[u8]) -> Result<Request<'_>, Status> {
    let (head, rest) = body.split_first_chunk::<INVOKE_HEAD_BYTES>().ok_or(Status::Malformed)?;
    let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    if head[18] | head[19] != 0 {
        return Err(Status::Malformed);
    }
    let key_bytes = u16::from_le_bytes([head[16], head[17]]) as usize;
    let (key, arguments) = rest.split_at_checked(key_bytes).ok_or(Status::Malformed)?;
    at_most(arguments, ARGUMENTS_BYTES_MAX, Status::ArgumentsTooLarge)?;
    Ok(Request::Invoke {
        extension: word(0),
        version: word(4),
        function: word(8),
        table: word(12),
        key,
        arguments,
    })
}

fn decode_multi_get(body: &[u8]) -> Result<Request<'_>, Status> {
    let (head, rest) = body.split_first_chunk::<MULTI_GET_HEAD_BYTES>().ok_or(Status::Malformed)?;
    if head[6] | head[7] != 0 {
        return Err(Status::Malformed);
    }
    let table = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
    let count = u16::from_le_bytes([head[4], head[5]]) as usize;
    Ok(Request::MultiGet { table, keys: Keys::decode(count, rest)? })
}

fn decode_increment(body: &[u8]) -> Result<Request<'_>, Status> {
    let (table, rest) = body.split_first_chunk().ok_or(Status::Malformed)?;
    let (delta, key) = rest.split_first_chunk().ok_or(Status::Malformed)?;
    at_most(key, KEY_BYTES_MAX, Status::KeyTooLarge)?;
    Ok(Request::Increment { table: u32::from_le_bytes(*table), key, delta: i64::from_le_bytes(*delta) })
}

/// Writes the head that put and delete share; returns the place of the key.
#[inline]
fn write_head<'b>(body: &'b mut [u8], table: u32, key: &[u8], condition: Condition) -> &'b mut [u8] {
    let (head, rest) = body.split_at_mut(WRITE_HEAD_BYTES);
    head[..4].copy_from_slice(&table.to_le_bytes());
    head[4..6].copy_from_slice(&key_bytes(key));
    head[6] = condition.kind();
    head[7] = 0;
    condition.write_tail(rest)
}

/// What put and delete share.
struct WriteHead<'a> {
    table: u32,
    condition: Condition,
    key: &'a [u8],
    behind: &'a [u8],
}

#[inline]
fn read_head(body: &[u8]) -> Result<WriteHead<'_>, Status> {
    let (head, rest) = body.split_first_chunk::<WRITE_HEAD_BYTES>().ok_or(Status::Malformed)?;
    if head[7] != 0 {
        return Err(Status::Malformed);
    }
    let table = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
    let (condition, rest) = Condition::read_tail(head[6], rest)?;
    let key_bytes = u16::from_le_bytes([head[4], head[5]]) as usize;
    let (key, behind) = rest.split_at_checked(key_bytes).ok_or(Status::Malformed)?;
    Ok(WriteHead { table, condition, key, behind })
}

#[inline]
fn key_bytes(key: &[u8]) -> [u8; 2] {
    assert!(key.len() <= KEY_BYTES_MAX, "a key beyond the limit was not checked");
    (key.len() as u16).to_le_bytes()
}

#[inline]
fn at_most(bytes: &[u8], limit: usize, refusal: Status) -> Result<(), Status> {
    if bytes.len() <= limit { Ok(()) } else { Err(refusal) }
}
