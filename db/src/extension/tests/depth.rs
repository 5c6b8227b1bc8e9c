//! Tests that host calls, and the imports of a module, use at most [`HOST_CALL_STACK_BYTES`] of the extension's stack.

use std::mem;
use std::ptr;

use guest::border::LentPart;
use guest::limits::{HOST_CALL_STACK_BYTES, MODULE_MEMORY_BYTES};
use guest::running;
use guest::wasm::{Import, Memory, Value};
use sandstorm::abi::wasm32::slice;
use sandstorm::abi::{Code, OK};
use sandstorm::{Condition, Error, Level};
use wire::Status;

use super::world::{ORDERED, TABLE, World, function};
use crate::extension::CallMode;
use crate::extension::access::Access;
use crate::extension::native::IMPORTS;
use crate::limits::{ENUMERATION_ENTRIES_MAX, GET_MANY_KEYS_MAX, SCAN_ENTRIES_MAX};

const PAINT: u64 = 0x5a5a_a5a5_5a5a_a5a5;
const OWN_FRAMES_BYTES: usize = 4 << 10;

/// The words from the bottom of the stack to well below the caller's frames.
fn free_words() -> (*mut u64, usize) {
    let here = 0_u8;
    let bottom = running::with(|running| running.bounds().0);
    let bytes = (&raw const here) as usize - bottom - OWN_FRAMES_BYTES;
    (bottom as *mut u64, bytes / 8)
}

fn paint() {
    let (words, count) = free_words();
    for index in 0..count {
        // SAFETY: the free part of the stack that this very function runs on, far below its frame.
        unsafe { words.add(index).write_volatile(PAINT) };
    }
}

/// Bytes of the painted part that were used since.
fn used_bytes() -> usize {
    let (words, count) = free_words();
    // SAFETY: as in `paint`.
    let untouched =
        (0..count).take_while(|index| unsafe { words.add(*index).read_volatile() } == PAINT).count();
    (count - untouched) * 8
}

function!(calls_everything, |db, args, reply| {
    paint();
    let (table, key, value) = (args.table(), args.key(), args.bytes());
    let keys = [key; 64];
    let mut records = [None; 64];
    db.get_many(table, &keys, &mut records).await?;
    db.get(table, key).await?;
    for number in 0..100_u64 {
        db.put_if(table, &number.to_le_bytes(), &value[..100], Condition::Absent).await?;
    }
    db.put(table, key, value).await?;
    db.delete_if(table, key, Condition::Present).await?;
    db.increment(table, b"number", 1).await?;
    db.table("second").await?;
    db.log(Level::Error, format_args!("{:?}", ptr::from_ref(value)));
    db.now_ms();
    reply.u64(used_bytes() as u64)
});

#[test]
fn host_calls_stay_within_their_part_of_the_stack() {
    let mut world = World::new();
    world.put(TABLE, b"key", b"value");
    let extension = World::extension(calls_everything, CallMode::Write);
    for _ in 0..3 {
        let (status, body) = world.call(&extension, b"key", &vec![1; 1 << 20]);
        assert_eq!(status, Status::Ok);
        let used = u64::from_le_bytes(body.try_into().expect("a number")) as usize;
        println!("{used} bytes beyond {OWN_FRAMES_BYTES}");
        assert!(used + OWN_FRAMES_BYTES < HOST_CALL_STACK_BYTES, "{used}");
        world.call_once(clean, CallMode::Write, b"");
    }
}

function!(clean, |db, args, reply| {
    for number in 0..100_u64 {
        db.delete(args.table(), &number.to_le_bytes()).await?;
    }
    db.put(args.table(), b"key", b"value").await
});

/// Offsets in the linear memory of a module.
const TICKET: u64 = 8;
const KEY: u64 = 64;
const NAME: u64 = 96;
const NUMBER: u64 = 128;
const RANGE: u64 = 256;
const SCANNED: u64 = 512;
const LISTED: u64 = 768;
const KEYS: u64 = 4 << 10;
const RECORDS: u64 = 8 << 10;
const VALUE: u64 = 1 << 20;
const LENT: u32 = 8 << 20;

/// Calls an import as Wasmtime does for a module.
fn call_import(memory: &Memory, name: &str, arguments: &[u64]) -> Code {
    let import = IMPORTS.iter().find(|import| import.name == name).expect("an import of this name");
    assert_eq!(import.parameters.len(), arguments.len(), "{name}");
    // SAFETY: a value is a number, of any bytes.
    let mut values: [Value; Import::PARAMETERS_MAX] = unsafe { mem::zeroed() };
    values.iter_mut().zip(arguments).for_each(|(value, argument)| value.set_u64(*argument));
    // SAFETY: on the extension's stack; the values are those of a call, and nothing else uses the memory.
    let ended = unsafe { running::host_call_of_module(|| (import.call)(memory, &mut values)) };
    assert_eq!(ended, Ok(()), "{name}");
    values[0].as_u64()
}

function!(calls_every_import, |db, args, reply| {
    let mut linear = vec![0u8; MODULE_MEMORY_BYTES];
    linear[KEY as usize..][..3].copy_from_slice(b"key");
    linear[NAME as usize..][..6].copy_from_slice(b"second");
    for index in 0..GET_MANY_KEYS_MAX {
        let place = &mut linear[KEYS as usize + index * slice::BYTES..][..slice::BYTES];
        place.copy_from_slice(&(KEY | 3 << 32).to_le_bytes());
    }
    // SAFETY: a memory is its address; this one has the bytes of one, and lives as long.
    let memory = unsafe { mem::transmute::<*mut u8, Memory>(linear.as_mut_ptr()) };
    // SAFETY: the access of this invocation; no host call runs.
    unsafe { &mut *running::context().cast::<Access>() }.lend_in(LentPart::new(LENT));
    let call = |name: &str, arguments: &[u64]| call_import(&memory, name, arguments);
    let (first, ordered) = (u64::from(TABLE), u64::from(ORDERED));
    let is_writing = !args.bytes().is_empty();
    paint();
    let mut codes = vec![
        call("get", &[TICKET, first, KEY, 3, RECORDS]),
        call("get_many", &[TICKET, first, KEYS, GET_MANY_KEYS_MAX as u64, RECORDS]),
        call("scan", &[TICKET, ordered, RANGE, RECORDS, SCAN_ENTRIES_MAX as u64, SCANNED]),
        call("table", &[TICKET, NAME, 6, NUMBER]),
    ];
    call("log", &[Level::Error as u64, KEY, 3]);
    call("now_ms", &[]);
    let cursorless = [TICKET, first, KEY, 0, RECORDS, ENUMERATION_ENTRIES_MAX as u64, LISTED];
    let listed = call("enumerate", &cursorless);
    if is_writing {
        assert_eq!(listed, Error::NotSerializable.code());
        for number in 0..100_u64 {
            linear[NUMBER as usize..][..8].copy_from_slice(&number.to_le_bytes());
            codes.push(call("put", &[TICKET, first, NUMBER, 8, VALUE, 100, 1, 0, u64::MAX]));
        }
        codes.extend([
            call("put", &[TICKET, first, KEY, 3, VALUE, 1 << 20, 0, 0, u64::MAX]),
            call("delete", &[TICKET, first, KEY, 3, 2, 0]),
            call("increment", &[TICKET, first, NAME, 6, 1, NUMBER]),
            call("increment_float", &[TICKET, first, NAME, 5, 1.5_f64.to_bits(), NUMBER]),
        ]);
    } else {
        codes.push(listed);
    }
    let used = used_bytes() as u64;
    assert!(codes.iter().all(|code| *code == OK), "{codes:?}");
    reply.u64(used)
});

#[test]
fn imports_stay_within_the_part_of_host_calls() {
    let mut world = World::new();
    for (mode, arguments) in [(CallMode::Read, &b""[..]), (CallMode::Write, b"writes")] {
        let extension = World::extension(calls_every_import, mode);
        world.put(TABLE, b"key", &vec![1; 40_000]);
        for number in 0..100_u64 {
            world.put(ORDERED, &number.to_le_bytes(), &[1; 2_000]);
        }
        let (status, body) = world.call(&extension, b"key", arguments);
        assert_eq!(status, Status::Ok);
        let used = u64::from_le_bytes(body.try_into().expect("a number")) as usize;
        println!("{used} bytes beyond {OWN_FRAMES_BYTES}");
        assert!(used + OWN_FRAMES_BYTES < HOST_CALL_STACK_BYTES, "{used}");
    }
}
