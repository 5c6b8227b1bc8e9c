//! Functions that the test of a loaded artefact calls, each for one thing that may happen.
#![no_std]

extern crate alloc;

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::future::Future;
use core::task::{Context, Waker};
use sandstorm::{Args, Cursor, Db, EntryPage, Error, Level, Reply};

sandstorm::extension! {
    read copy, read many, read fail, read panic_here, read panic_twice, read out_of_bounds, read use_up_memory,
    read deep_frame, write sum, read pages, read poll_by_hand,
}

/// Replies with the record.
async fn copy(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let value = db.get(args.table(), args.key()).await?.ok_or(Error::NotFound)?;
    db.log(Level::Information, format_args!("{} bytes", value.len()));
    reply.write(value)
}

/// Replies with the lengths of 70 records.
async fn many(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let keys: Vec<String> = (0..70).map(|number| alloc::format!("{number}")).collect();
    let keys: Vec<&[u8]> = keys.iter().map(|key| key.as_bytes()).collect();
    let mut records = [None; 70];
    db.get_many(args.table(), &keys, &mut records).await?;
    for record in records {
        reply.u8(record.map_or(255, |record| record.value.len() as u8))?;
    }
    Ok(())
}

/// Fails with a number of its own and a message.
async fn fail(_: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    reply.write(b"no luck")?;
    Err(Error::Application(args.reader().u32()?))
}

/// Panics with a long text.
async fn panic_here(_: &Db<'_>, args: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> {
    panic!("with {} bytes {:?}", args.bytes().len(), [7; 1000]);
}

struct Grumpy;

impl fmt::Display for Grumpy {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        panic!("{Grumpy}")
    }
}

/// Panics while the text of a panic is written.
async fn panic_twice(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> {
    panic!("{Grumpy}")
}

/// Reads beyond the end of the arguments.
async fn out_of_bounds(_: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let bytes = args.bytes();
    reply.u8(bytes[bytes.len()])
}

/// Allocates until there is nothing left.
async fn use_up_memory(_: &Db<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let mut all = Vec::new();
    loop {
        all.push(alloc::vec![1u8; 1 << 16]);
        reply.truncate(all.len());
    }
}

/// Uses a frame of a megabyte, and touches only its far end.
async fn deep_frame(_: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    reply.u8(large(args.bytes()))
}

#[inline(never)]
fn large(bytes: &[u8]) -> u8 {
    let mut frame = [0u8; 1 << 20];
    let place = bytes.len() * 1000;
    frame[place] = 1;
    core::hint::black_box(&mut frame)[place]
}

/// Adds up, in the store.
async fn sum(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    db.put(args.table(), b"written", args.bytes()).await?;
    db.delete(args.table(), b"gone").await?;
    reply.i64(db.increment(args.table(), args.key(), -5).await?)?;
    reply.u64(db.increment_float(args.table(), args.key(), 0.5).await?.to_bits())
}

/// Goes through a table.
async fn pages(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let (mut page, mut next) = (EntryPage::new().limit(5), Some(Cursor::from_bytes(args.bytes())?));
    while let Some(cursor) = next {
        next = db.enumerate(args.table(), cursor, &mut page).await?;
        for entry in &page {
            reply.write(entry.key)?;
        }
    }
    Ok(())
}

/// Polls with a waker of its own choice, twice beyond the end.
async fn poll_by_hand(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let mut future = Box::pin(db.get(args.table(), args.key()));
    for _ in 0..6 {
        let ready = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        reply.u8(u8::from(ready.is_ready()))?;
    }
    Ok(())
}
