//! Functions that read what another server has: they wait for the answer and nobody else does, and what they may ask is
//! bounded. The other server is the test.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cluster::limits::REMOTE_READ_US_MAX;
use net::Sleeper;
use sandstorm::Error;
use sandstorm::abi::{Call, Code};
use store::{HashRange, Quota, TableOptions};
use wire::{Body, ServerPlace, Status, TabletMap, TenantId};

use super::world::{Answer as Reply, TABLE, World, function};
use crate::extension::invocation::{Invocations, LimitOverrides};
use crate::extension::{CallMode, Extension};
use crate::limits::{
    INVOCATION_REMOTE_READS_MAX, REMOTE_READ_SLACK_US, TENANT_REMOTE_BYTES_MAX, TENANT_REMOTE_READS_MAX,
};
use crate::metrics::Counter;
use crate::ops::remote::{RemoteAnswer, RemoteOutcome, RemoteReads, Want};
use crate::tablet::{Parts, TableEntry};
use crate::tenant::account::Account;
use crate::tenant::account::RemoteValue;
use crate::tenant::ledger::Entry;
use crate::tenant::limit::TenantLimit;

/// The first hash of the half that another server has.
const MIDDLE: u64 = 1 << 63;

/// A world of which the upper half of the first table is elsewhere.
struct Halved {
    world: World,
    extension: Arc<Extension>,
}

impl Halved {
    fn with(run: unsafe extern "C" fn(*mut Call) -> Code, mode: CallMode) -> Self {
        let mut world = World::new();
        let remote = RemoteReads::new(Sleeper::alone().expect("a descriptor").waker());
        world.lent.remote = Some(Arc::new(remote));
        own(&mut world, &[HashRange::new(0, MIDDLE - 1).expect("a half")]);
        Self { world, extension: World::extension(run, mode) }
    }

    fn start(&mut self, key: &[u8], arguments: &[u8], origin: u64) {
        assert!(self.world.start(&self.extension, key, arguments, origin));
    }

    /// Returns the reads requested since the last call.
    fn asked(&self) -> Vec<Want> {
        let remote = self.world.lent.remote.as_ref().expect("a queue");
        std::iter::from_fn(|| remote.take()).collect()
    }

    fn answer(&mut self, want: &Want, outcome: RemoteOutcome) {
        self.world.invocations.answer(&[RemoteAnswer { asker: want.asker, outcome }]);
    }

    fn found(&mut self, want: &Want, version: u64, value: &[u8]) {
        let value = RemoteValue::keep(want.place.account(), value).expect("room");
        self.answer(want, RemoteOutcome::Found(version, Arc::new(value)));
    }

    fn account(&self) -> &Account {
        &self.extension.account
    }

    fn counted(&self, counter: Counter, entry: Entry) -> u64 {
        let of_tenant = self.account().ledger.sums().of(entry);
        assert_eq!(self.world.lent.metrics.value(counter), of_tenant);
        of_tenant
    }
}

/// Replaces [`TABLE`] by one whose parts are halves, of which these are owned.
fn own(world: &mut World, owned: &[HashRange]) {
    let store = world.lent.core.store();
    let quota = Arc::new(Quota::new(1, u64::MAX));
    let halves = [HashRange::new(0, MIDDLE - 1), HashRange::new(MIDDLE, u64::MAX)];
    let part = |(id, hashes): (u32, Option<HashRange>)| {
        let hashes = hashes.expect("a half");
        store.table_with(id, TableOptions { hashes, ..TableOptions::default() }, &quota)
    };
    let held = (101..).zip(halves).map(part).collect();
    let map = TabletMap::whole(1, ServerPlace { number: 2, address: "10.0.0.2:7000".into() });
    world.lent.tables.insert(Arc::new(TableEntry {
        id: TABLE,
        tenant: TenantId(1),
        name: "first".into(),
        writable: true,
        durability: control::Durability::Memory,
        owner: Account::native(TenantId(1)),
        parts: Parts::new(TableOptions::default(), held, owned).expect("two halves"),
        map: Some(map.encode().into()),
    }));
}

/// The first keys of a half.
fn keys(is_upper: bool, count: usize) -> Vec<Vec<u8>> {
    let all = (0..u32::MAX).map(|number| number.to_le_bytes().to_vec());
    all.filter(|key| (store::hash(key) >= MIDDLE) == is_upper).take(count).collect()
}

/// The answers, which are those of one invocation.
fn only(ended: Vec<(u64, Reply)>) -> Reply {
    let [(_, reply)] = ended.try_into().expect("one ended");
    reply
}

function!(reads, |db, args, reply| {
    let record = db.get_record(args.table(), args.key()).await?;
    let again = db.get_record(args.table(), args.key()).await?;
    assert_eq!(record, again);
    match record {
        Some(record) => {
            reply.u64(record.version)?;
            reply.write(record.value)
        }
        None => reply.write(b"none"),
    }
});

#[test]
fn what_another_server_has_is_waited_for_without_being_polled_and_asked_for_once() {
    let mut halved = Halved::with(reads, CallMode::Read);
    let key = &keys(true, 1)[0];
    halved.start(key, b"", 1);
    assert!(halved.world.turn().is_empty());
    let [want] = &halved.asked()[..] else { panic!("one") };
    assert_eq!((want.tenant, want.table, &*want.key), (TenantId(1), TABLE, &key[..]));
    assert!(!halved.world.invocations.can_run(0), "it waits");
    assert!(halved.world.turn().is_empty() && halved.asked().is_empty());
    halved.found(want, 7, b"value");
    let expected = [&7_u64.to_le_bytes()[..], b"value"].concat();
    assert_eq!(only(halved.world.turn()), (Status::Ok, expected));
    assert_eq!(halved.asked().len(), 0, "the second read finds what the first one did");
    assert_eq!(halved.counted(Counter::RemoteReads, Entry::RemoteReads), 1);
    assert_eq!(halved.counted(Counter::RemoteReadBytes, Entry::RemoteReadBytes), 4 + 5);
    assert_eq!(halved.world.lent.metrics.value(Counter::InvocationsAsking), 1);
}

#[test]
fn what_is_asked_for_the_disk_here_is_asked_for_the_disk_there() {
    let mut halved = Halved::with(reads, CallMode::Read);
    let budget = LimitOverrides { slice_us: 3_600_000_000, ..LimitOverrides::default() };
    let invocations = Invocations::with_budget(budget).expect("stacks");
    halved.world.invocations = invocations.identifying(|_| None, |&origin| origin == 2, |_| false);
    for (key, origin) in keys(true, 3).iter().zip(1..) {
        halved.start(key, b"", origin);
        assert!(halved.world.turn().is_empty());
        let [want] = &halved.asked()[..] else { panic!("one") };
        assert_eq!(want.for_disk, origin == 2);
    }
}

#[test]
fn an_object_that_is_nowhere_is_absent_and_a_server_that_does_not_answer_is_away() {
    let mut halved = Halved::with(reads, CallMode::Read);
    let key = &keys(true, 1)[0];
    for (outcome, expected) in [
        (RemoteOutcome::Absent, (Status::Ok, b"none".to_vec())),
        (RemoteOutcome::Away, (Status::Unavailable, Vec::new())),
    ] {
        halved.start(key, b"", 1);
        assert!(halved.world.turn().is_empty());
        let want = halved.asked().pop().expect("a want");
        halved.answer(&want, outcome);
        assert_eq!(only(halved.world.turn()), expected);
    }
    assert_eq!(halved.counted(Counter::RemoteReadsUnanswered, Entry::RemoteReadsUnanswered), 1);
}

#[test]
fn who_hears_nothing_is_told_that_the_server_is_away() {
    let mut halved = Halved::with(reads, CallMode::Read);
    halved.start(&keys(true, 1)[0], b"", 1);
    assert!(halved.world.turn().is_empty());
    let late = halved.asked().pop().expect("a want");
    halved.world.lent.now_us = REMOTE_READ_US_MAX + REMOTE_READ_SLACK_US;
    assert!(halved.world.invocations.can_run(halved.world.lent.now_us));
    assert_eq!(only(halved.world.turn()).0, Status::Unavailable);
    halved.found(&late, 1, b"to nobody");
}

static HAS_COME: AtomicBool = AtomicBool::new(false);

function!(is_parked_while_it_asks, |db, args, reply| {
    let mut read = pin!(db.get(args.table(), args.key()));
    let found = poll_fn(|context| {
        let polled = read.as_mut().poll(context);
        while !HAS_COME.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
        polled
    });
    reply.write(found.await?.expect("an object"))
});

#[test]
fn what_came_while_who_asked_was_parked_is_not_waited_for() {
    let mut halved = Halved::with(is_parked_while_it_asks, CallMode::Read);
    let budget = LimitOverrides { slice_us: 50, cpu_us: u64::MAX, ..LimitOverrides::default() };
    halved.world.invocations = Invocations::with_budget(budget).expect("stacks");
    halved.start(&keys(true, 1)[0], b"", 1);
    let want = loop {
        assert!(halved.world.turn().is_empty());
        if let Some(want) = halved.asked().pop() {
            break want;
        }
    };
    halved.found(&want, 1, b"value");
    HAS_COME.store(true, Ordering::Relaxed);
    let mut ended = Vec::new();
    while ended.is_empty() {
        assert!(halved.world.invocations.can_run(0), "it waits for what it has");
        ended = halved.world.turn();
    }
    assert_eq!(only(ended), (Status::Ok, b"value".to_vec()));
}

function!(reads_several, |db, args, reply| {
    let keys: Vec<&[u8]> = args.bytes().chunks(4).collect();
    let mut records = vec![None; keys.len()];
    db.get_many(args.table(), &keys, &mut records).await?;
    for record in records {
        reply.u8(record.map_or(0, |record| record.value[0]))?;
    }
    Ok(())
});

#[test]
fn many_keys_are_asked_for_at_once_and_read_together_with_those_that_are_here() {
    let mut halved = Halved::with(reads_several, CallMode::Write);
    let (here, there) = (keys(false, 2), keys(true, 2));
    halved.world.put(TABLE, &here[0], b"h");
    let all = [&here[0], &there[0], &here[1], &there[1]].map(|key| &key[..]).concat();
    halved.start(&here[0], &all, 1);
    assert!(halved.world.turn().is_empty());
    let wants = halved.asked();
    assert_eq!(wants.iter().map(|want| &*want.key).collect::<Vec<_>>(), [&there[0][..], &there[1]]);
    halved.found(&wants[1], 1, b"t");
    assert!(halved.world.turn().is_empty(), "one is still open");
    halved.answer(&wants[0], RemoteOutcome::Absent);
    assert_eq!(only(halved.world.turn()), (Status::Ok, vec![b'h', 0, 0, b't']));
}

function!(reads_there_and_writes, |db, args, reply| {
    let table = args.table();
    let found = db.get(table, args.bytes()).await?.map_or(0, |value| value[0]);
    assert_eq!(db.put(table, args.bytes(), b"v").await, Err(Error::NotLocal));
    assert_eq!(db.increment(table, args.bytes(), 1).await, Err(Error::NotLocal));
    assert_eq!(db.delete(table, args.bytes()).await, Err(Error::NotLocal));
    db.put(table, args.key(), &[found]).await
});

#[test]
fn what_is_read_elsewhere_may_be_written_here_and_nothing_is_written_elsewhere() {
    let mut halved = Halved::with(reads_there_and_writes, CallMode::Write);
    let (here, there) = (keys(false, 1), keys(true, 1));
    halved.start(&here[0], &there[0], 1);
    assert!(halved.world.turn().is_empty());
    let want = halved.asked().pop().expect("a want");
    halved.found(&want, 1, b"t");
    assert_eq!(only(halved.world.turn()).0, Status::Ok);
    assert_eq!(halved.world.value(TABLE, &here[0]), Some(b"t".to_vec()));
}

function!(hears_that_it_is_not_local, |db, args, reply| {
    let (table, keys) = (args.table(), [args.key()]);
    assert_eq!(db.get(table, args.key()).await, Err(Error::NotLocal));
    assert_eq!(db.get_many(table, &keys, &mut [None]).await, Err(Error::NotLocal));
    Ok(())
});

#[test]
fn a_tenant_that_is_local_only_asks_nobody() {
    let mut halved = Halved::with(hears_that_it_is_not_local, CallMode::Read);
    halved.account().set_limit(TenantLimit::LocalOnly, 1);
    halved.start(&keys(true, 1)[0], b"", 1);
    assert_eq!(only(halved.world.turn()).0, Status::Ok);
    assert!(halved.asked().is_empty());
    assert_eq!(halved.counted(Counter::RemoteReadsRefused, Entry::RemoteReadsRefused), 2);
}

#[test]
fn an_object_that_came_here_meanwhile_is_read_here() {
    let mut halved = Halved::with(reads, CallMode::Read);
    let key = &keys(true, 1)[0];
    halved.start(key, b"", 1);
    assert!(halved.world.turn().is_empty());
    let want = halved.asked().pop().expect("a want");
    halved.answer(&want, RemoteOutcome::Here);
    assert!(halved.world.turn().is_empty());
    let want = halved.asked().pop().expect("this worker has not heard of it, and asks again");
    own(&mut halved.world, &[HashRange::ALL]);
    halved.answer(&want, RemoteOutcome::Here);
    assert_eq!(only(halved.world.turn()), (Status::Ok, b"none".to_vec()));
}

#[test]
fn a_tenant_with_too_much_under_way_comes_again_and_has_room_when_that_is_over() {
    let mut halved = Halved::with(reads_several, CallMode::Read);
    let there = keys(true, TENANT_REMOTE_READS_MAX + 1);
    for (index, some) in there.chunks(32).enumerate() {
        halved.start(&some[0], &some.concat(), index as u64);
    }
    let mut ended = halved.world.turn();
    let (origin, (status, _)) = ended.pop().expect("the last one");
    assert_eq!((origin, status, ended.len()), (TENANT_REMOTE_READS_MAX as u64 / 32, Status::Retry, 0));
    let wants = halved.asked();
    assert_eq!(wants.len(), TENANT_REMOTE_READS_MAX);
    for want in &wants {
        halved.answer(want, RemoteOutcome::Absent);
    }
    drop(wants);
    assert_eq!(halved.world.turn().len(), TENANT_REMOTE_READS_MAX / 32);
    halved.start(&there[0], &there[0], 1);
    assert!(halved.world.turn().is_empty() && halved.asked().len() == 1);
}

function!(reads_all, |db, args, reply| {
    for key in args.bytes().chunks(4) {
        db.get(args.table(), key).await?;
    }
    Ok(())
});

#[test]
fn one_invocation_reads_a_bounded_number_and_no_more_bytes_than_its_arena_has() {
    let mut halved = Halved::with(reads_all, CallMode::Read);
    let there = keys(true, INVOCATION_REMOTE_READS_MAX + 1).concat();
    let mut run = |value: &[u8]| {
        halved.start(b"", &there, 1);
        for read in 0.. {
            if let Some((_, (status, body))) = halved.world.turn().pop() {
                return (read, status, String::from_utf8(body).expect("text"));
            }
            let want = halved.asked().pop().expect("a want");
            halved.found(&want, 1, value);
        }
        unreachable!("it ends")
    };
    let (read, status, text) = run(b"v");
    assert_eq!((read, status), (INVOCATION_REMOTE_READS_MAX, Status::LimitExceeded));
    assert!(text.contains("remote_reads_of_an_invocation"), "{text}");
    let (read, status, text) = run(&vec![1; 300 << 10]);
    assert_eq!((read, status), (4, Status::LimitExceeded));
    assert!(text.contains("invocation_arena_bytes"), "{text}");
    let kept = vec![1; TENANT_REMOTE_BYTES_MAX];
    assert!(RemoteValue::keep(&halved.extension.account, &kept).is_some(), "nothing of it is held any more");
}
