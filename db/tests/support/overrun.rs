//! An extension whose functions use up their slices: for ever, for a while with a result to check, or until
//! something else happens to them.
//!
//! Compiled by the tests as a tenant's source. Those that never end write a mark first, which must never be
//! seen.
#![no_std]
extern crate alloc;

use alloc::vec::Vec;
use sandstorm::{Args, Db, Error, Reply};

sandstorm::extension! {
    write spins,
    write spins_with_host_calls,
    write spins_and_allocates,
    write spins_and_yields,
    read yields,
    read computes,
    read allocates,
    read looks_up,
    write transfers,
    read recurses,
    read panics,
    read healthy,
}

async fn mark(db: &Db<'_>, args: &Args<'_>) -> Result<(), Error> {
    db.put(args.table(), b"mark", b"left behind").await
}

async fn spins(db: &Db<'_>, args: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> {
    mark(db, &args).await?;
    loop {}
}

async fn spins_with_host_calls(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    mark(db, &args).await?;
    loop {
        if db.now_ms() == 0 {
            reply.u8(0)?;
        }
    }
}

async fn spins_and_allocates(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    mark(db, &args).await?;
    loop {
        let bytes: Vec<u8> = args.key().to_vec();
        if bytes.len() > 100_000 {
            reply.u8(0)?;
        }
    }
}

async fn spins_and_yields(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    mark(db, &args).await?;
    loop {
        if mixed(7, 200) == 0 {
            reply.u8(0)?;
        }
        db.yield_now().await;
    }
}

async fn yields(db: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> {
    loop {
        db.yield_now().await;
    }
}

/// Integers and floats that depend on each other, in vectors where the compiler likes to.
fn mixed(seed: u64, rounds: u64) -> u64 {
    let mut integers = [seed; 16];
    let mut floats = [1.0f64 + (seed % 97) as f64; 16];
    for round in 0..rounds {
        for at in 0..16 {
            let own = integers[at] ^ round;
            integers[at] = own.wrapping_mul(6364136223846793005).rotate_left(at as u32 + 1);
            floats[at] = floats[at] * 1.0000001 + (integers[at] % 1024) as f64 * 0.5;
            if floats[at] > 1.0e9 {
                floats[at] = floats[at] / 3.0;
            }
        }
    }
    let mut sum = 0u64;
    for at in 0..16 {
        sum = sum.rotate_left(7) ^ integers[at] ^ floats[at].to_bits();
    }
    sum
}

async fn computes(_: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    reply.u64(mixed(args.reader().u64()?, 4_000))
}

async fn allocates(_: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let seed = args.reader().u64()?;
    let mut kept: Vec<Vec<u64>> = Vec::new();
    let mut sum = 0u64;
    for round in 0..1_200u64 {
        let mut own: Vec<u64> = Vec::new();
        for number in 0..8 {
            own.push(seed.wrapping_mul(round + number));
        }
        sum = sum.rotate_left(3) ^ own[(round % 8) as usize];
        if round % 50 == 0 {
            kept.push(own);
        }
    }
    for own in &kept {
        for number in own {
            sum = sum.rotate_left(5) ^ number;
        }
    }
    reply.u64(sum)
}

async fn looks_up(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let mut sum = args.reader().u64()?;
    for round in 0..400u64 {
        let key = [b'k', (round % 10) as u8];
        let value = db.get(args.table(), &key).await?.ok_or(Error::NotFound)?;
        for byte in value {
            sum = sum.rotate_left(5) ^ *byte as u64;
        }
    }
    reply.u64(sum)
}

/// Moves one from the first account to the second, slowly.
async fn transfers(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let seed = args.reader().u64()?;
    let from = [b'a', (seed % 8) as u8];
    let to = [b'a', (seed / 8 % 8) as u8];
    db.increment(args.table(), &from, -1).await?;
    let sum = mixed(seed, 1_500);
    db.increment(args.table(), &to, 1).await?;
    reply.u64(sum)
}

fn depth(level: u64, bytes: &[u8]) -> u64 {
    let mut own = [0u8; 64];
    own[(level % 64) as usize] = bytes.len() as u8;
    let below = depth(level + 1, &own);
    below + own[(below % 64) as usize] as u64
}

async fn recurses(_: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let sum = mixed(args.reader().u64()?, 5_000);
    reply.u64(sum ^ depth(0, args.key()))
}

async fn panics(_: &Db<'_>, args: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> {
    panic!("after {}", mixed(args.reader().u64()?, 5_000));
}

async fn healthy(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    reply.write(db.get(args.table(), args.key()).await?.ok_or(Error::NotFound)?)
}
