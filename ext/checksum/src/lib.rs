//! CRC-32C over many records in one round trip.
//!
//! The arguments list keys: for each its length (u16), then its bytes. The key of the invocation only routes
//! it.
//!
//! | Function | Reply |
//! |---|---|
//! | `checksum` | CRC-32C of all values, one behind the other, u32; records found u32; missing u32 |
//! | `checksum_each` | for each key in order: found u8, CRC-32C of its value u32 (0 when missing) |
//!
//! Each record is fetched with many others and read where it lies; a large one makes room for others every
//! 64 KiB.
#![no_std]
#![deny(unused_must_use)]

mod crc32c;

use sandstorm::Args;
use sandstorm::Db;
use sandstorm::Error;
use sandstorm::Reader;
use sandstorm::Record;
use sandstorm::Reply;
use sandstorm::Table;

use crc32c::Crc;

sandstorm::extension! { read checksum, read checksum_each }

/// Keys fetched together.
const BATCH_KEYS: usize = 64;
/// Bytes of a record that are read in one go: some 50 us.
const PORTION_BYTES: usize = 64 << 10;

/// Replies with one CRC-32C over the values of all listed keys, and how many were found and missing.
/// Arguments: for each key: bytes u16, key
async fn checksum(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let mut keys = args.reader();
    let mut records = [None; BATCH_KEYS];
    let (mut crc, mut found, mut missing) = (Crc::new(), 0, 0);
    while keys.bytes_left() > 0 {
        let count = fetch(db, args.table(), &mut keys, &mut records).await?;
        for record in &records[..count] {
            match record {
                Some(record) => {
                    add(db, record.value, &mut crc).await;
                    found += 1;
                }
                None => missing += 1,
            }
        }
    }
    reply.u32(crc.value())?;
    reply.u32(found)?;
    reply.u32(missing)
}

/// Replies with the CRC-32C of each listed key's value, in order.
/// Arguments: for each key: bytes u16, key
async fn checksum_each(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let mut keys = args.reader();
    let mut records = [None; BATCH_KEYS];
    while keys.bytes_left() > 0 {
        let count = fetch(db, args.table(), &mut keys, &mut records).await?;
        for record in &records[..count] {
            let mut crc = Crc::new();
            if let Some(record) = record {
                add(db, record.value, &mut crc).await;
            }
            reply.u8(u8::from(record.is_some()))?;
            reply.u32(crc.value())?;
        }
    }
    Ok(())
}

/// Fetches the records of the next keys, [`BATCH_KEYS`] at most; says how many.
async fn fetch<'a>(
    db: &Db<'a>,
    table: Table,
    list: &mut Reader<'a>,
    records: &mut [Option<Record<'a>>; BATCH_KEYS],
) -> Result<usize, Error> {
    let mut keys: [&[u8]; BATCH_KEYS] = [&[]; BATCH_KEYS];
    let mut count = 0;
    while count < BATCH_KEYS && list.bytes_left() > 0 {
        let bytes = usize::from(list.u16()?);
        keys[count] = list.bytes(bytes)?;
        count += 1;
    }
    db.get_many(table, &keys[..count], &mut records[..count]).await?;
    Ok(count)
}

/// Takes a value in, a portion a turn.
async fn add(db: &Db<'_>, value: &[u8], crc: &mut Crc) {
    let mut portions = value.chunks(PORTION_BYTES);
    if let Some(first) = portions.next() {
        crc.update(first);
    }
    for portion in portions {
        db.yield_now().await;
        crc.update(portion);
    }
}

#[cfg(test)]
mod tests {
    extern crate alloc;

    use alloc::vec;
    use alloc::vec::Vec;

    use sandstorm::Error;
    use sandstorm::Reader;
    use sandstorm::testing::MemoryDb;

    use super::checksum;
    use super::checksum_each;
    use super::crc32c::Crc;

    fn crc(bytes: &[u8]) -> u32 {
        let mut crc = Crc::new();
        crc.update(bytes);
        crc.value()
    }

    fn list(keys: impl IntoIterator<Item = u32>) -> Vec<u8> {
        keys.into_iter().flat_map(|key| [&[4, 0], &key.to_le_bytes()[..]].concat()).collect()
    }

    #[test]
    fn the_checksum_is_of_all_values_in_the_order_of_the_keys() {
        for count in [0u32, 1, 63, 64, 65, 300] {
            let db = MemoryDb::new();
            db.set_stalling(count % 2 == 1);
            let table = db.table("t");
            let mut all = Vec::new();
            for key in (0..count).filter(|key| key % 7 != 6) {
                let value = vec![key as u8; key as usize];
                db.put(table, &key.to_le_bytes(), &value);
                all.extend(value);
            }
            let reply = db.call_read(checksum, table, b"", &list(0..count)).unwrap();
            let mut reader = Reader::new(&reply);
            assert_eq!(reader.u32(), Ok(crc(&all)));
            assert_eq!((reader.u32(), reader.u32()), (Ok(count - count / 7), Ok(count / 7)));
            assert_eq!(reader.finish(), Ok(()));
        }
    }

    #[test]
    fn each_key_gets_the_checksum_of_its_value() {
        let db = MemoryDb::new();
        let table = db.table("t");
        let large: Vec<u8> = (0..300_000u32).map(|at| (at.wrapping_mul(at) >> 5) as u8).collect();
        db.put(table, &1u32.to_le_bytes(), b"123456789");
        db.put(table, &3u32.to_le_bytes(), &large);
        let reply = db.call_read(checksum_each, table, b"", &list([3, 2, 1])).unwrap();
        let mut reader = Reader::new(&reply);
        assert_eq!((reader.u8(), reader.u32()), (Ok(1), Ok(crc(&large))));
        assert_eq!((reader.u8(), reader.u32()), (Ok(0), Ok(0)));
        assert_eq!((reader.u8(), reader.u32()), (Ok(1), Ok(0xe306_9283)));
        assert_eq!(reader.finish(), Ok(()));
    }

    #[test]
    fn what_is_no_list_is_refused() {
        let db = MemoryDb::new();
        let table = db.table("t");
        for arguments in [&[1][..], &[4, 0, 1, 2, 3], &[0xff, 0xff, 0], &[1, 0, b'k', 2]] {
            assert_eq!(db.call_read(checksum, table, b"", arguments), Err(Error::BadArguments));
            assert_eq!(db.call_read(checksum_each, table, b"", arguments), Err(Error::BadArguments));
        }
    }
}
