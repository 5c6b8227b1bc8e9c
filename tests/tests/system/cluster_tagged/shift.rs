//! An extension whose functions use several keys of one tag.
//!
//! Compiled by the tests as a tenant's source.
#![no_std]
use sandstorm::{Args, Db, Error, KeyRange, Reply};

sandstorm::extension! { write shift, read sum, write sum_in_order }

/// Takes one from the number under the key, and adds it to that under the arguments.
async fn shift(db: &Db<'_>, args: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> {
    db.increment(args.table(), args.key(), -1).await?;
    db.increment(args.table(), args.bytes(), 1).await.map(drop)
}

/// Adds up the numbers under the key with each digit behind it.
async fn sum(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let mut key = [0; 64];
    let bytes = args.key().len();
    key[..bytes].copy_from_slice(args.key());
    let mut sum = 0;
    for digit in b'0'..=b'9' {
        key[bytes] = digit;
        let value = db.get(args.table(), &key[..=bytes]).await?.ok_or(Error::NotFound)?;
        sum += i64::from_le_bytes(value.try_into().map_err(|_| Error::NotANumber)?);
    }
    reply.i64(sum)
}

/// As `sum`, from a scan of an ordered table. Its write makes the commit check that nothing in the range has changed.
async fn sum_in_order(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let mut scan = db.scan(args.table(), KeyRange::prefix(args.key()));
    let (mut sum, mut count) = (0, 0);
    while let Some(entry) = scan.next().await? {
        sum += i64::from_le_bytes(entry.value.try_into().map_err(|_| Error::NotANumber)?);
        count += 1;
    }
    db.increment(args.table(), args.bytes(), 0).await?;
    reply.i64(sum)?;
    reply.u64(count)
}
