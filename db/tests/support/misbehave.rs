//! An extension whose functions misbehave, each in one way; `healthy` does not.
//!
//! Compiled by the tests as a tenant's source. Each writes a mark first, which must never be seen.
#![no_std]
extern crate alloc;

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use sandstorm::{Args, Db, Error, Reply};

sandstorm::extension! {
    write panics,
    write panics_in_drop,
    write panics_while_it_says_why,
    write uses_up_its_memory,
    write grows_a_vector_for_ever,
    write recurses,
    write has_a_huge_frame,
    write floods_its_reply,
    write fails,
    write reads_beyond_a_slice,
    write loops_in_drop,
    read healthy,
}

async fn mark(db: &Db<'_>, args: &Args<'_>) -> Result<(), Error> {
    db.put(args.table(), b"mark", b"left behind").await
}

/// Panics with a text.
async fn panics(db: &Db<'_>, args: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> {
    mark(db, &args).await?;
    panic!("key of {} bytes", args.key().len());
}

struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("from a destructor");
    }
}

async fn panics_in_drop(db: &Db<'_>, args: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> {
    mark(db, &args).await?;
    let _bomb = Bomb;
    panic!("with a bomb at hand");
}

struct Unspeakable;

impl fmt::Display for Unspeakable {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        panic!("again");
    }
}

async fn panics_while_it_says_why(db: &Db<'_>, args: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> {
    mark(db, &args).await?;
    panic!("{}", Unspeakable);
}

async fn uses_up_its_memory(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    mark(db, &args).await?;
    let mut kept: Vec<String> = Vec::new();
    loop {
        kept.push(String::from("a line of text that is kept and kept and kept"));
        if kept.len() % 100_000_000 == 0 {
            reply.u64(kept.len() as u64)?;
        }
    }
}

async fn grows_a_vector_for_ever(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    mark(db, &args).await?;
    let mut bytes: Vec<u8> = Vec::new();
    loop {
        bytes.extend_from_slice(args.key());
        if bytes.capacity() == 7 {
            reply.u64(1)?;
        }
    }
}

fn depth(level: u64, bytes: &[u8]) -> u64 {
    let mut own = [0u8; 64];
    own[(level % 64) as usize] = bytes.len() as u8;
    let below = depth(level + 1, &own);
    below + own[(below % 64) as usize] as u64
}

async fn recurses(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    mark(db, &args).await?;
    reply.u64(depth(0, args.key()))
}

fn huge(seed: &[u8]) -> u64 {
    let mut frame = [0u8; 400_000];
    let mut index = 0;
    while index < frame.len() {
        frame[index] = seed[index % seed.len()];
        index += 97;
    }
    let mut sum = 0;
    for byte in frame {
        sum = sum * 31 + byte as u64 % 7;
        sum = sum % 1_000_003;
    }
    sum
}

async fn has_a_huge_frame(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    mark(db, &args).await?;
    reply.u64(huge(args.key()))
}

async fn floods_its_reply(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    mark(db, &args).await?;
    loop {
        reply.write(args.key())?;
    }
}

async fn fails(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    mark(db, &args).await?;
    reply.write(b"as announced")?;
    Err(Error::Application(77))
}

async fn reads_beyond_a_slice(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    mark(db, &args).await?;
    reply.u8(args.key()[1000])
}

struct Endless;

impl Drop for Endless {
    fn drop(&mut self) {
        loop {}
    }
}

async fn loops_in_drop(db: &Db<'_>, args: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> {
    mark(db, &args).await?;
    let _endless = Endless;
    panic!("nothing is unwound");
}

async fn healthy(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    reply.write(db.get(args.table(), args.key()).await?.ok_or(Error::NotFound)?)
}
