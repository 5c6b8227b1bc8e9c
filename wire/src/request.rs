//! The data requests, the same in frames and in streams.
//!
//! [`Request::decode`] (`request/decode.rs`) is the edge: its result is within the limits of [`crate::limits`] and
//! borrows the frame; nothing is copied. The server checks tables, extensions and permissions. [`Request::check`]
//! tells before sending whether a server could accept a request. `docs/formats.md` draws the bodies.

mod commit;
mod decode;
mod range;

pub use commit::{Changes, CommitItem, CommitRange, CommitRead, CommitWrite, Items};
pub use range::KeyRange;
use range::ScanHead;

use crate::condition::Condition;
use crate::keys::Keys;
use crate::limits::{
    ARGUMENTS_BYTES_MAX, CURSOR_BYTES_MAX, ENUMERATE_BYTES_MAX, ENUMERATE_OBJECTS_MAX, KEY_BYTES_MAX,
    SCAN_CURSOR_BYTES_MAX, TTL_MS_MAX, VALUE_BYTES_MAX,
};
use crate::opcode;
use crate::status::Status;

/// A data request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request<'a> {
    /// Gets an empty reply.
    Ping,
    /// Reads an object.
    Get {
        /// The table's id.
        table: u32,
        /// The object's key.
        key: &'a [u8],
    },
    /// Reads an object without waiting, for clients that ask both servers of a migration.
    GetNow {
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
        /// The condition of the write.
        condition: Condition,
    },
    /// Writes an object with a time to live.
    PutFor {
        /// The table's id.
        table: u32,
        /// The object's key.
        key: &'a [u8],
        /// The new value.
        value: &'a [u8],
        /// The condition of the write.
        condition: Condition,
        /// The time to live in milliseconds from its execution on: from 1 to [`TTL_MS_MAX`].
        ttl_ms: u64,
    },
    /// Deletes an object.
    Delete {
        /// The table's id.
        table: u32,
        /// The object's key.
        key: &'a [u8],
        /// The condition of the deletion.
        condition: Condition,
    },
    /// Adds to an object that holds a little-endian `i64`; an absent one counts as 0.
    Increment {
        /// The table's id.
        table: u32,
        /// The object's key.
        key: &'a [u8],
        /// The addend.
        delta: i64,
    },
    /// Adds to an object that holds a little-endian IEEE 754 number of 64 bits; an absent one counts as 0.
    IncrementFloat {
        /// The table's id.
        table: u32,
        /// The object's key.
        key: &'a [u8],
        /// The addend, as its bits.
        delta_bits: u64,
    },
    /// Lists objects of a table, in an order without a meaning for clients.
    Enumerate {
        /// The table's id.
        table: u32,
        /// The cursor of the previous reply; empty for the beginning.
        cursor: &'a [u8],
        /// Whether to omit the values.
        keys_only: bool,
        /// Maximum objects of the reply: from 1 to [`ENUMERATE_OBJECTS_MAX`].
        objects_max: u16,
        /// Bytes of keys and values after which the reply ends, at most [`ENUMERATE_BYTES_MAX`]; it always has one
        /// object.
        bytes_max: u32,
    },
    /// Reads objects of an ordered table in the order of their keys.
    Scan {
        /// The table's id.
        table: u32,
        /// The range and direction of the keys.
        range: KeyRange<'a>,
        /// The cursor of the previous reply; empty for the beginning.
        cursor: &'a [u8],
        /// Whether to omit the values.
        keys_only: bool,
        /// Maximum objects of the reply: from 1 to [`ENUMERATE_OBJECTS_MAX`].
        objects_max: u16,
        /// Bytes of keys and values after which the reply ends, at most [`ENUMERATE_BYTES_MAX`]; it always has one
        /// object.
        bytes_max: u32,
    },
    /// Checks objects of a table against their checksums.
    Verify {
        /// The table's id.
        table: u32,
        /// The cursor of the previous reply; empty for the beginning.
        cursor: &'a [u8],
    },
    /// Reads the tablet map of a table.
    Tablets {
        /// The table's id.
        table: u32,
    },
    /// Reads several objects of one table.
    MultiGet {
        /// The table's id.
        table: u32,
        /// The objects' keys.
        keys: Keys<'a>,
    },
    /// Commits writes as one, if everything that was read is unchanged.
    Commit {
        /// What was read and is to be written.
        changes: Changes<'a>,
    },
    /// Calls a function of an extension.
    Invoke {
        /// The extension's id.
        extension: u32,
        /// The version; 0 for the current one.
        version: u32,
        /// [`crate::function_hash`] of the function's name.
        function: u32,
        /// The table passed to the function.
        table: u32,
        /// The key passed to the function, which routes the call; may be empty.
        key: &'a [u8],
        /// Arguments for the function.
        arguments: &'a [u8],
    },
}

const GET_HEAD_BYTES: usize = 4;
const WRITE_HEAD_BYTES: usize = 8;
const INCREMENT_HEAD_BYTES: usize = 12;
const TTL_BYTES: usize = 8;
const MULTI_GET_HEAD_BYTES: usize = 8;
const ENUMERATE_HEAD_BYTES: usize = 12;
const INVOKE_HEAD_BYTES: usize = 20;

impl<'a> Request<'a> {
    /// Returns the request's number, one of [`crate::opcode`].
    #[inline]
    pub const fn opcode(&self) -> u8 {
        match self {
            Request::Ping => opcode::PING,
            Request::Get { .. } => opcode::GET,
            Request::GetNow { .. } => opcode::GET_NOW,
            Request::Put { .. } => opcode::PUT,
            Request::PutFor { .. } => opcode::PUT_FOR,
            Request::Delete { .. } => opcode::DELETE,
            Request::Increment { .. } => opcode::INCREMENT,
            Request::IncrementFloat { .. } => opcode::INCREMENT_FLOAT,
            Request::Enumerate { .. } => opcode::ENUMERATE,
            Request::Scan { .. } => opcode::SCAN,
            Request::Verify { .. } => opcode::VERIFY,
            Request::Tablets { .. } => opcode::TABLETS,
            Request::MultiGet { .. } => opcode::MULTI_GET,
            Request::Commit { .. } => opcode::COMMIT,
            Request::Invoke { .. } => opcode::INVOKE,
        }
    }

    /// Returns the length of the encoded body.
    #[inline]
    pub fn body_bytes(&self) -> usize {
        match self {
            Request::Ping => 0,
            Request::Get { key, .. } | Request::GetNow { key, .. } => GET_HEAD_BYTES + key.len(),
            Request::Put { key, value, condition, .. } => {
                WRITE_HEAD_BYTES + condition.tail_bytes() + key.len() + value.len()
            }
            Request::PutFor { key, value, condition, .. } => {
                WRITE_HEAD_BYTES + condition.tail_bytes() + TTL_BYTES + key.len() + value.len()
            }
            Request::Delete { key, condition, .. } => WRITE_HEAD_BYTES + condition.tail_bytes() + key.len(),
            Request::Increment { key, .. } | Request::IncrementFloat { key, .. } => {
                INCREMENT_HEAD_BYTES + key.len()
            }
            Request::Enumerate { cursor, .. } => ENUMERATE_HEAD_BYTES + cursor.len(),
            Request::Scan { range, cursor, .. } => 4 + ScanHead::BYTES + range.bytes() + cursor.len(),
            Request::Verify { cursor, .. } => GET_HEAD_BYTES + cursor.len(),
            Request::Tablets { .. } => GET_HEAD_BYTES,
            Request::MultiGet { keys, .. } => MULTI_GET_HEAD_BYTES + keys.encoded_bytes(),
            Request::Commit { changes } => changes.encoded_bytes(),
            Request::Invoke { key, arguments, .. } => INVOKE_HEAD_BYTES + key.len() + arguments.len(),
        }
    }

    /// Checks that the request is within the protocol's limits, so that it can be encoded.
    ///
    /// # Errors
    /// The status that a server would return: [`Status::KeyTooLarge`], [`Status::ValueTooLarge`],
    /// [`Status::ArgumentsTooLarge`], [`Status::LimitExceeded`] for too many keys, [`Status::OutOfRange`] for a time
    /// or a size of a reply, [`Status::CursorInvalid`], [`Status::Malformed`] for a commit of nothing.
    #[inline]
    pub fn check(&self) -> Result<(), Status> {
        match self {
            Request::Ping | Request::Tablets { .. } => Ok(()),
            Request::Get { key, .. }
            | Request::GetNow { key, .. }
            | Request::Delete { key, .. }
            | Request::Increment { key, .. }
            | Request::IncrementFloat { key, .. } => at_most(key, KEY_BYTES_MAX, Status::KeyTooLarge),
            Request::PutFor { key, value, ttl_ms, .. } => {
                at_most(key, KEY_BYTES_MAX, Status::KeyTooLarge)?;
                at_most(value, VALUE_BYTES_MAX, Status::ValueTooLarge)?;
                within(*ttl_ms, TTL_MS_MAX)
            }
            Request::Enumerate { cursor, objects_max, bytes_max, .. } => {
                at_most(cursor, CURSOR_BYTES_MAX, Status::CursorInvalid)?;
                within((*objects_max).into(), ENUMERATE_OBJECTS_MAX as u64)?;
                within((*bytes_max).into(), ENUMERATE_BYTES_MAX as u64)
            }
            Request::Scan { range, cursor, objects_max, bytes_max, .. } => {
                range.check()?;
                at_most(cursor, SCAN_CURSOR_BYTES_MAX, Status::CursorInvalid)?;
                within((*objects_max).into(), ENUMERATE_OBJECTS_MAX as u64)?;
                within((*bytes_max).into(), ENUMERATE_BYTES_MAX as u64)
            }
            Request::Verify { cursor, .. } => at_most(cursor, CURSOR_BYTES_MAX, Status::CursorInvalid),
            Request::Put { key, value, .. } => {
                at_most(key, KEY_BYTES_MAX, Status::KeyTooLarge)?;
                at_most(value, VALUE_BYTES_MAX, Status::ValueTooLarge)
            }
            Request::MultiGet { keys, .. } => keys.check(),
            Request::Commit { changes } => changes.check(),
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
            Request::Tablets { table } => encode_named(body, table, &[]),
            Request::Get { table, key: rest }
            | Request::GetNow { table, key: rest }
            | Request::Verify { table, cursor: rest } => encode_named(body, table, rest),
            Request::Put { table, key, value, condition } => {
                let rest = write_head(body, table, key, condition);
                let (key_out, value_out) = rest.split_at_mut(key.len());
                key_out.copy_from_slice(key);
                value_out.copy_from_slice(value);
            }
            Request::PutFor { table, key, value, condition, ttl_ms } => {
                let rest = write_head(body, table, key, condition);
                let (ttl, rest) = rest.split_at_mut(TTL_BYTES);
                ttl.copy_from_slice(&ttl_ms.to_le_bytes());
                let (key_out, value_out) = rest.split_at_mut(key.len());
                key_out.copy_from_slice(key);
                value_out.copy_from_slice(value);
            }
            Request::Delete { table, key, condition } => {
                write_head(body, table, key, condition).copy_from_slice(key);
            }
            Request::Increment { table, key, delta } => {
                encode_increment(body, table, key, delta.to_le_bytes())
            }
            Request::IncrementFloat { table, key, delta_bits } => {
                encode_increment(body, table, key, delta_bits.to_le_bytes());
            }
            Request::Scan { table, range, cursor, keys_only, objects_max, bytes_max } => {
                let (head, rest) = body.split_at_mut(4);
                head.copy_from_slice(&table.to_le_bytes());
                ScanHead { range, keys_only, objects_max, bytes_max }.encode(rest).copy_from_slice(cursor);
            }
            Request::Enumerate { table, cursor, keys_only, objects_max, bytes_max } => {
                let (head, rest) = body.split_at_mut(ENUMERATE_HEAD_BYTES);
                head[..4].copy_from_slice(&table.to_le_bytes());
                head[4..8].copy_from_slice(&bytes_max.to_le_bytes());
                head[8..10].copy_from_slice(&objects_max.to_le_bytes());
                head[10..].copy_from_slice(&[u8::from(keys_only), 0]);
                rest.copy_from_slice(cursor);
            }
            Request::MultiGet { table, keys } => {
                let (head, rest) = body.split_at_mut(MULTI_GET_HEAD_BYTES);
                head[..4].copy_from_slice(&table.to_le_bytes());
                head[4..6].copy_from_slice(&(keys.len() as u16).to_le_bytes());
                head[6..].copy_from_slice(&[0; 2]);
                keys.encode(rest);
            }
            Request::Commit { changes } => changes.encode(body),
            Request::Invoke { .. } => self.encode_invoke(body),
        }
    }

    #[inline]
    fn encode_invoke(&self, body: &mut [u8]) {
        let Request::Invoke { extension, version, function, table, key, arguments } = *self else {
            unreachable!("the caller has an invocation")
        };
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

/// Writes a body of a table's id and what is behind it.
#[inline]
fn encode_named(body: &mut [u8], table: u32, behind: &[u8]) {
    let (head, rest) = body.split_at_mut(GET_HEAD_BYTES);
    head.copy_from_slice(&table.to_le_bytes());
    rest.copy_from_slice(behind);
}

#[inline]
fn encode_increment(body: &mut [u8], table: u32, key: &[u8], delta: [u8; 8]) {
    let (head, rest) = body.split_at_mut(INCREMENT_HEAD_BYTES);
    head[..4].copy_from_slice(&table.to_le_bytes());
    head[4..].copy_from_slice(&delta);
    rest.copy_from_slice(key);
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

#[inline]
fn key_bytes(key: &[u8]) -> [u8; 2] {
    assert!(key.len() <= KEY_BYTES_MAX, "a key beyond the limit was not checked");
    (key.len() as u16).to_le_bytes()
}

#[inline]
fn at_most(bytes: &[u8], limit: usize, refusal: Status) -> Result<(), Status> {
    if bytes.len() <= limit { Ok(()) } else { Err(refusal) }
}

#[inline]
fn within(number: u64, limit: u64) -> Result<(), Status> {
    if (1..=limit).contains(&number) { Ok(()) } else { Err(Status::OutOfRange) }
}

/// The routing target of a request.
impl Request<'_> {
    /// Returns the table's id, if the request has one.
    #[inline]
    #[must_use]
    pub fn table(&self) -> Option<u32> {
        match self {
            Request::Ping => None,
            Request::Get { table, .. }
            | Request::GetNow { table, .. }
            | Request::Put { table, .. }
            | Request::PutFor { table, .. }
            | Request::Delete { table, .. }
            | Request::Increment { table, .. }
            | Request::IncrementFloat { table, .. }
            | Request::Enumerate { table, .. }
            | Request::Scan { table, .. }
            | Request::Verify { table, .. }
            | Request::Tablets { table }
            | Request::MultiGet { table, .. }
            | Request::Invoke { table, .. } => Some(*table),
            Request::Commit { changes } => Some(changes.first()?.0),
        }
    }

    /// Returns the position of the request's key, or that of its cursor, which may be forged. `position_of` returns the
    /// position of a key in the table: its hash, or in a tagged table another one, [`crate::position`]. `None` for requests
    /// without a key, or with several.
    #[must_use]
    pub fn position(&self, position_of: impl Fn(&[u8]) -> u64) -> Option<u64> {
        match self {
            Request::Get { key, .. }
            | Request::GetNow { key, .. }
            | Request::Put { key, .. }
            | Request::PutFor { key, .. }
            | Request::Delete { key, .. }
            | Request::Increment { key, .. }
            | Request::IncrementFloat { key, .. }
            | Request::Invoke { key, .. } => Some(position_of(key)),
            Request::Commit { changes } => Some(position_of(changes.first()?.1)),
            Request::Enumerate { cursor, .. } | Request::Verify { cursor, .. } => Some(next_position(cursor)),
            Request::Ping | Request::Tablets { .. } | Request::MultiGet { .. } | Request::Scan { .. } => None,
        }
    }
}

/// Returns the position at which an enumeration continues; see "Data requests" in docs/formats.md.
fn next_position(cursor: &[u8]) -> u64 {
    let Some((done, rest)) = cursor.split_first_chunk() else { return 0 };
    let (done, is_all) = (u64::from_le_bytes(*done), rest.starts_with(&[u8::MAX; 8]));
    done.saturating_add(u64::from(is_all))
}
