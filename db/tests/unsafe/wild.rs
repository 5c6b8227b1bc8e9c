//! What a hole in the check of sources would let through: every way to a wrong address that the language has.
#![no_std]
extern crate alloc;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::hint::black_box;
use core::mem::{forget, transmute};
use core::ptr;
use core::slice;
use sandstorm::{Args, Db, Error, Reply};

sandstorm::extension! {
    write read_at, write write_at, write null, write slice_of_everything, write a_pointer_over_an_await,
    write a_function_that_is_a_number, write another_type_of_function, write reply_of_everything,
    write arena_of_everything, write freed_twice, write unreachable
}

fn number(args: &Args<'_>) -> usize {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&args.bytes()[..8]);
    u64::from_le_bytes(bytes) as usize
}

async fn read_at(_: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let found = unsafe { ptr::read_volatile(number(&args) as *const u64) };
    reply.u64(found)
}

async fn write_at(_: &Db<'_>, args: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> {
    unsafe { ptr::write_volatile(number(&args) as *mut u64, u64::MAX) };
    Ok(())
}

async fn null(_: &Db<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let address = black_box(0usize) as *mut u64;
    unsafe { ptr::write_volatile(address, 7) };
    reply.u64(unsafe { ptr::read_volatile(address) })
}

async fn slice_of_everything(_: &Db<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let all = unsafe { slice::from_raw_parts(black_box(1usize) as *const u8, black_box(0x7fff_ffff)) };
    reply.u64(all.iter().map(|byte| u64::from(*byte)).sum())
}

async fn a_pointer_over_an_await(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let mut seen = ptr::null::<u8>();
    for _ in 0..50 {
        if let Some(found) = db.get(args.table(), b"key").await? {
            if !seen.is_null() {
                reply.u8(unsafe { ptr::read_volatile(seen) })?;
            }
            seen = found.as_ptr();
        }
    }
    Ok(())
}

async fn a_function_that_is_a_number(_: &Db<'_>, args: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> {
    let function: fn() = unsafe { transmute(black_box(number(&args) + 1_000_000)) };
    function();
    Ok(())
}

#[inline(never)]
fn adds(one: u64, other: u64) -> u64 {
    black_box(one) + other
}

async fn another_type_of_function(_: &Db<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let function: fn(f32) -> u32 = unsafe { transmute(black_box(adds as fn(u64, u64) -> u64)) };
    reply.u64(u64::from(black_box(function)(1.0)))
}

/// The call block, as the host lays it out.
const BLOCK: *mut u32 = 65_408 as *mut u32;

async fn reply_of_everything(_: &Db<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    reply.u64(1)?;
    // Address, bytes, capacity, highest, asked of the reply.
    for word in 10..15 {
        unsafe { ptr::write_volatile(BLOCK.add(word), u32::MAX) };
    }
    Ok(())
}

async fn arena_of_everything(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> {
    unsafe {
        ptr::write_volatile(BLOCK, 0);
        ptr::write_volatile(BLOCK.add(1), u32::MAX);
    }
    let mut held = Vec::new();
    for round in 0..64u64 {
        held.push(Box::new([round; 1024]));
    }
    black_box(&held);
    Ok(())
}

async fn freed_twice(_: &Db<'_>, args: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> {
    let one = Box::new(number(&args));
    let again = unsafe { Box::from_raw(ptr::from_ref(&*one).cast_mut()) };
    drop(black_box(one));
    drop(black_box(again));
    forget(Box::new(1u8));
    Ok(())
}

async fn unreachable(_: &Db<'_>, args: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> {
    if number(&args) < usize::MAX {
        core::arch::wasm32::unreachable()
    }
    Ok(())
}
