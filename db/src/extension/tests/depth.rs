//! Tests that host calls use at most [`HOST_CALL_STACK_BYTES`] of the extension's stack.

use std::ptr;

use guest::limits::HOST_CALL_STACK_BYTES;
use guest::running;
use sandstorm::{Condition, Level};
use wire::Status;

use super::world::{TABLE, World, function};
use crate::extension::CallMode;

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
