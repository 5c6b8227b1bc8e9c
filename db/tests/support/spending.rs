//! An extension whose functions use as much of something as their caller says.
//!
//! Compiled by the tests as a tenant's source. Those that write leave a mark first, which must not be seen when
//! they end at a limit. Arguments: how many, and how large each is.
#![no_std]
extern crate alloc;

use alloc::vec::Vec;
use sandstorm::{Args, Db, Error, Reply};

sandstorm::extension! {
    write spins,
    write yields,
    write allocates,
    write reads,
    write reads_at_once,
    write writes,
    write replies,
    write goes_on_when_refused,
    read healthy,
}

async fn begin(db: &Db<'_>, args: &Args<'_>) -> Result<(u64, usize), Error> {
    db.put(args.table(), b"mark", b"left behind").await?;
    let mut numbers = args.reader();
    let count = numbers.u64()?;
    Ok((count, numbers.u64()? as usize))
}

async fn spins(db: &Db<'_>, args: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> {
    begin(db, &args).await?;
    loop {}
}

async fn yields(db: &Db<'_>, args: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> {
    let (count, _) = begin(db, &args).await?;
    for _ in 0..count {
        db.yield_now().await;
    }
    Ok(())
}

async fn allocates(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let (count, bytes) = begin(db, &args).await?;
    let mut kept: Vec<Vec<u8>> = Vec::new();
    for number in 0..count {
        let mut one: Vec<u8> = Vec::with_capacity(bytes);
        one.push(number as u8);
        kept.push(one);
    }
    reply.u64(kept.len() as u64)
}

async fn reads(db: &Db<'_>, args: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> {
    let (count, _) = begin(db, &args).await?;
    for _ in 0..count {
        db.get(args.table(), args.key()).await?;
    }
    Ok(())
}

async fn reads_at_once(db: &Db<'_>, args: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> {
    let (count, _) = begin(db, &args).await?;
    let keys = [args.key(); 8];
    for _ in 0..count / 8 {
        let mut records = [None; 8];
        db.get_many(args.table(), &keys, &mut records).await?;
    }
    Ok(())
}

async fn writes(db: &Db<'_>, args: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> {
    let (count, bytes) = begin(db, &args).await?;
    let mut value: Vec<u8> = Vec::new();
    value.resize(bytes, 7);
    for number in 0..count {
        db.put(args.table(), &number.to_le_bytes(), &value).await?;
    }
    Ok(())
}

async fn replies(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let (count, _) = begin(db, &args).await?;
    for number in 0..count {
        reply.u8(number as u8)?;
    }
    Ok(())
}

/// Takes a refusal for an answer: how many reads there were.
async fn goes_on_when_refused(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let (count, _) = begin(db, &args).await?;
    for number in 0..count {
        match db.get(args.table(), args.key()).await {
            Ok(_) => {}
            Err(Error::LimitExceeded) => return reply.u64(number),
            Err(error) => return Err(error),
        }
    }
    reply.u64(count)
}

async fn healthy(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    reply.write(db.get(args.table(), args.key()).await?.ok_or(Error::NotFound)?)
}
