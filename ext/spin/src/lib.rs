//! Computes for as long as it is told: what `splinter-bench` measures isolation with.
//!
//! `splinter-bench` holds a copy of this file, installs it for the tenants that it makes, and changes [`SALT`]
//! where it needs extensions that differ.
#![no_std]
#![deny(unused_must_use)]

use core::hint::black_box;

use sandstorm::Args;
use sandstorm::Db;
use sandstorm::Error;
use sandstorm::Reply;

sandstorm::extension! { write spin, write endless, read touch, read chase }

/// Makes one copy of this source different from another.
const SALT: u64 = 0;

/// Computes for as many rounds as the arguments say, some nanoseconds each, and replies with that number plus the
/// salt. It writes nothing, but is declared to: so a request that was sent again does not run again, and what has
/// ended is all that has run.
/// Arguments: rounds u64
async fn spin(_: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let rounds = args.reader().u64()?;
    compute(rounds);
    reply.u64(rounds.wrapping_add(SALT))
}

/// Computes for so many rounds.
fn compute(rounds: u64) {
    // Xorshift (Marsaglia 2003): each round needs the one before, and no compiler knows a shorter way.
    let mut state = black_box(1u64);
    for _ in 0..rounds {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
    }
    black_box(state);
}

/// Writes the arguments under the key and never ends, so that nobody may ever see what it wrote.
async fn endless(db: &Db<'_>, args: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> {
    db.put(args.table(), args.key(), args.bytes()).await?;
    loop {
        core::hint::spin_loop();
    }
}

/// Replies with the number that the record under the key begins with, plus the salt.
async fn touch(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let record = db.get(args.table(), args.key()).await?.ok_or(Error::NotFound)?;
    let number = record.first_chunk::<8>().ok_or(Error::BadArguments)?;
    reply.u64(u64::from_le_bytes(*number).wrapping_add(SALT))
}

/// Follows records from the key on: each begins with the key of the next one, of eight bytes. Then computes for so many rounds,
/// and replies with the last of these keys.
/// Arguments: records u32, rounds u64
async fn chase(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let mut reader = args.reader();
    let (records, rounds) = (reader.u32()?, reader.u64()?);
    let mut key = *args.key().first_chunk::<8>().ok_or(Error::BadArguments)?;
    for _ in 0..records {
        let record = db.get(args.table(), &key).await?.ok_or(Error::NotFound)?;
        key = *record.first_chunk::<8>().ok_or(Error::BadArguments)?;
    }
    compute(rounds);
    reply.write(&key)
}

#[cfg(test)]
mod tests {
    use sandstorm::Error;
    use sandstorm::testing::MemoryDb;

    use super::{chase, spin, touch};

    #[test]
    fn spinning_counts_the_rounds() {
        let db = MemoryDb::new();
        let table = db.table("t");
        for rounds in [0u64, 1, 1000] {
            let arguments = rounds.to_le_bytes();
            assert_eq!(db.call(spin, table, b"", &arguments).unwrap(), arguments);
        }
    }

    #[test]
    fn chasing_ends_at_the_last_record() {
        let db = MemoryDb::new();
        let table = db.table("t");
        for (key, next) in [(1u64, 2u64), (2, 3), (3, 1)] {
            db.put(table, &key.to_le_bytes(), &next.to_le_bytes());
        }
        let arguments = |records: u32| [&records.to_le_bytes()[..], &7u64.to_le_bytes()].concat();
        for (records, last) in [(0, 1u64), (1, 2), (2, 3), (5, 3)] {
            let key = 1u64.to_le_bytes();
            let found = db.call_read(chase, table, &key, &arguments(records)).unwrap();
            assert_eq!(found, last.to_le_bytes(), "{records}");
        }
        let absent = db.call_read(chase, table, &9u64.to_le_bytes(), &arguments(1));
        assert_eq!(absent, Err(Error::NotFound));
        assert_eq!(db.call_read(chase, table, b"short", &arguments(1)), Err(Error::BadArguments));
    }

    #[test]
    fn touching_replies_with_the_number_of_the_record() {
        let db = MemoryDb::new();
        let table = db.table("t");
        db.put(table, b"key", b"\x07\0\0\0\0\0\0\0and more");
        assert_eq!(db.call_read(touch, table, b"key", b"").unwrap(), 7u64.to_le_bytes());
        assert_eq!(db.call_read(touch, table, b"other", b""), Err(Error::NotFound));
    }
}
