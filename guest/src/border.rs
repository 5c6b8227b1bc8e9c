//! The border between a module and its host: the functions that a module may import, over what the host offers.
//!
//! Each function takes its arguments as words, checks the ranges that they name ([`linear`]), calls the [`Host`] with
//! native slices, and writes the results. What a native extension reads in place is copied into the *lent* part of
//! the linear memory, which the host alone fills. So a module cannot make its host write outside of the module's own
//! memory, nor read anything of the host's. A range outside of it ends the invocation; everything else that is wrong
//! is an error code, as natively. [`ModuleInvocation`] lays the memory out for an invocation.
//!
//! These functions neither panic nor leave the stack, because frames of the runtime lie below them: an end travels to
//! the module's entry as an error. Long copies are made in steps, between which the invocation may be parked.

mod invocation;
mod lending;
mod lent_part;
mod linear;
mod pages;

use std::mem::MaybeUninit;

use sandstorm::abi::wasm32::slice;
use sandstorm::abi::{
    Code, OK, PENDING, RawCondition, RawEntry, RawListed, RawRange, RawRecord, RawScanned, RawSlice,
};
use sandstorm::{Condition, Error};
use wire::Status;

pub use invocation::{HEAP_BASE_MAX, ModuleInvocation};
use lending::{copy_in_steps, lend, write_record};
pub use lent_part::LentPart;
use linear::LinearMemory;

use crate::cycles;
use crate::limits::GET_MANY_KEYS_MAX;
use crate::running;
use crate::stack::Cause;
use crate::wasm::{Import, Memory, Type, Value};

/// The `kind` of `abandon` for out of memory.
pub const KIND_OUT_OF_MEMORY: u32 = 1;

/// The kinds of host calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallKind {
    /// Reads an object.
    Get,
    /// Reads several objects.
    GetMany,
    /// Reads a range.
    Scan,
    /// Reads a page of a table.
    Enumerate,
    /// Writes an object.
    Put,
    /// Deletes an object.
    Delete,
    /// Adds to a number.
    Increment,
    /// Finds a table.
    Table,
    /// Writes a log line.
    Log,
    /// Asks for the time.
    Now,
}

/// What the host calls of an invocation ask for. It is the context of the run ([`running::context`]).
///
/// The error of a call is its code: that of a [`sandstorm::Error`], or [`PENDING`] if the call is to come again. Lent bytes stay
/// readable until the invocation ends, also while it is parked.
pub trait Host {
    /// Whether host calls have tickets: a word of the module that is zero at first, and that a pending call finds again as it
    /// left it. Any word, if the module is not what the SDK makes.
    const HAS_TICKETS: bool;

    /// Returns whether calls are [recorded](Host::note_call), or [stall](Host::stalls).
    #[inline]
    fn is_observed(&self) -> bool {
        false
    }

    /// Takes note of a call's kind and its duration in cycles.
    fn note_call(&mut self, _kind: CallKind, _cycles: u64) {}

    /// Returns whether this call is pending without being made, for tests.
    fn stalls(&mut self) -> bool {
        false
    }

    /// The part of the linear memory in which calls lend.
    fn lent(&mut self) -> &mut LentPart;

    /// The error of a call for which that part is too small, by this many bytes asked for.
    fn lent_too_much(&mut self, bytes: usize) -> Error;

    /// Reads an object; writes its record, or [the one of an absent object](RawRecord).
    fn get(
        &mut self,
        ticket: &mut u64,
        table: u32,
        key: &[u8],
        found: &mut MaybeUninit<RawRecord>,
    ) -> Result<(), Code>;

    /// Reads objects, and writes a record for each.
    ///
    /// # Safety
    /// The keys are readable, and there is room for as many records, which are written if there is no error.
    unsafe fn get_many(
        &mut self,
        ticket: &mut u64,
        table: u32,
        keys: &[RawSlice],
        found: *mut RawRecord,
    ) -> Result<(), Code>;

    /// Reads objects of a range in order.
    ///
    /// # Safety
    /// The bounds are readable, and there is room for so many entries; as many are written as the result counts.
    unsafe fn scan(
        &mut self,
        ticket: &mut u64,
        table: u32,
        range: &RawRange,
        entries: (*mut RawEntry, usize),
    ) -> Result<RawScanned, Code>;

    /// Reads objects after a cursor.
    ///
    /// # Safety
    /// As for [`Host::scan`].
    unsafe fn enumerate(
        &mut self,
        ticket: &mut u64,
        table: u32,
        cursor: &[u8],
        entries: (*mut RawEntry, usize),
    ) -> Result<RawListed, Code>;

    /// Writes a value with its time to live, or with `value` `None` deletes.
    fn write(
        &mut self,
        ticket: &mut u64,
        table: u32,
        key: &[u8],
        value: Option<(&[u8], u64)>,
        condition: Condition,
    ) -> Result<(), Code>;

    /// Adds to a number; returns the sum.
    fn increment(&mut self, ticket: &mut u64, table: u32, key: &[u8], delta: i64) -> Result<i64, Code>;

    /// Adds to a floating-point number; returns the sum.
    fn increment_float(&mut self, ticket: &mut u64, table: u32, key: &[u8], delta: f64) -> Result<f64, Code>;

    /// Returns the number of a table.
    fn table(&mut self, ticket: &mut u64, name: &[u8]) -> Result<u32, Code>;

    /// Appends a line to the log.
    fn log(&mut self, level: u32, text: &[u8]);

    /// Returns milliseconds since the Unix epoch.
    fn now_ms(&self) -> u64;

    /// Keeps the beginning of a panic's text, which is readable during the call.
    fn keep_last_words(&mut self, text: RawSlice);
}

/// A pointer, a length, or another number of 32 bits.
const I: Type = Type::I32;
const L: Type = Type::I64;

/// Returns the status of an invocation whose function ended with this error; `None` for an error that no host call returns.
#[must_use]
pub const fn status_of(error: Error) -> Option<Status> {
    Some(match error {
        Error::Application(_) => Status::ExtensionError,
        Error::ConditionFailed => Status::ConditionFailed,
        Error::BadArguments => Status::Malformed,
        Error::NotFound => Status::NotFound,
        Error::ReplyTooLarge => Status::ReplyTooLarge,
        Error::KeyTooLarge => Status::KeyTooLarge,
        Error::ValueTooLarge => Status::ValueTooLarge,
        Error::UnknownTable => Status::UnknownTable,
        Error::NotANumber => Status::NotANumber,
        Error::NotOrdered => Status::NotOrdered,
        Error::OutOfRange => Status::OutOfRange,
        Error::CursorInvalid => Status::CursorInvalid,
        Error::NotSerializable => Status::NotSerializable,
        Error::Overflow => Status::Overflow,
        Error::OutOfMemory => Status::OutOfMemory,
        Error::LimitExceeded => Status::LimitExceeded,
        Error::ReadOnly => Status::ReadOnly,
        Error::NotPermitted => Status::NotPermitted,
        Error::Conflict => Status::Conflict,
        Error::NotLocal => Status::NotLocal,
        Error::StackExhausted => Status::ExtensionStackOverflow,
        Error::Unavailable | Error::ServerAway => Status::Unavailable,
        _ => return None,
    })
}

/// Returns all imports of module `splinter`.
#[must_use]
pub const fn imports<H: Host>() -> [Import; 12] {
    [
        Import { name: "get", parameters: &[I, I, I, I, I], result: Some(L), call: get::<H> },
        Import { name: "get_many", parameters: &[I, I, I, I, I], result: Some(L), call: get_many::<H> },
        Import { name: "scan", parameters: &[I, I, I, I, I, I], result: Some(L), call: pages::scan::<H> },
        Import {
            name: "enumerate",
            parameters: &[I, I, I, I, I, I, I],
            result: Some(L),
            call: pages::enumerate::<H>,
        },
        Import { name: "put", parameters: &[I, I, I, I, I, I, I, L, L], result: Some(L), call: put::<H> },
        Import { name: "delete", parameters: &[I, I, I, I, I, L], result: Some(L), call: delete::<H> },
        Import { name: "increment", parameters: &[I, I, I, I, L, I], result: Some(L), call: increment::<H> },
        Import {
            name: "increment_float",
            parameters: &[I, I, I, I, Type::F64, I],
            result: Some(L),
            call: increment_float::<H>,
        },
        Import { name: "table", parameters: &[I, I, I, I], result: Some(L), call: table::<H> },
        Import { name: "log", parameters: &[I, I, I], result: None, call: log::<H> },
        Import { name: "now_ms", parameters: &[], result: Some(L), call: now_ms::<H> },
        Import { name: "abandon", parameters: &[I, I, I], result: None, call: abandon::<H> },
    ]
}

/// Runs `work` on the host of the running invocation, and records its duration if it is observed.
///
/// # Safety
/// Called by an import on behalf of the module that runs on this thread, whose host is an `H`.
#[inline(always)]
unsafe fn with_host<H: Host, R>(
    kind: CallKind,
    work: impl FnOnce(&mut H) -> Result<R, Cause>,
) -> Result<R, Cause> {
    // SAFETY: the context of a running invocation is its host, which nobody else uses while a host call runs.
    let host = unsafe { &mut *running::context().cast::<H>() };
    if !host.is_observed() {
        return work(host);
    }
    let began = cycles::now();
    let result = work(host);
    host.note_call(kind, cycles::now().wrapping_sub(began));
    result
}

/// Like [`with_host`] for calls that return a code, with their ticket at `ticket_at`.
///
/// # Safety
/// As for [`with_host`].
#[inline(always)]
unsafe fn with_code<H: Host>(
    kind: CallKind,
    (memory, ticket_at): (LinearMemory, u32),
    work: impl FnOnce(&mut H, &mut u64) -> Result<Code, Cause>,
) -> Result<Code, Cause> {
    let with_ticket = |host: &mut H| {
        if host.is_observed() && host.stalls() {
            return Ok(PENDING);
        }
        if !H::HAS_TICKETS {
            return work(host, &mut 0);
        }
        let [low, high] = memory.words(ticket_at)?;
        let mut ticket = u64::from(low) | u64::from(high) << 32;
        let code = work(host, &mut ticket)?;
        memory.write(ticket_at, ticket.to_le_bytes())?;
        Ok(code)
    };
    // SAFETY: as the caller promises.
    unsafe { with_host(kind, with_ticket) }
}

/// `get(ticket, table, key, key_bytes, record)`
unsafe fn get<H: Host>(memory: &Memory, values: &mut [Value]) -> Result<(), Cause> {
    let [ticket_at, table, key, key_bytes, record] = words(values);
    let memory = LinearMemory::of(memory);
    let mut rest = None;
    let read = |host: &mut H, ticket: &mut u64| {
        // SAFETY: used before anything is written.
        let key = unsafe { memory.slice(key, key_bytes) }?;
        let mut found = MaybeUninit::uninit();
        let answer = host.get(ticket, table, key, &mut found);
        if let Err(code) = answer {
            return Ok(code);
        }
        // SAFETY: a successful read has written it.
        let found: RawRecord = unsafe { found.assume_init() };
        match lend(host, found.value.bytes) {
            Ok(lent) => {
                write_record(memory, record, &found, lent)?;
                // SAFETY: the value stays readable.
                rest = unsafe { lending::copy(memory, found.value, lent) }?;
                Ok(OK)
            }
            Err(error) => Ok(error.code()),
        }
    };
    // SAFETY: an import of the module that runs.
    let code = unsafe { with_code(CallKind::Get, (memory, ticket_at), read) }?;
    if let Some((value, lent)) = rest {
        // SAFETY: as above, also while the invocation is parked.
        unsafe { copy_in_steps(memory, lent, [value].into_iter()) }?;
    }
    values[0].set_u64(code);
    Ok(())
}

/// `get_many(ticket, table, keys, count, records)`
unsafe fn get_many<H: Host>(memory: &Memory, values: &mut [Value]) -> Result<(), Cause> {
    let [ticket_at, table, keys_at, count, records_at] = words(values);
    let memory = LinearMemory::of(memory);
    let count = count as usize;
    let mut found = [const { MaybeUninit::<RawRecord>::uninit() }; GET_MANY_KEYS_MAX];
    let mut start = 0;
    let read = |host: &mut H, ticket: &mut u64| {
        if count > GET_MANY_KEYS_MAX {
            return Ok(Error::LimitExceeded.code());
        }
        let mut keys = [RawSlice::of(&[]); GET_MANY_KEYS_MAX];
        memory.address(keys_at, count * slice::BYTES)?;
        for (index, key) in keys[..count].iter_mut().enumerate() {
            *key = memory.raw_slice(keys_at + (index * slice::BYTES) as u32)?;
        }
        // SAFETY: the keys lie within the memory, and there is a record for each.
        let answer = unsafe { host.get_many(ticket, table, &keys[..count], found.as_mut_ptr().cast()) };
        if let Err(code) = answer {
            return Ok(code);
        }
        // SAFETY: a successful call has written a record for each key.
        let found = unsafe { lending::records(&found, count) };
        match lend(host, lending::lent_bytes(lending::values(found))) {
            Ok(lent) => {
                start = lent;
                lending::write_records(memory, records_at, found, lent)?;
                Ok(OK)
            }
            Err(error) => Ok(error.code()),
        }
    };
    // SAFETY: an import of the module that runs.
    let code = unsafe { with_code(CallKind::GetMany, (memory, ticket_at), read) }?;
    if code == OK {
        // SAFETY: as above.
        let found = unsafe { lending::records(&found, count) };
        // SAFETY: the values stay readable, also while the invocation is parked.
        unsafe { copy_in_steps(memory, start, lending::values(found)) }?;
    }
    values[0].set_u64(code);
    Ok(())
}

/// `put(ticket, table, key, key_bytes, value, value_bytes, condition_kind, condition_version, ttl_ms)`
unsafe fn put<H: Host>(memory: &Memory, values: &mut [Value]) -> Result<(), Cause> {
    let [ticket_at, table, key, key_bytes, value, value_bytes, kind] = words(values);
    let (version, ttl_ms) = (values[7].as_u64(), values[8].as_u64());
    let memory = LinearMemory::of(memory);
    let write = |host: &mut H, ticket: &mut u64| {
        // SAFETY: used before anything is written.
        let (key, value) = unsafe { (memory.slice(key, key_bytes)?, memory.slice(value, value_bytes)?) };
        let Some(condition) = Condition::from_raw(RawCondition { kind, version }) else {
            return Ok(Error::BadArguments.code());
        };
        let answer = host.write(ticket, table, key, Some((value, ttl_ms)), condition);
        Ok(answer.err().unwrap_or(OK))
    };
    // SAFETY: an import of the module that runs.
    let code = unsafe { with_code(CallKind::Put, (memory, ticket_at), write) }?;
    values[0].set_u64(code);
    Ok(())
}

/// `delete(ticket, table, key, key_bytes, condition_kind, condition_version)`
unsafe fn delete<H: Host>(memory: &Memory, values: &mut [Value]) -> Result<(), Cause> {
    let [ticket_at, table, key, key_bytes, kind] = words(values);
    let version = values[5].as_u64();
    let memory = LinearMemory::of(memory);
    let write = |host: &mut H, ticket: &mut u64| {
        // SAFETY: used before anything is written.
        let key = unsafe { memory.slice(key, key_bytes) }?;
        let Some(condition) = Condition::from_raw(RawCondition { kind, version }) else {
            return Ok(Error::BadArguments.code());
        };
        let answer = host.write(ticket, table, key, None, condition);
        Ok(answer.err().unwrap_or(OK))
    };
    // SAFETY: an import of the module that runs.
    let code = unsafe { with_code(CallKind::Delete, (memory, ticket_at), write) }?;
    values[0].set_u64(code);
    Ok(())
}

/// `increment(ticket, table, key, key_bytes, delta, value)`
unsafe fn increment<H: Host>(memory: &Memory, values: &mut [Value]) -> Result<(), Cause> {
    let delta = values[4].as_u64().cast_signed();
    let sum = |host: &mut H, ticket: &mut u64, table, key: &[u8]| {
        host.increment(ticket, table, key, delta).map(i64::to_le_bytes)
    };
    // SAFETY: an import of the module that runs.
    unsafe { add(memory, values, sum) }
}

/// `increment_float(ticket, table, key, key_bytes, delta, value)`
unsafe fn increment_float<H: Host>(memory: &Memory, values: &mut [Value]) -> Result<(), Cause> {
    let delta = values[4].as_f64();
    let sum = |host: &mut H, ticket: &mut u64, table, key: &[u8]| {
        host.increment_float(ticket, table, key, delta).map(f64::to_le_bytes)
    };
    // SAFETY: an import of the module that runs.
    unsafe { add(memory, values, sum) }
}

/// # Safety
/// As for [`with_host`].
unsafe fn add<H: Host>(
    memory: &Memory,
    values: &mut [Value],
    sum: impl FnOnce(&mut H, &mut u64, u32, &[u8]) -> Result<[u8; 8], Code>,
) -> Result<(), Cause> {
    let [ticket_at, table, key, key_bytes] = words(values);
    let place = values[5].as_u32();
    let memory = LinearMemory::of(memory);
    let write = |host: &mut H, ticket: &mut u64| {
        // SAFETY: used before anything is written.
        let key = unsafe { memory.slice(key, key_bytes) }?;
        match sum(host, ticket, table, key) {
            Ok(sum) => memory.write(place, sum).map(|()| OK),
            Err(code) => Ok(code),
        }
    };
    // SAFETY: as the caller promises.
    let code = unsafe { with_code(CallKind::Increment, (memory, ticket_at), write) }?;
    values[0].set_u64(code);
    Ok(())
}

/// `table(ticket, name, name_bytes, id)`
unsafe fn table<H: Host>(memory: &Memory, values: &mut [Value]) -> Result<(), Cause> {
    let [ticket_at, name, name_bytes, id] = words(values);
    let memory = LinearMemory::of(memory);
    let find = |host: &mut H, ticket: &mut u64| {
        // SAFETY: used before anything is written.
        let name = unsafe { memory.slice(name, name_bytes) }?;
        match host.table(ticket, name) {
            Ok(number) => memory.write(id, number.to_le_bytes()).map(|()| OK),
            Err(code) => Ok(code),
        }
    };
    // SAFETY: an import of the module that runs.
    let code: Code = unsafe { with_code(CallKind::Table, (memory, ticket_at), find) }?;
    values[0].set_u64(code);
    Ok(())
}

/// `log(level, text, text_bytes)`
unsafe fn log<H: Host>(memory: &Memory, values: &mut [Value]) -> Result<(), Cause> {
    let [level, text, text_bytes] = words(values);
    let memory = LinearMemory::of(memory);
    let write = |host: &mut H| {
        // SAFETY: used before anything is written.
        host.log(level, unsafe { memory.slice(text, text_bytes) }?);
        Ok(())
    };
    // SAFETY: an import of the module that runs.
    unsafe { with_host(CallKind::Log, write) }
}

/// `now_ms()`
unsafe fn now_ms<H: Host>(_: &Memory, values: &mut [Value]) -> Result<(), Cause> {
    // SAFETY: an import of the module that runs.
    let now_ms = unsafe { with_host(CallKind::Now, |host: &mut H| Ok(host.now_ms())) }?;
    values[0].set_u64(now_ms);
    Ok(())
}

/// `abandon(kind, text, text_bytes)`: ends the invocation with the text of a panic.
unsafe fn abandon<H: Host>(memory: &Memory, values: &mut [Value]) -> Result<(), Cause> {
    let [kind, text, text_bytes] = words(values);
    let memory = LinearMemory::of(memory);
    // SAFETY: used before anything is written.
    let text = unsafe { memory.slice(text, text_bytes) }?;
    // SAFETY: as in `with_host`.
    unsafe { &mut *running::context().cast::<H>() }.keep_last_words(RawSlice::of(text));
    Err(if kind == KIND_OUT_OF_MEMORY { Cause::OutOfMemory } else { Cause::Panic })
}

/// Returns the first arguments as words.
#[inline(always)]
fn words<const COUNT: usize>(values: &[Value]) -> [u32; COUNT] {
    std::array::from_fn(|index| values[index].as_u32())
}
