//! Decodes bytes into a [`Request`]: bytes from outside become values that are valid by construction.
//!
//! Every length is checked against the available bytes and against the limits; padding must be zero. Nothing is
//! copied and nothing panics: an invalid request becomes the status that the server returns.

use super::commit::Changes;
use super::range::ScanHead;
use super::{
    ENUMERATE_HEAD_BYTES, INVOKE_HEAD_BYTES, MULTI_GET_HEAD_BYTES, Request, WRITE_HEAD_BYTES, at_most, within,
};
use crate::condition::Condition;
use crate::keys::Keys;
use crate::limits::{ARGUMENTS_BYTES_MAX, CURSOR_BYTES_MAX, KEY_BYTES_MAX, TTL_MS_MAX, VALUE_BYTES_MAX};
use crate::opcode;
use crate::status::Status;

impl<'a> Request<'a> {
    /// Decodes a body. Borrows all of it; costs a few nanoseconds, and one step per key for a multi-get, or item for a commit.
    ///
    /// # Errors
    /// The status to return: [`Status::UnknownOpcode`], [`Status::Malformed`], or the limit exceeded as in
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
                let (WriteHead { table, condition, .. }, key, value) = read_write(body)?;
                at_most(value, VALUE_BYTES_MAX, Status::ValueTooLarge)?;
                Ok(Request::Put { table, key, value, condition })
            }
            opcode::INVOKE => decode_invoke(body),
            opcode::MULTI_GET => decode_multi_get(body),
            opcode::COMMIT => Ok(Request::Commit { changes: Changes::decode(body)? }),
            opcode::DELETE => {
                let (WriteHead { table, condition, .. }, key, behind) = read_write(body)?;
                if !behind.is_empty() {
                    return Err(Status::Malformed);
                }
                Ok(Request::Delete { table, key, condition })
            }
            opcode::INCREMENT => {
                let (table, delta, key) = read_increment(body)?;
                Ok(Request::Increment { table, key, delta: i64::from_le_bytes(delta) })
            }
            opcode::INCREMENT_FLOAT => {
                let (table, delta, key) = read_increment(body)?;
                Ok(Request::IncrementFloat { table, key, delta_bits: u64::from_le_bytes(delta) })
            }
            opcode::PUT_FOR => decode_put_for(body),
            opcode::ENUMERATE => decode_enumerate(body),
            opcode::SCAN => decode_scan(body),
            opcode::VERIFY => {
                let (table, cursor) = body.split_first_chunk().ok_or(Status::Malformed)?;
                at_most(cursor, CURSOR_BYTES_MAX, Status::CursorInvalid)?;
                Ok(Request::Verify { table: u32::from_le_bytes(*table), cursor })
            }
            opcode::TABLETS => {
                let table = body.try_into().map_err(|_| Status::Malformed)?;
                Ok(Request::Tablets { table: u32::from_le_bytes(table) })
            }
            opcode::GET_NOW => {
                let (table, key) = body.split_first_chunk().ok_or(Status::Malformed)?;
                at_most(key, KEY_BYTES_MAX, Status::KeyTooLarge)?;
                Ok(Request::GetNow { table: u32::from_le_bytes(*table), key })
            }
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

fn decode_put_for(body: &[u8]) -> Result<Request<'_>, Status> {
    let (head, rest) = split_write_head(body)?;
    let (ttl_ms, rest) = rest.split_first_chunk().ok_or(Status::Malformed)?;
    let (key, value) = rest.split_at_checked(head.key_bytes).ok_or(Status::Malformed)?;
    let (ttl_ms, condition) = (u64::from_le_bytes(*ttl_ms), head.condition);
    at_most(value, VALUE_BYTES_MAX, Status::ValueTooLarge)?;
    within(ttl_ms, TTL_MS_MAX)?;
    Ok(Request::PutFor { table: head.table, key, value, condition, ttl_ms })
}

fn decode_enumerate(body: &[u8]) -> Result<Request<'_>, Status> {
    let (head, cursor) = body.split_first_chunk::<ENUMERATE_HEAD_BYTES>().ok_or(Status::Malformed)?;
    let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    if head[10] > 1 || head[11] != 0 {
        return Err(Status::Malformed);
    }
    let (objects_max, keys_only) = (u16::from_le_bytes([head[8], head[9]]), head[10] == 1);
    let request = Request::Enumerate { table: word(0), cursor, keys_only, objects_max, bytes_max: word(4) };
    request.check()?;
    Ok(request)
}

fn decode_scan(body: &[u8]) -> Result<Request<'_>, Status> {
    let (table, rest) = body.split_first_chunk().ok_or(Status::Malformed)?;
    let (ScanHead { range, keys_only, objects_max, bytes_max }, cursor) = ScanHead::decode(rest)?;
    let table = u32::from_le_bytes(*table);
    let request = Request::Scan { table, range, cursor, keys_only, objects_max, bytes_max };
    request.check()?;
    Ok(request)
}

/// Reads the table, the addend and the key of an increment.
#[inline]
fn read_increment(body: &[u8]) -> Result<(u32, [u8; 8], &[u8]), Status> {
    let (table, rest) = body.split_first_chunk().ok_or(Status::Malformed)?;
    let (delta, key) = rest.split_first_chunk().ok_or(Status::Malformed)?;
    at_most(key, KEY_BYTES_MAX, Status::KeyTooLarge)?;
    Ok((u32::from_le_bytes(*table), *delta, key))
}

/// The fields before the key of a write.
struct WriteHead {
    table: u32,
    condition: Condition,
    key_bytes: usize,
}

#[inline]
fn split_write_head(body: &[u8]) -> Result<(WriteHead, &[u8]), Status> {
    let (head, rest) = body.split_first_chunk::<WRITE_HEAD_BYTES>().ok_or(Status::Malformed)?;
    if head[7] != 0 {
        return Err(Status::Malformed);
    }
    let table = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
    let (condition, rest) = Condition::read_tail(head[6], rest)?;
    let key_bytes = u16::from_le_bytes([head[4], head[5]]) as usize;
    Ok((WriteHead { table, condition, key_bytes }, rest))
}

/// Splits a write into the fields before the key, the key, and the rest.
#[inline]
fn read_write(body: &[u8]) -> Result<(WriteHead, &[u8], &[u8]), Status> {
    let (head, rest) = split_write_head(body)?;
    let (key, behind) = rest.split_at_checked(head.key_bytes).ok_or(Status::Malformed)?;
    Ok((head, key, behind))
}
