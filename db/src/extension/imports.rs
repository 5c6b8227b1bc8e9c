//! The host calls of a module: the functions that it may import, over the same [`Access`] as the native ones.
//!
//! Each function takes its arguments as words, checks the ranges that they name ([`super::linear`]), calls the access
//! with native slices, and writes the results. What a native extension reads in place is copied into the *lent* part of
//! the linear memory, which the host alone fills. So a module cannot make the server write outside of the module's own
//! memory, nor read anything of the server's. A range outside of it ends the invocation; everything else that is wrong
//! is an error code, as natively.
//!
//! These functions neither panic nor leave the stack, because frames of the runtime lie below them: an end travels to
//! the module's entry as an error. Long copies are made in steps, between which the invocation may be parked.

mod lending;
mod pages;

use std::mem::MaybeUninit;

use guest::cycles;
use guest::running;
use guest::stack::Cause;
use guest::wasm::{Import, Memory, Type, Value};
use sandstorm::Error;
use sandstorm::abi::wasm32::slice;
use sandstorm::abi::{Code, OK, PENDING, RawCondition, RawRecord, RawSlice};

use super::access::Access;
use super::host::{KIND_OUT_OF_MEMORY, condition_of};
use super::linear::LinearMemory;
use super::trace::CallKind;
use crate::limits::GET_MANY_KEYS_MAX;
use lending::{copy_in_steps, lend, write_record};

/// A pointer, a length, or another number of 32 bits.
const I: Type = Type::I32;
const L: Type = Type::I64;

/// All imports of module `splinter`.
pub(super) static IMPORTS: &[Import] = &[
    Import { name: "get", parameters: &[I, I, I, I, I], result: Some(L), call: get },
    Import { name: "get_many", parameters: &[I, I, I, I, I], result: Some(L), call: get_many },
    Import { name: "scan", parameters: &[I, I, I, I, I, I], result: Some(L), call: pages::scan },
    Import { name: "enumerate", parameters: &[I, I, I, I, I, I, I], result: Some(L), call: pages::enumerate },
    Import { name: "put", parameters: &[I, I, I, I, I, I, I, L, L], result: Some(L), call: put },
    Import { name: "delete", parameters: &[I, I, I, I, I, L], result: Some(L), call: delete },
    Import { name: "increment", parameters: &[I, I, I, I, L, I], result: Some(L), call: increment },
    Import {
        name: "increment_float",
        parameters: &[I, I, I, I, Type::F64, I],
        result: Some(L),
        call: increment_float,
    },
    Import { name: "table", parameters: &[I, I, I, I], result: Some(L), call: table },
    Import { name: "log", parameters: &[I, I, I], result: None, call: log },
    Import { name: "now_ms", parameters: &[], result: Some(L), call: now_ms },
    Import { name: "abandon", parameters: &[I, I, I], result: None, call: abandon },
];

/// Runs `work` on the access of the running invocation, and records its duration if it is traced.
///
/// # Safety
/// Called by an import on behalf of the module that runs on this thread.
#[inline(always)]
unsafe fn with_access<R>(
    kind: CallKind,
    work: impl FnOnce(&mut Access) -> Result<R, Cause>,
) -> Result<R, Cause> {
    // SAFETY: the context of a running invocation is its access, which nobody else uses while a host call runs.
    let access = unsafe { &mut *running::context().cast::<Access>() };
    if !access.is_observed() {
        return work(access);
    }
    let began = cycles::now();
    let result = work(access);
    access.note_call(kind, cycles::now().wrapping_sub(began));
    result
}

/// Like [`with_access`] for calls that return a code.
///
/// # Safety
/// As for [`with_access`].
#[inline(always)]
unsafe fn with_code(
    kind: CallKind,
    work: impl FnOnce(&mut Access) -> Result<Code, Cause>,
) -> Result<Code, Cause> {
    // SAFETY: as the caller promises.
    unsafe {
        with_access(
            kind,
            |access| if access.is_observed() && access.stalls() { Ok(PENDING) } else { work(access) },
        )
    }
}

/// `get(ticket, table, key, key_bytes, record)`
unsafe fn get(memory: &Memory, values: &mut [Value]) -> Result<(), Cause> {
    let [_, table, key, key_bytes, record] = words(values);
    let memory = LinearMemory::of(memory);
    let mut rest = None;
    let read = |access: &mut Access| {
        // SAFETY: used before anything is written.
        let key = unsafe { memory.slice(key, key_bytes) }?;
        let mut found = MaybeUninit::uninit();
        let answer = access.get(table, key, &mut found);
        if let Err(error) = answer {
            return Ok(access.code_of_error(error));
        }
        // SAFETY: a successful read has written it.
        let found: RawRecord = unsafe { found.assume_init() };
        match lend(access, found.value.bytes) {
            Ok(lent) => {
                write_record(memory, record, &found, lent)?;
                // SAFETY: the value lies where the store or the invocation keeps it.
                rest = unsafe { lending::copy(memory, found.value, lent) }?;
                Ok(OK)
            }
            Err(error) => Ok(error.code()),
        }
    };
    // SAFETY: an import of the module that runs.
    let code = unsafe { with_code(CallKind::Get, read) }?;
    if let Some((value, lent)) = rest {
        // SAFETY: as above; the pin keeps the value also while the invocation is parked.
        unsafe { copy_in_steps(memory, lent, [value].into_iter()) }?;
    }
    values[0].set_u64(code);
    Ok(())
}

/// `get_many(ticket, table, keys, count, records)`
unsafe fn get_many(memory: &Memory, values: &mut [Value]) -> Result<(), Cause> {
    let [_, table, keys_at, count, records_at] = words(values);
    let memory = LinearMemory::of(memory);
    let count = count as usize;
    let mut found = [const { MaybeUninit::<RawRecord>::uninit() }; GET_MANY_KEYS_MAX];
    let mut start = 0;
    let read = |access: &mut Access| {
        if count > GET_MANY_KEYS_MAX {
            return Ok(Error::LimitExceeded.code());
        }
        let mut keys = [RawSlice::of(&[]); GET_MANY_KEYS_MAX];
        memory.address(keys_at, count * slice::BYTES)?;
        for (index, key) in keys[..count].iter_mut().enumerate() {
            *key = memory.raw_slice(keys_at + (index * slice::BYTES) as u32)?;
        }
        // SAFETY: the keys lie within the memory, and there is a record for each.
        let answer = unsafe { access.get_many(table, &keys[..count], found.as_mut_ptr().cast()) };
        if let Err(error) = answer {
            return Ok(access.code_of_error(error));
        }
        // SAFETY: a successful call has written a record for each key.
        let found = unsafe { lending::records(&found, count) };
        match lend(access, lending::lent_bytes(lending::values(found))) {
            Ok(lent) => {
                start = lent;
                lending::write_records(memory, records_at, found, lent)?;
                Ok(OK)
            }
            Err(error) => Ok(error.code()),
        }
    };
    // SAFETY: an import of the module that runs.
    let code = unsafe { with_code(CallKind::GetMany, read) }?;
    if code == OK {
        // SAFETY: as above.
        let found = unsafe { lending::records(&found, count) };
        // SAFETY: the values lie where the store or the invocation keeps them; the pin keeps them also while it is
        // parked.
        unsafe { copy_in_steps(memory, start, lending::values(found)) }?;
    }
    values[0].set_u64(code);
    Ok(())
}

/// `put(ticket, table, key, key_bytes, value, value_bytes, condition_kind, condition_version, ttl_ms)`
unsafe fn put(memory: &Memory, values: &mut [Value]) -> Result<(), Cause> {
    let [_, table, key, key_bytes, value, value_bytes, kind] = words(values);
    let (version, ttl_ms) = (values[7].as_u64(), values[8].as_u64());
    let memory = LinearMemory::of(memory);
    let write = |access: &mut Access| {
        // SAFETY: used before anything is written.
        let (key, value) = unsafe { (memory.slice(key, key_bytes)?, memory.slice(value, value_bytes)?) };
        let Some(condition) = condition_of(RawCondition { kind, version }) else {
            return Ok(Error::BadArguments.code());
        };
        let answer = access.write(table, key, Some((value, ttl_ms)), condition);
        Ok(access.code_of(answer))
    };
    // SAFETY: an import of the module that runs.
    let code = unsafe { with_code(CallKind::Put, write) }?;
    values[0].set_u64(code);
    Ok(())
}

/// `delete(ticket, table, key, key_bytes, condition_kind, condition_version)`
unsafe fn delete(memory: &Memory, values: &mut [Value]) -> Result<(), Cause> {
    let [_, table, key, key_bytes, kind] = words(values);
    let version = values[5].as_u64();
    let memory = LinearMemory::of(memory);
    let write = |access: &mut Access| {
        // SAFETY: used before anything is written.
        let key = unsafe { memory.slice(key, key_bytes) }?;
        let Some(condition) = condition_of(RawCondition { kind, version }) else {
            return Ok(Error::BadArguments.code());
        };
        let answer = access.write(table, key, None, condition);
        Ok(access.code_of(answer))
    };
    // SAFETY: an import of the module that runs.
    let code = unsafe { with_code(CallKind::Delete, write) }?;
    values[0].set_u64(code);
    Ok(())
}

/// `increment(ticket, table, key, key_bytes, delta, value)`
unsafe fn increment(memory: &Memory, values: &mut [Value]) -> Result<(), Cause> {
    let delta = values[4].as_u64().cast_signed();
    let sum =
        |access: &mut Access, table, key: &[u8]| access.increment(table, key, delta).map(i64::to_le_bytes);
    // SAFETY: an import of the module that runs.
    unsafe { add(memory, values, sum) }
}

/// `increment_float(ticket, table, key, key_bytes, delta, value)`
unsafe fn increment_float(memory: &Memory, values: &mut [Value]) -> Result<(), Cause> {
    let delta = values[4].as_f64();
    let sum = |access: &mut Access, table, key: &[u8]| {
        access.increment_float(table, key, delta).map(f64::to_le_bytes)
    };
    // SAFETY: an import of the module that runs.
    unsafe { add(memory, values, sum) }
}

/// # Safety
/// As for [`with_access`].
unsafe fn add(
    memory: &Memory,
    values: &mut [Value],
    sum: impl FnOnce(&mut Access, u32, &[u8]) -> Result<[u8; 8], Error>,
) -> Result<(), Cause> {
    let [_, table, key, key_bytes] = words(values);
    let place = values[5].as_u32();
    let memory = LinearMemory::of(memory);
    let write = |access: &mut Access| {
        // SAFETY: used before anything is written.
        let key = unsafe { memory.slice(key, key_bytes) }?;
        match sum(access, table, key) {
            Ok(sum) => memory.write(place, sum).map(|()| OK),
            Err(error) => Ok(access.code_of_error(error)),
        }
    };
    // SAFETY: as the caller promises.
    let code = unsafe { with_code(CallKind::Increment, write) }?;
    values[0].set_u64(code);
    Ok(())
}

/// `table(ticket, name, name_bytes, id)`
unsafe fn table(memory: &Memory, values: &mut [Value]) -> Result<(), Cause> {
    let [_, name, name_bytes, id] = words(values);
    let memory = LinearMemory::of(memory);
    let find = |access: &mut Access| {
        // SAFETY: used before anything is written.
        let name = unsafe { memory.slice(name, name_bytes) }?;
        match access.table_named(name) {
            Ok(number) => memory.write(id, number.to_le_bytes()).map(|()| OK),
            Err(error) => Ok(error.code()),
        }
    };
    // SAFETY: an import of the module that runs.
    let code: Code = unsafe { with_code(CallKind::Table, find) }?;
    values[0].set_u64(code);
    Ok(())
}

/// `log(level, text, text_bytes)`
unsafe fn log(memory: &Memory, values: &mut [Value]) -> Result<(), Cause> {
    let [level, text, text_bytes] = words(values);
    let memory = LinearMemory::of(memory);
    let write = |access: &mut Access| {
        // SAFETY: used before anything is written.
        access.log(level, unsafe { memory.slice(text, text_bytes) }?);
        Ok(())
    };
    // SAFETY: an import of the module that runs.
    unsafe { with_access(CallKind::Log, write) }
}

/// `now_ms()`
unsafe fn now_ms(_: &Memory, values: &mut [Value]) -> Result<(), Cause> {
    // SAFETY: an import of the module that runs.
    let now_ms = unsafe { with_access(CallKind::Now, |access| Ok(access.now_ms())) }?;
    values[0].set_u64(now_ms);
    Ok(())
}

/// `abandon(kind, text, text_bytes)`: ends the invocation with the text of a panic.
unsafe fn abandon(memory: &Memory, values: &mut [Value]) -> Result<(), Cause> {
    let [kind, text, text_bytes] = words(values);
    let memory = LinearMemory::of(memory);
    // SAFETY: used before anything is written.
    let text = unsafe { memory.slice(text, text_bytes) }?;
    // SAFETY: as in `with_access`.
    unsafe { &mut *running::context().cast::<Access>() }.keep_last_words(RawSlice::of(text));
    Err(if kind == KIND_OUT_OF_MEMORY { Cause::OutOfMemory } else { Cause::Panic })
}

/// Returns the first arguments as words.
#[inline(always)]
fn words<const COUNT: usize>(values: &[Value]) -> [u32; COUNT] {
    std::array::from_fn(|index| values[index].as_u32())
}

#[cfg(test)]
mod tests {
    use guest::wasm::{Import, Type};
    use sandstorm::abi::wasm32::{self, Value};

    use super::IMPORTS;

    fn value(number: Type) -> Value {
        match number {
            Type::I32 => Value::I32,
            Type::I64 => Value::I64,
            Type::F64 => Value::F64,
        }
    }

    #[test]
    fn the_host_has_the_imports_that_the_builder_lets_pass() {
        assert_eq!(Import::MODULE, wasm32::IMPORT_MODULE);
        assert_eq!(IMPORTS.len(), wasm32::IMPORTS.len());
        for (import, passed) in IMPORTS.iter().zip(wasm32::IMPORTS) {
            let parameters: Vec<_> = import.parameters.iter().copied().map(value).collect();
            assert_eq!((import.name, &*parameters), (passed.name, passed.parameters));
            assert_eq!(import.result.map(value), passed.result, "{}", import.name);
        }
    }
}
