//! Native requests for a table that is cut into tablets: two parts here, and a range that another server owns.

#[path = "support/one_table.rs"]
mod one_table;

use std::sync::Arc;

use db::tablet::Parts;
use one_table::{OneTable, TABLE, TENANT};
use store::{HashRange, Quota, TableKind, TableOptions};
use wire::{Condition, KeyRange, Keys, Request, Status, reply};

/// Hashes of a quarter.
const QUARTER: u64 = 1 << 62;

/// A worker's parts, and a session. The table has its first and second quarter in one part each, both owned; the third
/// one in a part that is held and not owned; nothing of the fourth.
struct Worker {
    table: OneTable,
}

fn quarter(number: u64) -> HashRange {
    let first = number * QUARTER;
    HashRange::new(first, first + (QUARTER - 1)).expect("a quarter")
}

impl Worker {
    fn new() -> Self {
        let quota = Arc::new(Quota::new(1, u64::MAX));
        let table = OneTable::new(|store| {
            let part = |id: u32| {
                let options = TableOptions { hashes: quarter(u64::from(id)), ..TableOptions::default() };
                store.table_with(id, options, &quota)
            };
            let owned = [quarter(1), quarter(0)];
            let parts = Parts::new(TableOptions::default(), (0..3).map(part).collect(), &owned);
            parts.expect("three quarters")
        });
        Self { table }
    }

    fn ask(&mut self, request: &Request<'_>) -> (Status, Vec<u8>) {
        self.table.ask(request).expect("an answer")
    }

    fn ask_as(&mut self, sequence: u64, request: &Request<'_>) -> (Status, Vec<u8>) {
        self.table.ask_as(sequence, request).expect("an answer")
    }

    /// Gives the table's one part, or others, to the worker.
    fn own(&mut self, owned: &[HashRange]) {
        self.table.set_parts(|parts| {
            Parts::new(TableOptions::default(), parts.held().to_vec(), owned).expect("of what is held")
        });
    }
}

/// The first keys of a quarter.
fn keys(number: u64, count: usize) -> Vec<Vec<u8>> {
    let all = (0..u32::MAX).map(|key| key.to_le_bytes().to_vec());
    all.filter(|key| quarter(number).contains(store::hash(key))).take(count).collect()
}

#[test]
fn a_key_is_written_to_its_part_and_read_from_there() {
    let mut worker = Worker::new();
    for number in 0..2 {
        for key in keys(number, 50) {
            let put = Request::Put { table: TABLE, key: &key, value: &key, condition: Condition::Absent };
            assert_eq!(worker.ask(&put).0, Status::Ok);
            let (status, body) = worker.ask(&Request::Get { table: TABLE, key: &key });
            assert_eq!(
                (status, reply::Object::decode(&body).expect("an object").value),
                (Status::Ok, &key[..])
            );
        }
    }
    let parts = &worker.table.tables.get(TENANT, TABLE).expect("the table").parts;
    assert_eq!(parts.held().iter().map(|part| part.objects()).collect::<Vec<_>>(), [50, 50, 0]);
    assert_eq!(parts.objects(), 100);
}

#[test]
fn a_key_that_is_not_owned_is_refused_and_leaves_no_trace() {
    let mut worker = Worker::new();
    for number in 2..4 {
        let key = &keys(number, 1)[0];
        let (table, condition) = (TABLE, Condition::Always);
        for request in [
            Request::Get { table, key },
            Request::Put { table, key, value: b"v", condition },
            Request::PutFor { table, key, value: b"v", condition, ttl_ms: 1000 },
            Request::Delete { table, key, condition },
            Request::Increment { table, key, delta: 1 },
            Request::IncrementFloat { table, key, delta_bits: 1_f64.to_bits() },
        ] {
            assert_eq!(worker.ask(&request), (Status::NotOwned, Vec::new()));
        }
    }
    assert_eq!(worker.table.tables.get(TENANT, TABLE).expect("the table").parts.objects(), 0);
}

#[test]
fn what_was_refused_runs_under_its_sequence_when_its_tablet_has_come() {
    let mut worker = Worker::new();
    let key = &keys(2, 1)[0];
    let add = Request::Increment { table: TABLE, key, delta: 1 };
    assert_eq!(worker.ask_as(5, &add).0, Status::NotOwned);
    worker.own(&[quarter(2)]);
    let (status, first) = worker.ask_as(5, &add);
    assert_eq!(status, Status::Ok);
    // And what ran is answered from the ring, wherever the tablet is by now.
    worker.own(&[quarter(0)]);
    assert_eq!(worker.ask_as(5, &add), (Status::Ok, first));
    assert_eq!(worker.ask_as(6, &add).0, Status::NotOwned);
}

#[test]
fn a_multi_get_finds_a_part_for_each_key_or_is_refused_as_a_whole() {
    let mut worker = Worker::new();
    let (low, high, there) = (&keys(0, 20)[..], &keys(1, 20)[..], &keys(3, 1)[0]);
    for key in low.iter().chain(high) {
        let put = Request::Put { table: TABLE, key, value: key, condition: Condition::Always };
        assert_eq!(worker.ask(&put).0, Status::Ok);
    }
    let mixed: Vec<&[u8]> = low.iter().zip(high).flat_map(|(one, other)| [&one[..], &other[..]]).collect();
    let (status, body) = worker.ask(&Request::MultiGet { table: TABLE, keys: Keys::from_slices(&mixed) });
    assert_eq!(status, Status::Ok);
    let entries = reply::Objects::decode(&body).expect("objects");
    assert!(entries.zip(&mixed).all(|(entry, key)| entry.value == *key));
    let with_another = [&mixed[..], &[&there[..]]].concat();
    let request = Request::MultiGet { table: TABLE, keys: Keys::from_slices(&with_another) };
    assert_eq!(worker.ask(&request).0, Status::NotOwned);
}

#[test]
fn a_scan_of_a_whole_table_is_refused_where_there_are_several_tablets() {
    let mut worker = Worker::new();
    let (table, cursor, keys_only) = (TABLE, &[][..], false);
    let range = KeyRange::default();
    let scan = Request::Scan { table, range, cursor, keys_only, objects_max: 1, bytes_max: 1 };
    assert_eq!(worker.ask(&scan), (Status::SeveralTablets, Vec::new()));
}

#[test]
fn an_enumeration_goes_from_part_to_part_and_ends_where_another_server_goes_on() {
    let mut worker = Worker::new();
    let mut all: Vec<_> = (0..2).flat_map(|number| keys(number, 150)).collect();
    for key in &all {
        let put = Request::Put { table: TABLE, key, value: key, condition: Condition::Always };
        assert_eq!(worker.ask(&put).0, Status::Ok);
    }
    let (mut met, mut cursor) = (Vec::new(), Vec::new());
    let (status, _) = loop {
        let (table, cursor_bytes, keys_only) = (TABLE, &cursor[..], true);
        let request =
            Request::Enumerate { table, cursor: cursor_bytes, keys_only, objects_max: 40, bytes_max: 4096 };
        let (status, body) = worker.ask(&request);
        if status != Status::Ok {
            break (status, body);
        }
        let listing = reply::Listing::decode(&body).expect("a page");
        cursor = listing.cursor().expect("the third quarter is to come").to_vec();
        met.extend(listing.map(|listed| listed.key.to_vec()));
    };
    // The cursor stands behind what is owned here, so whoever owns what follows goes on.
    assert_eq!(status, Status::NotOwned);
    assert_eq!(cursor[..8], (2 * QUARTER - 1).to_le_bytes());
    met.sort();
    all.sort();
    assert_eq!(met, all);
    worker.own(&[quarter(2)]);
    let (status, body) = worker.ask(&Request::Verify { table: TABLE, cursor: &cursor });
    let verified = reply::Verified::decode(&body).expect("a step");
    assert_eq!((status, verified.objects), (Status::Ok, 0));
    assert_eq!(verified.cursor[..8], (3 * QUARTER - 1).to_le_bytes());
}

#[test]
fn a_verification_counts_what_is_owned_alone() {
    let mut worker = Worker::new();
    for key in keys(0, 60) {
        let put = Request::Put { table: TABLE, key: &key, value: b"v", condition: Condition::Always };
        assert_eq!(worker.ask(&put).0, Status::Ok);
    }
    let half = HashRange::new(0, QUARTER / 2 - 1).expect("half a quarter");
    worker.own(&[half]);
    let expected = keys(0, 60).iter().filter(|key| half.contains(store::hash(key))).count() as u64;
    let (mut objects, mut cursor) = (0, Vec::new());
    while cursor.get(..8) != Some(&(QUARTER / 2 - 1).to_le_bytes()[..]) {
        let (status, body) = worker.ask(&Request::Verify { table: TABLE, cursor: &cursor });
        assert_eq!(status, Status::Ok);
        let step = reply::Verified::decode(&body).expect("a step");
        objects += step.objects;
        cursor = step.cursor.to_vec();
    }
    assert!((1..60).contains(&expected));
    assert_eq!(objects, expected);
}

/// A worker whose table is ordered, in two parts: the halves of the hashes, both owned.
fn ordered_worker() -> Worker {
    let mut worker = Worker::new();
    let options = TableOptions { kind: TableKind::Ordered, ..TableOptions::default() };
    let half = |first, last| HashRange::new(first, last).expect("a half");
    let halves = [half(0, 2 * QUARTER - 1), half(2 * QUARTER, u64::MAX)];
    let quota = Arc::new(Quota::new(1, u64::MAX));
    let store = Arc::clone(worker.table.core.store());
    let part = |(id, hashes)| store.table_with(id, TableOptions { hashes, ..options }, &quota);
    let held = (8..).zip(halves).map(part).collect();
    worker.table.set_parts(|_| Parts::new(options, held, &halves).expect("two halves"));
    worker
}

#[test]
fn a_scan_names_the_hashes_and_hears_where_a_part_ends() {
    let mut worker = ordered_worker();
    let all: Vec<[u8; 4]> = (0..200_u32).map(u32::to_be_bytes).collect();
    for key in &all {
        let put = Request::Put { table: TABLE, key, value: b"v", condition: Condition::Always };
        assert_eq!(worker.ask(&put).0, Status::Ok);
    }
    let mut scan = |hashes, cursor: &[u8]| {
        let range = KeyRange { hashes: Some(hashes), ..KeyRange::default() };
        worker.ask(&Request::Scan {
            table: TABLE,
            range,
            cursor,
            keys_only: true,
            objects_max: 512,
            bytes_max: 65_536,
        })
    };
    let end = 2 * QUARTER - 1;
    assert_eq!(scan((0, u64::MAX), &[]), (Status::SeveralTablets, end.to_le_bytes().to_vec()));
    for hashes in [(0, end), (end + 1, u64::MAX), (3 * QUARTER, u64::MAX)] {
        let (status, body) = scan(hashes, &[]);
        assert_eq!(status, Status::Ok);
        let listing = reply::Scanned::decode(&body).expect("objects");
        let within = |key: &&[u8; 4]| (hashes.0..=hashes.1).contains(&store::hash(*key));
        let expected: Vec<_> = all.iter().filter(within).collect();
        assert!(!expected.is_empty() && listing.map(|listed| listed.key).eq(expected));
    }
    // A cursor is the same for all of the hashes, and can be made by whoever knows the range.
    let seal = KeyRange::default().seal(TABLE, store::hash);
    let (status, body) = scan((0, end), &[&seal[..], &all[150]].concat());
    assert_eq!(status, Status::Ok);
    assert!(reply::Scanned::decode(&body).expect("objects").all(|listed| *listed.key > all[150][..]));
}
