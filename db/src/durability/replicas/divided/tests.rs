//! What is divided among readers, and what becomes of it.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use cluster::replication::fetch::WantedHashes;
use fastrand::Rng;
use store::{Condition, Config, FoundCompletions, Quota, RequestId, SegmentEntries, Store, TableOptions};

use super::{DividedLog, DividedReader};
use crate::limits::DIVIDED_BYTES_MAX;

/// The parts that the log names.
const PARTS: [u32; 3] = [4, 5, 9];
const CLIENT: u64 = 77;

/// A segment of a durable log with objects, ends of keys and completion records; its number, and its bytes.
fn segment(random: &mut Rng) -> (u32, Vec<u8>) {
    let config = Config {
        memory_bytes: 16 << 20,
        segment_bytes: 1 << 20,
        cores: 1,
        huge_pages: false,
        durable: true,
        recovery_cores: 0,
    };
    let store = Store::new(config).expect("a small store");
    let core = store.core(0);
    let quota = Arc::new(Quota::new(1, u64::MAX));
    let options = TableOptions { durable: true, ..TableOptions::default() };
    let tables = PARTS.map(|part| store.table_with(part, options, &quota));
    for sequence in 0..2_000 {
        let (table, number) = (random.choice(&tables).expect("some"), random.u32(0..300));
        let key = format!("key {number} of {{{}}}", number % 7);
        let (pinned, hash) = (core.pin(), store::hash(key.as_bytes()));
        core.begin_request(RequestId { client: CLIENT, sequence }, &[]);
        if random.u8(0..5) == 0 {
            let _ = pinned.delete(table, hash, key.as_bytes(), Condition::Always);
        } else {
            let value = vec![1; random.usize(0..100)];
            pinned.put(table, hash, key.as_bytes(), &value, Condition::Always).expect("room");
        }
        core.end_request();
    }
    let mut positions = Vec::new();
    let _ = store.cut(&mut positions);
    let opened = store.take_opened().next().expect("one");
    let bytes = store.closed_bytes(opened).unwrap_or(positions[opened.writer].bytes as usize);
    (opened.sequence, store.sealed_bytes(opened, 0..bytes).to_vec())
}

/// What a segment has of keys: part, key, version, and whether it is an object; and the sequences of its completion records.
type Content = (Vec<(u32, Vec<u8>, u64, bool)>, BTreeSet<u64>);

fn content((sequence, bytes): (u32, &[u8])) -> Content {
    let (mut entries, mut found) = (SegmentEntries::new(sequence, bytes, 0).expect("a segment"), Vec::new());
    let mut completions = FoundCompletions::default();
    while let Some(entry) = entries.next_with(|one| _ = completions.add(one)) {
        let entry = entry.expect("it is sound");
        found.push((entry.table, entry.key.to_vec(), entry.version, entry.object.is_some()));
    }
    let sequences = || completions.of(CLIENT).iter().map(|one| one.request.sequence);
    let newest = sequences().max().unwrap_or(0);
    (found, sequences().filter(|sequence| sequence + 1_024 > newest).collect())
}

fn is_wanted(wanted: &[WantedHashes], part: u32, key: &[u8]) -> bool {
    wanted.iter().any(|hashes| {
        let position = wire::position(key, store::hash(key), hashes.is_tagged, store::hash);
        hashes.part == part && (hashes.first..=hashes.last).contains(&position)
    })
}

/// Hashes of some parts, as one of so many servers may recover: they may be those of others too.
fn wanted(random: &mut Rng) -> Vec<WantedHashes> {
    let mut all = Vec::new();
    for part in PARTS {
        for _ in 0..random.usize(0..3) {
            let (one, other) = (random.u64(..), random.u64(..));
            let is_tagged = part == PARTS[1];
            all.push(WantedHashes { part, is_tagged, first: one.min(other), last: one.max(other) });
        }
    }
    all
}

fn fetch(reader: &DividedReader, (sequence, bytes): (u32, &[u8]), reads: &AtomicUsize) -> Option<Vec<u8>> {
    let read = || -> Result<_, Infallible> {
        reads.fetch_add(1, Ordering::Relaxed);
        Ok(Some(bytes.to_vec()))
    };
    let Ok(part) = reader.fetch(sequence, (3, bytes.len() as u32), read);
    part
}

#[test]
fn each_server_gets_what_it_wants_of_a_segment_that_is_read_once() {
    for seed in 0..30 {
        println!("seed {seed}");
        let mut random = Rng::with_seed(seed);
        let (sequence, bytes) = segment(&mut random);
        let (log, reads) = (Arc::new(DividedLog::default()), AtomicUsize::new(0));
        let readers: Vec<_> = (0..random.usize(1..5))
            .map(|_| {
                let wanted = wanted(&mut random);
                (DividedReader::new(Arc::clone(&log), wanted.clone()), wanted)
            })
            .collect();
        let (all, completions) = content((sequence, &bytes));
        let check = |(reader, wanted): &(DividedReader, Vec<WantedHashes>)| {
            let part = fetch(reader, (sequence, &bytes), &reads).expect("it is sound");
            let (own, records) = content((sequence, &part));
            let expected = all.iter().filter(|(part, key, ..)| is_wanted(wanted, *part, key));
            assert_eq!(own, expected.cloned().collect::<Vec<_>>(), "seed {seed}");
            assert_eq!(records, completions, "seed {seed}");
        };
        thread::scope(|scope| readers.iter().for_each(|reader| drop(scope.spawn(|| check(reader)))));
        assert_eq!(reads.load(Ordering::Relaxed), 1, "seed {seed}");
        // Who comes late, or once more, gets it as well.
        let late = wanted(&mut random);
        check(&(DividedReader::new(Arc::clone(&log), late.clone()), late));
        assert_eq!(reads.load(Ordering::Relaxed), 2, "seed {seed}");
        drop(readers);
        assert!(super::lock(&log.state).ready.is_empty(), "nobody fetches it");
    }
}

#[test]
fn records_of_old_requests_are_left_out_once_newer_ones_are_known() {
    let mut random = Rng::with_seed(5);
    let (sequence, bytes) = segment(&mut random);
    let reader = DividedReader::new(Arc::default(), Vec::new());
    let part = fetch(&reader, (sequence, &bytes), &AtomicUsize::new(0)).expect("it is sound");
    let (entries, records) = content((sequence, &part));
    assert!(entries.is_empty() && records.len() <= 1_024 && records.contains(&1_999), "{}", records.len());
    assert!(part.len() < bytes.len() / 2, "{} of {}", part.len(), bytes.len());
}

#[test]
fn a_damaged_segment_is_one_for_all_and_an_error_is_one_for_who_reads() {
    let mut random = Rng::with_seed(6);
    let (sequence, mut bytes) = segment(&mut random);
    let log = Arc::new(DividedLog::default());
    let [one, other] = [(); 2].map(|()| DividedReader::new(Arc::clone(&log), wanted(&mut random)));
    let of = (3, bytes.len() as u32);
    assert_eq!(one.fetch(sequence, of, || Err("the disk")), Err("the disk"));
    let part = other.fetch(sequence, of, || Ok::<_, Infallible>(Some(bytes.clone())));
    assert!(matches!(part, Ok(Some(_))));
    assert!(matches!(one.fetch(sequence, of, || Err("it is ready")), Ok(Some(_))));
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    let reads = AtomicUsize::new(0);
    for reader in [&one, &other] {
        let damaged = reader.fetch(sequence, (5, of.1), || {
            reads.fetch_add(1, Ordering::Relaxed);
            Ok::<_, Infallible>(Some(bytes.clone()))
        });
        assert_eq!(damaged, Ok(None));
    }
    assert_eq!(reads.load(Ordering::Relaxed), 1);
    // One that has fewer bytes.
    assert_eq!(one.fetch(sequence, (4, 1), || Ok::<_, Infallible>(None)), Ok(None));
}

#[test]
fn what_nobody_fetches_is_bounded() {
    let mut random = Rng::with_seed(7);
    let (sequence, bytes) = segment(&mut random);
    let log = Arc::new(DividedLog::default());
    let all = |part| WantedHashes { part, is_tagged: part == PARTS[1], first: 0, last: u64::MAX };
    let wanted = PARTS.map(all).to_vec();
    let [one, other] = [(); 2].map(|()| DividedReader::new(Arc::clone(&log), wanted.clone()));
    let count = (2 * DIVIDED_BYTES_MAX / bytes.len()) as u64;
    let reads = AtomicUsize::new(0);
    let fetch = |reader: &DividedReader, replica: u64| {
        let read = || -> Result<_, Infallible> {
            reads.fetch_add(1, Ordering::Relaxed);
            Ok(Some(bytes.clone()))
        };
        let Ok(part) = reader.fetch(sequence, (replica, bytes.len() as u32), read);
        part.expect("it is sound")
    };
    let parts: BTreeMap<u64, Vec<u8>> = (0..count).map(|replica| (replica, fetch(&one, replica))).collect();
    let kept: usize = super::lock(&log.state).ready.iter().map(|(of, _)| of.1 as usize).sum();
    assert!(kept <= 2 * DIVIDED_BYTES_MAX && kept > DIVIDED_BYTES_MAX / 2, "{kept}");
    for (replica, part) in parts {
        assert!(fetch(&other, replica) == part);
    }
    assert!(reads.load(Ordering::Relaxed) < 2 * count as usize, "the latest ones were there");
}
