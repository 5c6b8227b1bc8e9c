//! What an ordered table is for: ranges read in the order of their keys, and a queue that needs no trick.
//!
//! The table that the caller names must be an ordered one (`splinter table create NAME --ordered`). The caller's key
//! is the prefix of the keys that a function looks at.
#![no_std]
#![deny(unused_must_use)]

use sandstorm::Args;
use sandstorm::Condition;
use sandstorm::Db;
use sandstorm::Error;
use sandstorm::KeyRange;
use sandstorm::Reply;

sandstorm::extension! { read scan, read count, write push, write pop }

/// Longest prefix of a queue in bytes.
const QUEUE_PREFIX_BYTES_MAX: usize = 256;

/// Replies with the objects whose keys begin with the caller's key, in order. Per object: key bytes u16, value bytes
/// u32, key, value.
/// Arguments: how many at most u32, backward u8
async fn scan(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let mut reader = args.reader();
    let (limit, backward) = (reader.u32()? as usize, reader.u8()? != 0);
    reader.finish()?;
    let range = KeyRange::prefix(args.key()).limit(limit);
    let range = if backward { range.reverse() } else { range };
    let mut scan = db.scan(args.table(), range);
    while let Some(entry) = scan.next().await? {
        reply.u16(entry.key.len() as u16)?;
        reply.u32(entry.value.len() as u32)?;
        reply.write(entry.key)?;
        reply.write(entry.value)?;
    }
    Ok(())
}

/// Replies with how many objects there are whose keys begin with the caller's key, u64, and the bytes of their values,
/// u64.
async fn count(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let mut scan = db.scan(args.table(), KeyRange::prefix(args.key()));
    let (mut objects, mut bytes) = (0, 0);
    while let Some(entry) = scan.next().await? {
        objects += 1;
        bytes += entry.value.len() as u64;
    }
    reply.u64(objects)?;
    reply.u64(bytes)
}

/// Puts the arguments behind the last element of the queue under the caller's key; replies with the element's number,
/// u64. Of two that push at once one is done again, since what it took for the end has changed.
async fn push(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let prefix = args.key();
    let mut last = db.scan(args.table(), KeyRange::prefix(prefix).reverse().limit(1));
    let number = match last.next().await? {
        Some(entry) => number_of(entry.key, prefix)?.checked_add(1).ok_or(Error::Overflow)?,
        None => 0,
    };
    let mut key = [0; QUEUE_PREFIX_BYTES_MAX + 8];
    let key_bytes = prefix.len() + 8;
    let key = key.get_mut(..key_bytes).ok_or(Error::KeyTooLarge)?;
    key[..prefix.len()].copy_from_slice(prefix);
    key[prefix.len()..].copy_from_slice(&number.to_be_bytes());
    db.put_if(args.table(), key, args.bytes(), Condition::Absent).await?;
    reply.u64(number)
}

/// Takes the first element off the queue under the caller's key and replies with it; not found when it is empty.
async fn pop(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let mut first = db.scan(args.table(), KeyRange::prefix(args.key()).limit(1));
    let entry = first.next().await?.ok_or(Error::NotFound)?;
    reply.write(entry.value)?;
    db.delete(args.table(), entry.key).await
}

/// The number behind the prefix: eight bytes, the most significant first, so that keys are in the order of numbers.
fn number_of(key: &[u8], prefix: &[u8]) -> Result<u64, Error> {
    let digits = key.get(prefix.len()..).unwrap_or_default();
    digits.try_into().map(u64::from_be_bytes).map_err(|_| Error::BadArguments)
}

#[cfg(test)]
mod tests {
    use sandstorm::Error;
    use sandstorm::Table;
    use sandstorm::testing::MemoryDb;

    use super::{count, pop, push, scan};

    extern crate std;
    use std::string::String;
    use std::vec::Vec;

    /// Keys and values of a reply of `scan`, as `key=value` in a row.
    fn entries(mut reply: &[u8]) -> String {
        let mut text = Vec::new();
        while let Some((head, rest)) = reply.split_first_chunk::<6>() {
            let key_bytes = usize::from(u16::from_le_bytes([head[0], head[1]]));
            let value_bytes = u32::from_le_bytes([head[2], head[3], head[4], head[5]]) as usize;
            text.extend_from_slice(&rest[..key_bytes]);
            text.push(b'=');
            text.extend_from_slice(&rest[key_bytes..key_bytes + value_bytes]);
            text.push(b' ');
            reply = &rest[key_bytes + value_bytes..];
        }
        String::from_utf8(text).unwrap()
    }

    fn arguments(limit: u32, backward: bool) -> Vec<u8> {
        let mut bytes = limit.to_le_bytes().to_vec();
        bytes.push(u8::from(backward));
        bytes
    }

    fn filled(db: &MemoryDb) -> Table {
        let table = db.ordered_table("t");
        for (key, value) in [("b", "1"), ("ab", "2"), ("a", "3"), ("abc", "4"), ("ac", "5"), ("", "6")] {
            db.put(table, key.as_bytes(), value.as_bytes());
        }
        table
    }

    #[test]
    fn objects_come_in_the_order_of_their_keys() {
        let db = MemoryDb::new();
        let table = filled(&db);
        let scanned = |prefix: &str, limit, backward| {
            entries(&db.call_read(scan, table, prefix.as_bytes(), &arguments(limit, backward)).unwrap())
        };
        assert_eq!(scanned("", 100, false), "=6 a=3 ab=2 abc=4 ac=5 b=1 ");
        assert_eq!(scanned("ab", 100, false), "ab=2 abc=4 ");
        assert_eq!(scanned("a", 2, true), "ac=5 abc=4 ");
        assert_eq!(scanned("x", 100, false), "");
        assert_eq!(scanned("", 0, false), "");
        let counted = db.call_read(count, table, b"a", b"").unwrap();
        assert_eq!(counted, [4_u64.to_le_bytes(), 4_u64.to_le_bytes()].concat());
    }

    #[test]
    fn more_objects_than_one_call_brings_come_once_each() {
        let db = MemoryDb::new();
        let table = db.ordered_table("t");
        for number in 0..200_u32 {
            db.put(table, &number.to_be_bytes(), b"v");
        }
        for (limit, expected) in [(1000, 200), (33, 33), (64, 64), (200, 200)] {
            for backward in [false, true] {
                let reply = db.call_read(scan, table, b"", &arguments(limit, backward)).unwrap();
                assert_eq!(reply.len(), expected * (6 + 4 + 1));
            }
        }
    }

    #[test]
    fn a_queue_gives_what_was_pushed_in_its_order() {
        let db = MemoryDb::new();
        let table = db.ordered_table("t");
        db.put(table, b"other", b"not in the queue");
        for (number, element) in [b"one", b"two", b"six"].into_iter().enumerate() {
            assert_eq!(db.call(push, table, b"q/", element).unwrap(), (number as u64).to_le_bytes());
        }
        for element in [b"one", b"two", b"six"] {
            assert_eq!(db.call(pop, table, b"q/", b"").unwrap(), element);
        }
        assert_eq!(db.call(pop, table, b"q/", b""), Err(Error::NotFound));
        assert_eq!(db.call(push, table, &[b'q'; 300], b""), Err(Error::KeyTooLarge));
        assert_eq!(db.call(push, table, b"oth", b""), Err(Error::BadArguments));
    }

    #[test]
    fn a_table_that_is_not_ordered_is_refused() {
        let db = MemoryDb::new();
        let table = db.table("plain");
        assert_eq!(db.call_read(count, table, b"", b""), Err(Error::NotOrdered));
    }
}
