//! A function for each misdeed that safe Rust allows, for tests of what a server makes of it.
//!
//! Each but the last three first writes the arguments under the key, a mark that must never be seen: none of
//! them ends well. `computation` holds what needs no store.
//!
//! | Functions | End |
//! |---|---|
//! | `spin`, `spin_yielding`, `wait_for_nothing`, `loop_in_drop_at_the_end`, `log_flood`, `look_for_tables`, `hoard` | killed |
//! | `recurse`, `recurse_into_the_host`, `huge_frame` | stack overflow |
//! | `allocate_forever`, `grow_forever`, `allocate_at_once` | out of memory |
//! | `panics`, `panic_in_drop`, `panic_while_it_says_why`, `looping_drop`, `index_beyond`, `divide_by_zero` | panic |
//! | `reply_flood` | reply too large |
//! | `write_flood`, `write_bulk`, `delete_flood`, `read_too_much`, `read_forever` | limit exceeded |
//! | `write_then_error` | error 42 with a message |
//! | `sneak` | read only |
//! | `hold`, `peek`, `forget_future` | well, unless the server is wrong |
#![no_std]
#![deny(unused_must_use)]

extern crate alloc;

mod computation;

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::future::Future;
use core::future::pending;
use core::future::poll_fn;
use core::hint::black_box;
use core::hint::spin_loop;
use core::mem;
use core::task::Poll;

use sandstorm::Args;
use sandstorm::Db;
use sandstorm::Error;
use sandstorm::Level;
use sandstorm::Reply;

use computation::deeper;
use computation::frame_of;

sandstorm::extension! {
    write spin,
    write spin_yielding,
    write wait_for_nothing,
    write loop_in_drop_at_the_end,
    write log_flood,
    write look_for_tables,
    write hoard,
    write recurse,
    write recurse_into_the_host,
    write huge_frame,
    write allocate_forever,
    write grow_forever,
    write allocate_at_once,
    write panics,
    write panic_in_drop,
    write panic_while_it_says_why,
    write looping_drop,
    write index_beyond,
    write divide_by_zero,
    write reply_flood,
    write write_flood,
    write write_bulk,
    write delete_flood,
    write read_too_much,
    read read_forever,
    write write_then_error,
    read sneak,
    read hold,
    read peek,
    write forget_future,
}

/// What was lent has changed; the server is broken.
const LENT_BYTES_CHANGED: Error = Error::Application(99);

/// Writes what must never be seen.
async fn mark(db: &Db<'_>, args: Args<'_>) -> Result<(), Error> {
    db.put(args.table(), args.key(), args.bytes()).await
}

/// Loops for ever and never yields.
async fn spin(db: &Db<'_>, args: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> {
    mark(db, args).await?;
    loop {
        spin_loop();
    }
}

/// Loops for ever and yields each time.
async fn spin_yielding(db: &Db<'_>, args: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> {
    mark(db, args).await?;
    loop {
        db.yield_now().await;
    }
}

/// Waits for what never comes.
async fn wait_for_nothing(db: &Db<'_>, args: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> {
    mark(db, args).await?;
    pending().await
}

/// Something whose destructor never ends.
struct Endless;

impl Drop for Endless {
    fn drop(&mut self) {
        loop {
            spin_loop();
        }
    }
}

/// Would return well, were it not for a destructor that never ends.
async fn loop_in_drop_at_the_end(db: &Db<'_>, args: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> {
    let _endless = Endless;
    mark(db, args).await
}

/// Logs for ever.
async fn log_flood(db: &Db<'_>, args: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> {
    mark(db, args).await?;
    let mut line = 0u64;
    loop {
        db.log(Level::Error, format_args!("line {line} of a flood{:>300}", ""));
        line += 1;
    }
}

/// Looks for ever for tables that are not there.
async fn look_for_tables(db: &Db<'_>, args: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> {
    mark(db, args).await?;
    loop {
        if db.table("somebody's").await.is_ok() {
            return Err(LENT_BYTES_CHANGED);
        }
    }
}

/// Fills its memory and keeps it, a yield at a time.
async fn hoard(db: &Db<'_>, args: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> {
    mark(db, args).await?;
    let kept = vec![7u8; 900_000];
    while !black_box(&kept).is_empty() {
        db.yield_now().await;
    }
    Ok(())
}

/// Recurses until the stack is used up.
async fn recurse(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    mark(db, args).await?;
    reply.u64(deeper(0, &mut || 0))
}

/// Recurses, with a call into the server at every depth.
async fn recurse_into_the_host(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    mark(db, args).await?;
    reply.u64(deeper(0, &mut || db.now_ms()))
}

/// Needs a frame larger than the stack.
async fn huge_frame(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    mark(db, args).await?;
    reply.u64(frame_of::<4_000_000>(args.key()))
}

/// Keeps small pieces of memory until there is no more.
async fn allocate_forever(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    mark(db, args).await?;
    let mut kept: Vec<Vec<u8>> = Vec::new();
    while black_box(true) {
        kept.push(vec![7; 40]);
    }
    reply.u64(kept.len() as u64)
}

/// Doubles a vector until there is no more memory.
async fn grow_forever(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    mark(db, args).await?;
    let mut bytes = vec![1];
    while black_box(true) {
        bytes.extend_from_within(..);
    }
    reply.u64(bytes.len() as u64)
}

/// Asks for a terabyte.
async fn allocate_at_once(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    mark(db, args).await?;
    let bytes: Vec<u8> = vec![0; black_box(isize::MAX as usize)];
    reply.u64(bytes.len() as u64)
}

/// Panics with a text that names the length of the key.
async fn panics(db: &Db<'_>, args: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> {
    mark(db, args).await?;
    panic!("a key of {} bytes", args.key().len());
}

/// Something whose destructor panics.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("from a destructor");
    }
}

/// Would return well, were it not for a destructor that panics.
async fn panic_in_drop(db: &Db<'_>, args: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> {
    let _bomb = Bomb;
    mark(db, args).await
}

/// Something that panics when it is shown.
struct Unspeakable;

impl fmt::Display for Unspeakable {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        panic!("again");
    }
}

/// Panics with a text that panics.
async fn panic_while_it_says_why(db: &Db<'_>, args: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> {
    mark(db, args).await?;
    panic!("{}", Unspeakable);
}

/// Panics with a destructor at hand that never ends.
async fn looping_drop(db: &Db<'_>, args: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> {
    mark(db, args).await?;
    let _endless = Endless;
    panic!("nothing is unwound");
}

/// Reads beyond a slice.
async fn index_beyond(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    mark(db, args).await?;
    let key = args.key();
    reply.u8(key[key.len() + 1])
}

/// Divides by zero.
async fn divide_by_zero(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    mark(db, args).await?;
    reply.u64(1 / black_box(0))
}

/// Replies until the reply is full.
async fn reply_flood(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    mark(db, args).await?;
    loop {
        reply.write(&[7; 1000])?;
    }
}

/// Writes one object after another.
async fn write_flood(db: &Db<'_>, args: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> {
    mark(db, args).await?;
    for number in 0u64.. {
        db.put(args.table(), &number.to_le_bytes(), args.bytes()).await?;
    }
    Ok(())
}

/// Writes large objects.
async fn write_bulk(db: &Db<'_>, args: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> {
    mark(db, args).await?;
    let value = vec![7; 500_000];
    for number in 0u64.. {
        db.put(args.table(), &number.to_le_bytes(), &value).await?;
    }
    Ok(())
}

/// Deletes one object after another.
async fn delete_flood(db: &Db<'_>, args: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> {
    mark(db, args).await?;
    for number in 0u64.. {
        db.delete(args.table(), &number.to_le_bytes()).await?;
    }
    Ok(())
}

/// Reads more than a commit can check.
async fn read_too_much(db: &Db<'_>, args: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> {
    mark(db, args).await?;
    for number in 0u64.. {
        db.get(args.table(), &number.to_le_bytes()).await?;
    }
    Ok(())
}

/// Reads for ever.
async fn read_forever(db: &Db<'_>, args: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> {
    for number in 0u64.. {
        db.get(args.table(), &number.to_le_bytes()).await?;
    }
    Ok(())
}

/// Writes, says why, and fails.
async fn write_then_error(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    mark(db, args).await?;
    reply.write(b"as announced")?;
    Err(Error::Application(42))
}

/// Writes although it is declared to read.
async fn sneak(db: &Db<'_>, args: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> {
    mark(db, args).await
}

/// Keeps a record over as many yields as the arguments say (u32) and replies with it, if it is unchanged.
/// Arguments: yields u32
async fn hold(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let lent = db.get(args.table(), args.key()).await?.ok_or(Error::NotFound)?;
    let copy = lent.to_vec();
    for _ in 0..args.reader().u32()? {
        db.yield_now().await;
        if black_box(lent) != copy {
            return Err(LENT_BYTES_CHANGED);
        }
    }
    reply.write(lent)
}

/// Replies with the record under the key.
async fn peek(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    reply.write(db.get(args.table(), args.key()).await?.ok_or(Error::NotFound)?)
}

/// Forgets futures, memory and destructors, and ends well; what a forgotten write would have written is not.
async fn forget_future(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    mem::forget(Box::pin(db.put(args.table(), args.key(), args.bytes())));
    let mut begun = Box::pin(db.yield_now());
    poll_fn(|context| Poll::Ready(begun.as_mut().poll(context).is_pending())).await;
    mem::forget(begun);
    mem::forget(vec![7u8; 10_000]);
    mem::forget((Endless, Bomb));
    reply.write(b"forgotten")
}

#[cfg(test)]
mod tests;
