//! Clients that know what their objects have to be: numbers that they add to, and numbers of one tag among which functions shift,
//! so that what is not done, done twice or done by half shows.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};

use client::{Client, Durability, Error, TableOptions};
use fastrand::Rng;
use tests::package::install_source;
use tests::patience::{answered, comes};
use tests::server::{Tenant, patient};

const SHIFT: &str = include_str!("../cluster_tagged/shift.rs");
/// Keys and tags of each client.
const KEYS: u64 = 20;
const TAGS: u64 = 8;
/// Keys of a tag, as `sum` wants them, and what each begins with.
const DIGITS: u64 = 10;
const BEGINNING: i64 = 100;

/// What all clients know.
pub struct Counts {
    addresses: String,
    tenant: Tenant,
    /// A table of plain keys, and a tagged one.
    tables: [u32; 2],
}

/// What became of a client's writes.
#[derive(Debug, Default)]
pub struct Ended {
    /// What each number can be, by table and key: one value, but for writes without a known outcome.
    numbers: BTreeMap<(u32, Vec<u8>), RangeInclusive<i64>>,
    done: u64,
    refused: u64,
    unknown: u64,
}

/// A client at work.
struct Worker<'c> {
    counts: &'c Counts,
    client: Client,
    ended: Ended,
}

fn tag(client: u64, tag: u64) -> Vec<u8> {
    format!("{{{client}-{tag}}}:").into_bytes()
}

fn digit(mut tag: Vec<u8>, digit: u64) -> Vec<u8> {
    tag.push(b'0' + digit as u8);
    tag
}

impl Counts {
    /// Creates the tables, with numbers for so many clients.
    pub fn begin(addresses: String, tenant: Tenant, clients: u64) -> Counts {
        let mut counts = Counts { addresses, tenant, tables: [0; 2] };
        let mut client = counts.connect();
        counts.tables = [false, true].map(|tagged| {
            let durability = Some(Durability::Synced);
            let options = TableOptions { tagged, durability, ..TableOptions::default() };
            answered("a table", || client.table_create_spread(&format!("tagged-{tagged}"), options, 4))
        });
        install_source(&mut client, "shift", SHIFT).expect("an extension");
        for (number, of) in (0..clients).flat_map(|client| (0..TAGS).map(move |tag| (client, tag))) {
            for key in (0..DIGITS).map(|it| digit(tag(number, of), it)) {
                comes("a put", || client.put(counts.tables[1], &key, &BEGINNING.to_le_bytes()).ok());
            }
            comes("the extension at each server", || counts.sum(&mut client, &tag(number, of)));
        }
        counts
    }

    fn connect(&self) -> Client {
        let Tenant { name, secret } = &self.tenant;
        comes("a session", || Client::connect_with(&self.addresses, name, secret, patient()).ok())
    }

    /// Adds up the numbers of a tag; `None` without an answer.
    fn sum(&self, client: &mut Client, tag: &[u8]) -> Option<i64> {
        let sum = client.invoke("shift.sum", self.tables[1], tag, &[]).ok()?;
        Some(i64::from_le_bytes(sum.try_into().expect("a number")))
    }

    /// Writes and reads what belongs to this client until it is over.
    pub fn work(&self, number: u64, mut random: Rng, is_over: &AtomicBool) -> Ended {
        let mut worker = Worker { counts: self, client: self.connect(), ended: Ended::default() };
        while !is_over.load(Ordering::Relaxed) {
            worker.add(format!("{number}-{}", random.u64(0..KEYS)).into_bytes());
            let tag = tag(number, random.u64(0..TAGS));
            let from = random.u64(0..DIGITS);
            let to = (from + random.u64(1..DIGITS)) % DIGITS;
            worker.shift(&tag, (from, to), random.bool());
        }
        worker.ended
    }

    /// Compares all that the client wrote with what is there.
    pub fn check(&self, ended: &Ended) {
        println!("{} done, {} refused, {} of unknown outcome", ended.done, ended.refused, ended.unknown);
        let mut client = self.connect();
        for ((table, key), expected) in &ended.numbers {
            let found = comes("a number", || client.get(*table, key).ok());
            let found = found.map_or(0, |object| to_number(&object.value));
            assert!(expected.contains(&found), "{}: {found} of {expected:?}", String::from_utf8_lossy(key));
        }
        assert!(ended.done > 100 && ended.done > 10 * ended.unknown);
    }
}

fn to_number(value: &[u8]) -> i64 {
    i64::from_le_bytes(value.try_into().expect("eight bytes"))
}

impl Worker<'_> {
    fn add(&mut self, key: Vec<u8>) {
        let table = self.counts.tables[0];
        let added = self.client.increment(table, &key, 1);
        let found = added.as_ref().ok().map(|(found, _)| *found);
        self.note(added, &[(table, key, 1)], found);
    }

    /// Shifts by a function, or by a transaction of this client.
    fn shift(&mut self, tag: &[u8], (from, to): (u64, u64), by_transaction: bool) {
        let table = self.counts.tables[1];
        let [from, to] = [from, to].map(|it| digit(tag.to_vec(), it));
        let shifted = if by_transaction {
            self.commit_shift(&from, &to)
        } else {
            self.client.invoke("shift.shift", table, &from, &to).map(drop)
        };
        self.note(shifted, &[(table, from.clone(), -1), (table, to, 1)], None);
        if let Some(sum) = self.counts.sum(&mut self.client, tag) {
            assert_eq!(sum, BEGINNING * DIGITS as i64, "a shift was done by half");
        }
        if let Ok(found) = self.client.get(table, &from) {
            let found = to_number(&found.expect("it is never deleted").value);
            let expected = &self.ended.numbers[&(table, from)];
            assert!(expected.contains(&found), "{found} of {expected:?}");
        }
    }

    fn commit_shift(&mut self, from: &[u8], to: &[u8]) -> Result<(), Error> {
        let table = self.counts.tables[1];
        self.client.transaction(|tx| {
            for (key, delta) in [(from, -1), (to, 1)] {
                let number = to_number(&tx.get(table, key)?.expect("it is never deleted"));
                tx.put(table, key, &(number + delta).to_le_bytes());
            }
            Ok(())
        })
    }

    /// Notes what a write has added where, and what it found afterwards.
    fn note<T>(&mut self, answer: Result<T, Error>, added: &[(u32, Vec<u8>, i64)], found: Option<i64>) {
        let is_unknown = answer.as_ref().is_err_and(Error::outcome_is_unknown);
        for (table, key, delta) in added {
            let beginning = if *table == self.counts.tables[1] { BEGINNING } else { 0 };
            let expected = self.ended.numbers.entry((*table, key.clone())).or_insert(beginning..=beginning);
            let (mut low, mut high) = (*expected.start(), *expected.end());
            if answer.is_ok() || is_unknown && *delta < 0 {
                low += delta;
            }
            if answer.is_ok() || is_unknown && *delta > 0 {
                high += delta;
            }
            *expected = low..=high;
            assert!(found.is_none_or(|found| expected.contains(&found)), "{found:?} of {expected:?}");
            if let Some(found) = found {
                // What had no answer may still be on its way.
                *expected = found..=high;
            }
        }
        match answer {
            Ok(_) => self.ended.done += 1,
            Err(_) if is_unknown => self.ended.unknown += 1,
            Err(_) => self.ended.refused += 1,
        }
    }
}
