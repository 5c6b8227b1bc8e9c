//! Sums over many records in one round trip.
//!
//! The record under the invocation's key lists other keys, one behind the other, each of the length that the
//! arguments give (u32; 30 when they are empty). The answer is computed from the first eight bytes of each
//! record that the list names: little-endian, unsigned, the sum wraps.
//!
//! | Reply | |
//! |---|---|
//! | sum | u64 |
//! | records found | u32 |
//! | records missing, or shorter than eight bytes | u32 |
#![no_std]
#![deny(unused_must_use)]

use sandstorm::Args;
use sandstorm::Db;
use sandstorm::Error;
use sandstorm::Reader;
use sandstorm::Record;
use sandstorm::Reply;
use sandstorm::Table;

sandstorm::extension! { read aggregate }

/// Keys fetched together.
const BATCH_KEYS: usize = 64;
/// Length of a listed key when the arguments do not say.
const KEY_BYTES: u32 = 30;
/// The record under the key is no list of keys.
const NOT_A_LIST: Error = Error::Application(1);

/// What has been summed so far.
#[derive(Default)]
struct Total {
    sum: u64,
    found: u32,
    missing: u32,
}

/// Sums the first eight bytes of every record that the record under the key lists.
/// Arguments: nothing, or bytes of a listed key u32
async fn aggregate(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let key_bytes = if args.bytes().is_empty() { KEY_BYTES } else { args.reader().u32()? } as usize;
    let list = db.get(args.table(), args.key()).await?.ok_or(Error::NotFound)?;
    if key_bytes == 0 || !list.len().is_multiple_of(key_bytes) {
        return Err(NOT_A_LIST);
    }
    let mut total = Total::default();
    for part in list.chunks(key_bytes * BATCH_KEYS) {
        add(db, args.table(), (part, key_bytes), &mut total).await?;
    }
    reply.u64(total.sum)?;
    reply.u32(total.found)?;
    reply.u32(total.missing)
}

/// Adds the records of at most [`BATCH_KEYS`] keys.
async fn add(
    db: &Db<'_>,
    table: Table,
    (part, key_bytes): (&[u8], usize),
    total: &mut Total,
) -> Result<(), Error> {
    let mut keys: [&[u8]; BATCH_KEYS] = [&[]; BATCH_KEYS];
    let mut records = [None; BATCH_KEYS];
    let mut count = 0;
    for (slot, key) in keys.iter_mut().zip(part.chunks_exact(key_bytes)) {
        *slot = key;
        count += 1;
    }
    db.get_many(table, &keys[..count], &mut records[..count]).await?;
    for record in &records[..count] {
        match number(record) {
            Some(number) => {
                total.sum = total.sum.wrapping_add(number);
                total.found += 1;
            }
            None => total.missing += 1,
        }
    }
    Ok(())
}

/// The number at the front of a record.
fn number(record: &Option<Record<'_>>) -> Option<u64> {
    let record = record.as_ref()?;
    Reader::new(record.value).u64().ok()
}

#[cfg(test)]
mod tests {
    extern crate alloc;

    use alloc::vec::Vec;

    use sandstorm::Error;
    use sandstorm::Reader;
    use sandstorm::testing::MemoryDb;

    use super::NOT_A_LIST;
    use super::aggregate;

    #[test]
    fn sums_every_record_that_is_listed() {
        for count in [0u32, 1, 31, 32, 33, 64, 65, 200] {
            let db = MemoryDb::new();
            db.set_stalling(count % 2 == 1);
            let table = db.table("t");
            let mut list = Vec::new();
            for index in 0..count {
                let mut record = [7; 100];
                record[..8].copy_from_slice(&u64::from(index).to_le_bytes());
                if index % 10 != 9 {
                    db.put(table, &index.to_le_bytes(), &record);
                }
                list.extend_from_slice(&index.to_le_bytes());
            }
            db.put(table, b"list", &list);
            let reply = db.call_read(aggregate, table, b"list", &4u32.to_le_bytes()).unwrap();
            let mut reader = Reader::new(&reply);
            let sum: u64 = (0..u64::from(count)).filter(|index| index % 10 != 9).sum();
            assert_eq!(reader.u64(), Ok(sum));
            assert_eq!(reader.u32(), Ok(count - count / 10));
            assert_eq!(reader.u32(), Ok(count / 10));
        }
    }

    #[test]
    fn a_short_record_counts_as_missing_and_sums_wrap() {
        let db = MemoryDb::new();
        let table = db.table("t");
        db.put(table, b"list", b"abc");
        db.put(table, b"a", b"short");
        db.put(table, b"b", &u64::MAX.to_le_bytes());
        db.put(table, b"c", &2u64.to_le_bytes());
        let reply = db.call_read(aggregate, table, b"list", &1u32.to_le_bytes()).unwrap();
        assert_eq!(reply, [1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0]);
    }

    #[test]
    fn what_is_no_list_is_refused() {
        let db = MemoryDb::new();
        let table = db.table("t");
        db.put(table, b"list", &[0; 31]);
        assert_eq!(db.call_read(aggregate, table, b"list", b""), Err(NOT_A_LIST));
        assert_eq!(db.call_read(aggregate, table, b"list", &0u32.to_le_bytes()), Err(NOT_A_LIST));
        assert_eq!(db.call_read(aggregate, table, b"list", b"xy"), Err(Error::BadArguments));
        assert_eq!(db.call_read(aggregate, table, b"no list", b""), Err(Error::NotFound));
    }
}
