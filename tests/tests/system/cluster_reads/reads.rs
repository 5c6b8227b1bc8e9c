//! An extension that reads objects wherever they are, and says how that went; one function writes to two places.
//!
//! Compiled by the tests as a tenant's source.
#![no_std]
use sandstorm::{Args, Db, Error, Reply};

sandstorm::extension! { read one, read all, write both }

/// Reads the object under the arguments twice; says how it went, then its version and value.
async fn one(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let first = db.get_record(args.table(), args.bytes()).await;
    match first {
        Ok(None) => reply.u8(0),
        Ok(Some(record)) => {
            let again = db.get_record(args.table(), args.bytes()).await?;
            reply.u8(if again == Some(record) { 1 } else { 9 })?;
            reply.u64(record.version)?;
            reply.write(record.value)
        }
        Err(Error::NotLocal) => reply.u8(2),
        Err(Error::ServerAway) => reply.u8(3),
        Err(error) => Err(error),
    }
}

/// Sums the numbers under the keys of eight bytes that the arguments are, up to 64.
async fn all(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let mut keys: [&[u8]; 64] = [&[]; 64];
    let mut count = 0;
    for key in args.bytes().chunks(8) {
        keys[count] = key;
        count += 1;
    }
    let mut records = [None; 64];
    db.get_many(args.table(), &keys[..count], &mut records[..count]).await?;
    let mut sum = 0;
    for record in records.into_iter().flatten() {
        sum += u64::from_le_bytes(record.value.try_into().map_err(|_| Error::BadArguments)?);
    }
    reply.u64(sum)
}

/// Writes under the key, then under the arguments.
async fn both(db: &Db<'_>, args: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> {
    db.put(args.table(), args.key(), b"half a commit").await?;
    db.put(args.table(), args.bytes(), b"the other half").await
}
