//! The records that aggregates sum: objects of 100 bytes under keys of 30, and lists that name some of them.
//!
//! A list is an object whose value is the concatenated keys of its members; the sum is over the first eight bytes
//! of each member. The extension `aggregate` computes it in the server, [`sum`] on any host.

use crate::failure::Failure;
use crate::pipeline::{self, Then};
use client::{Client, Condition, Error, Request};
use sandstorm::{Args, Db, Reply};
use tao::mix::Random;

/// Name of the extension.
pub const EXTENSION: &str = "aggregate";
/// Name of its function.
pub const FUNCTION: &str = "aggregate";
/// Numbers of records that an aggregate sums, in the demo.
pub const SIZES: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];

/// Size of the key of a record.
const KEY_BYTES: usize = 30;
/// Size of a record.
const VALUE_BYTES: usize = 100;
/// Number of records.
const RECORDS: u64 = 20_000;
/// Number of lists of each size.
const LISTS: u64 = 500;
/// Number of outstanding requests while loading.
const OUTSTANDING: usize = 128;

/// Writes records and lists to a table.
pub fn load(client: &mut Client, table: u32) -> Result<(), Failure> {
    let mut random = Random::new(7);
    let mut puts: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    for index in 0..RECORDS {
        let mut value = vec![b'.'; VALUE_BYTES];
        value[..8].copy_from_slice(&random.below(1 << 40).to_le_bytes());
        puts.push((record_key(index), value));
    }
    for size in SIZES {
        for list in 0..LISTS {
            let members = (0..size).flat_map(|_| record_key(random.below(RECORDS))).collect();
            puts.push((list_key(size, list), members));
        }
    }
    let submit = |session: &mut client::Session, index: u64| {
        let (key, value) = &puts[index as usize];
        session.submit(&Request::Put { table, key, value, condition: Condition::Always }, index)
    };
    pipeline::run(client.session(), puts.len() as u64, OUTSTANDING, submit, |completion| {
        Error::check(completion).map(|_| Then::Done).map_err(Failure::from)
    })?;
    Ok(())
}

/// Returns the key of a random list of this many records.
pub fn any_list(size: usize, random: &mut Random) -> Vec<u8> {
    list_key(size, random.below(LISTS))
}

/// The reply of the extension.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Total {
    sum: u64,
    found: u32,
    missing: u32,
}

impl Total {
    /// The total over records.
    pub fn over<'a>(records: impl Iterator<Item = Option<&'a [u8]>>) -> Total {
        let mut total = Total::default();
        for record in records {
            match record.and_then(|record| record.first_chunk::<8>()) {
                Some(number) => {
                    total.sum = total.sum.wrapping_add(u64::from_le_bytes(*number));
                    total.found += 1;
                }
                None => total.missing += 1,
            }
        }
        total
    }

    /// Encodes the reply as the extension does.
    pub fn encode(&self) -> [u8; 16] {
        let mut reply = [0; 16];
        reply[..8].copy_from_slice(&self.sum.to_le_bytes());
        reply[8..12].copy_from_slice(&self.found.to_le_bytes());
        reply[12..].copy_from_slice(&self.missing.to_le_bytes());
        reply
    }
}

/// Returns the keys of a list.
pub fn members(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    list.chunks_exact(KEY_BYTES)
}

/// Sums the records of the list at a key.
pub async fn sum(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), sandstorm::Error> {
    let list = db.get(args.table(), args.key()).await?.ok_or(sandstorm::Error::NotFound)?;
    let keys: Vec<&[u8]> = members(list).collect();
    let mut records = vec![None; keys.len()];
    db.get_many(args.table(), &keys, &mut records).await?;
    let total = Total::over(records.iter().map(|record| record.map(|record| record.value)));
    reply.write(&total.encode())
}

fn record_key(index: u64) -> Vec<u8> {
    format!("record{index:024}").into_bytes()
}

fn list_key(size: usize, list: u64) -> Vec<u8> {
    format!("list{size:04}{list:022}").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::{KEY_BYTES, Total, list_key, record_key, sum};
    use sandstorm::testing::MemoryDb;

    #[test]
    fn keys_have_the_length_that_lists_are_cut_by() {
        assert_eq!(record_key(u64::MAX).len(), KEY_BYTES);
        assert_eq!(list_key(64, 1).len(), KEY_BYTES);
        assert_ne!(list_key(1, 64), list_key(64, 1));
    }

    #[test]
    fn a_sum_is_over_the_first_eight_bytes_of_each_member() {
        let db = MemoryDb::new();
        let table = db.table("records");
        for index in 0..40u64 {
            db.put(table, &record_key(index), &[&(index * 3).to_le_bytes()[..], b"rest"].concat());
        }
        let members: Vec<u8> = (0..42).flat_map(record_key).collect();
        db.put(table, b"list", &members);
        let reply = db.call_read(sum, table, b"list", b"").unwrap();
        assert_eq!(reply, Total { sum: 3 * 40 * 39 / 2, found: 40, missing: 2 }.encode());
        assert_eq!(db.call_read(sum, table, b"none", b""), Err(sandstorm::Error::NotFound));
    }
}
