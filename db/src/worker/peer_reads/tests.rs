//! Tests that a worker answers other servers with objects that the named tenant may read here, and nothing else; and
//! which answers wait for the disk.

use std::sync::Arc;

use cluster::remote::message::{Answers, Question, Questions, Reply};
use control::Durability;
use store::{AwaitedCuts, Condition, Config, Core, HashRange, Quota, Store, Table, TableOptions};
use wire::TenantId;

use super::answer;
use crate::limits::REMOTE_ANSWER_BYTES;
use crate::metrics::{Counter, WorkerMetrics};
use crate::ops::WorkerEnvironment;
use crate::sync::oneshot::oneshot;
use crate::tablet::{Parts, TableEntry, Tables};
use crate::tenant::account::Account;
use crate::view::change::{PeerAnswer, PeerReads};

/// The owner's table, and the number by which it is granted to another tenant.
const TABLE: u32 = 1;
const GRANTED: u32 = 2;
const OWNER: u32 = 1;
const OTHER: u32 = 2;

struct Here {
    core: Core,
    tables: Tables,
    metrics: WorkerMetrics,
    part: Arc<Table>,
}

impl Here {
    /// A table of which the lower half of all hashes is here.
    fn new() -> Self {
        Self::with(Durability::Memory)
    }

    fn with(durability: Durability) -> Self {
        let durable = durability != Durability::Memory;
        let config = Config {
            memory_bytes: 16 << 20,
            segment_bytes: 2 << 20,
            cores: 1,
            huge_pages: false,
            durable,
            recovery_cores: 0,
        };
        let store = Store::new(config).expect("a small store");
        let hashes = HashRange::new(0, (1 << 63) - 1).expect("a half");
        let quota = Arc::new(Quota::new(1, u64::MAX));
        let part = store.table_with(7, TableOptions { hashes, durable, ..TableOptions::default() }, &quota);
        part.set_synced(durability == Durability::Synced);
        let parts = Parts::new(TableOptions::default(), vec![Arc::clone(&part)], &[hashes]).expect("a half");
        let mut tables = Tables::default();
        for (id, tenant, name) in [(TABLE, OWNER, "data"), (GRANTED, OTHER, "owner/data")] {
            let owner = Arc::new(Account::new(TenantId(OWNER)));
            let (tenant, name, parts) = (TenantId(tenant), name.into(), parts.clone());
            tables.insert(Arc::new(TableEntry {
                id,
                tenant,
                name,
                writable: false,
                durability,
                owner,
                parts,
                map: None,
            }));
        }
        Self { core: store.core(0), tables, metrics: WorkerMetrics::new(), part }
    }

    fn put(&self, key: &[u8], value: &[u8]) -> u64 {
        let pin = self.core.pin();
        pin.put(&self.part, store::hash(key), key, value, Condition::Always).expect("a put")
    }

    /// Says that the disk has all.
    fn sync(&self) {
        let mut positions = Vec::new();
        let (number, _) = self.core.store().cut(&mut positions);
        self.core.store().note_stable(number, &positions);
    }

    fn answer(&self, record: &[u8]) -> Option<PeerAnswer> {
        let pin = self.core.pin();
        let environment = WorkerEnvironment {
            core: &self.core,
            pin: &pin,
            tables: &self.tables,
            metrics: &self.metrics,
            remote: None,
            now_us: 1,
            wall_ms: 1,
        };
        let (sender, receiver) = oneshot();
        answer(&environment, &PeerReads { record: record.to_vec(), answer: sender });
        receiver.try_receive().expect("an answer")
    }

    /// Returns the answers for these keys to a tenant.
    fn ask(&self, tenant: u32, table: u32, keys: &[&[u8]]) -> Vec<u8> {
        let answer = self.answer(record(tenant, table, keys, false).bytes());
        answer.and_then(|answer| answer.now).expect("answers that wait for nothing")
    }

    /// Returns whether the answer about a key waits for the disk.
    fn waits(&self, key: &[u8], for_disk: bool) -> bool {
        let answer = self.answer(record(OWNER, TABLE, &[key], for_disk).bytes()).expect("answers");
        assert_ne!(answer.now.is_some(), answer.of_cut.is_some());
        answer.of_cut.is_some_and(|answer| !answer.cuts.are_reached(self.core.store().reached_cuts()))
    }
}

/// A tenant's questions for these keys, by number.
fn record(tenant: u32, table: u32, keys: &[&[u8]], for_disk: bool) -> Questions {
    let mut questions = Questions::new(for_disk);
    for (number, key) in (0..).zip(keys) {
        questions.push(&Question { number, tenant, table, key });
    }
    questions
}

/// The first keys of a half of all hashes.
fn keys(is_upper: bool, count: usize) -> Vec<Vec<u8>> {
    let all = (0..u32::MAX).map(|number| number.to_le_bytes().to_vec());
    all.filter(|key| (store::hash(key) >> 63 == 1) == is_upper).take(count).collect()
}

#[test]
fn a_tenant_reads_its_own_tables_and_those_granted_to_it_whoever_asks() {
    let here = Here::new();
    let (low, high) = (keys(false, 2), keys(true, 1));
    let version = here.put(&low[0], b"value");
    let asked = [&low[0][..], &low[1], &high[0]];
    for (tenant, table) in [(OWNER, TABLE), (OTHER, GRANTED)] {
        let expected = [
            (0, Reply::Found { version, value: b"value" }),
            (1, Reply::Absent),
            // Another server's.
            (2, Reply::NotOwned),
        ];
        assert_eq!(Answers::decode(&here.ask(tenant, table, &asked)), Ok(expected.to_vec()));
    }
    for (tenant, table) in [(OTHER, TABLE), (OWNER, GRANTED), (3, TABLE), (OWNER, 99)] {
        let refused = (0..3).map(|number| (number, Reply::NotOwned)).collect();
        assert_eq!(Answers::decode(&here.ask(tenant, table, &asked)), Ok(refused), "{tenant} {table}");
    }
    assert_eq!(here.metrics.value(Counter::RemoteReadsServed), 4);
    assert_eq!(here.metrics.value(Counter::RemoteReadBytesServed), 10);
}

#[test]
fn a_record_of_answers_has_so_many_bytes_of_values_and_the_rest_comes_later() {
    let here = Here::new();
    let low = keys(false, 4);
    let value = vec![1; REMOTE_ANSWER_BYTES / 2];
    for key in &low {
        here.put(key, &value);
    }
    let asked: Vec<&[u8]> = low.iter().map(|key| &key[..]).collect();
    let body = here.ask(OWNER, TABLE, &asked);
    let answers = Answers::decode(&body).expect("answers");
    let is_later: Vec<bool> = answers.iter().map(|(_, reply)| *reply == Reply::Later).collect();
    assert_eq!(is_later, [false, false, true, true]);
}

#[test]
fn what_is_none_of_the_protocol_ends_the_stream() {
    let here = Here::new();
    for record in [&[][..], &[2], &[1, 0], &[9; 40]] {
        assert!(here.answer(record).is_none());
    }
}

#[test]
fn an_answer_waits_for_what_it_shows_of_a_synced_table_and_of_a_written_one_if_the_other_server_asks() {
    for (durability, waits_always) in [(Durability::Synced, true), (Durability::Written, false)] {
        let here = Here::with(durability);
        let keys = keys(false, 4);
        let [old, new, gone, never] = [0, 1, 2, 3].map(|index| &keys[index][..]);
        here.put(old, b"value");
        here.put(gone, b"value");
        here.sync();
        here.put(new, b"value");
        let deleted = here
            .core
            .pin()
            .delete(&here.part, store::hash(gone), gone, Condition::Present)
            .expect("it is there");
        assert!(deleted.is_some());
        // What others have seen is theirs, before and after.
        here.core.take_seen();
        let theirs = AwaitedCuts { received: 900, stable: 1_000 };
        here.core.see(theirs);
        for key in [new, gone] {
            assert!(here.waits(key, true));
            assert_eq!(here.waits(key, false), waits_always, "{durability:?}");
        }
        for key in [old, never] {
            assert!(!here.waits(key, true) && !here.waits(key, false));
        }
        assert_eq!(here.core.take_seen(), theirs);
        here.sync();
        assert!(!here.waits(new, true) && !here.waits(gone, true));
    }
}

#[test]
fn what_waits_for_the_disk_keeps_nothing_else_of_its_record_waiting() {
    let here = Here::with(Durability::Synced);
    let keys = keys(false, 3);
    let [old, new, never] = [0, 1, 2].map(|index| &keys[index][..]);
    let old_version = here.put(old, b"old");
    here.sync();
    let new_version = here.put(new, b"new");
    here.core.take_seen();
    let asked = record(OWNER, TABLE, &[old, new, never], false);
    let PeerAnswer { now, of_cut } = here.answer(asked.bytes()).expect("answers");
    let (now, of_cut) = (now.expect("some wait for nothing"), of_cut.expect("one waits"));
    let at_once = vec![(0, Reply::Found { version: old_version, value: &b"old"[..] }), (2, Reply::Absent)];
    assert_eq!(Answers::decode(&now), Ok(at_once));
    let waits = vec![(1, Reply::Found { version: new_version, value: &b"new"[..] })];
    assert_eq!(Answers::decode(&of_cut.body), Ok(waits));
    assert_eq!(Answers::decode(&of_cut.later), Ok(vec![(1, Reply::Later)]));
    here.sync();
    assert!(of_cut.cuts.are_reached(here.core.store().reached_cuts()));
}
