//! Reads of keys on the move between two fake servers: both are asked, and what holds is taken.
//!
//! Which of them answers first nobody knows, nor when: where it matters that both are heard, the session waits for the
//! source for as long as for anything else.

use std::time::Duration;

use splinter_client::{ClientConfig, Completion, Request, Session, SessionGroup, Status};
use wire::reply::{ARRIVED_BYTES_MAX, Arrived, Left, Object, StaleRead};
use wire::{Body, Moving, ServerPlace, Tablet, TabletMap};
use xxhash_rust::xxh3::xxh3_64;

use crate::fake::pair::{TABLE, server};
use crate::fake::server::{FakeServer, SECRET, TENANT};

const MIGRATION: u32 = 9;

/// The source, which has given everything away, and the target, which owns it.
struct Pair {
    source: FakeServer,
    target: FakeServer,
}

fn object(value: &[u8]) -> Vec<u8> {
    let object = Object { version: 3, ttl_ms: None, value };
    let mut body = vec![0; object.body_bytes()];
    object.encode(&mut body);
    body
}

fn frozen(migration: u32, left: Left<'_>) -> (Status, Vec<u8>) {
    let frozen = StaleRead { migration, left };
    let mut body = vec![0; frozen.body_bytes()];
    frozen.encode(&mut body);
    (Status::Frozen, body)
}

/// What an owner answers, behind what has arrived.
fn owned(status: Status, arrived: &[(u64, u64)], rest: &[u8]) -> (Status, Vec<u8>) {
    let mut place = [0; ARRIVED_BYTES_MAX];
    (status, [Arrived::encode(arrived.iter().copied(), &mut place), rest].concat())
}

fn not_arrived(migration: u32) -> (Status, Vec<u8>) {
    owned(Status::NotArrived, &[], &migration.to_le_bytes())
}

impl Pair {
    fn new() -> Pair {
        let (source, target) = (server(), server());
        let place =
            |number: u32, server: &FakeServer| ServerPlace { number, address: server.address.clone() };
        let tablets = vec![Tablet { last: u64::MAX, server: 0 }];
        let map = TabletMap::new(5, vec![place(7, &target), place(4, &source)], tablets).unwrap();
        let moving = Moving { migration: MIGRATION, first: 0, last: u64::MAX, source: 1 };
        let map = map.with_moving(vec![moving]).unwrap().encode();
        source.world().owned = vec![];
        (source.world().map, target.world().map) = (map.clone(), map);
        let pair = Pair { source, target };
        pair.say(b"first", owned(Status::Ok, &[], &object(b"")), frozen(MIGRATION, Left::Absent));
        pair.put(b"first", b"");
        pair
    }

    /// What the target has, for who waits.
    fn put(&self, key: &[u8], value: &[u8]) {
        self.target.world().objects.insert((TABLE, key.to_vec()), (3, value.to_vec()));
    }

    /// What both say of a key to who does not wait.
    fn say(&self, key: &[u8], target: (Status, Vec<u8>), source: (Status, Vec<u8>)) {
        self.target.world().now.insert(key.to_vec(), target);
        self.source.world().now.insert(key.to_vec(), source);
    }

    /// How often source and target were asked so.
    fn asked(&self, key: &[u8]) -> [u64; 2] {
        [&self.source, &self.target].map(|it| it.world().asked_now.get(key).copied().unwrap_or_default())
    }

    /// Requests that the target has executed for who waits.
    fn waited(&self) -> u64 {
        self.target.world().executions
    }

    /// A session that has sessions with both, and the map.
    fn session(&self) -> Session {
        self.session_with(patient())
    }

    fn session_with(&self, config: ClientConfig) -> Session {
        let mut session = Session::open(&self.source.address, TENANT, SECRET, config).unwrap();
        assert_eq!(get(&mut session, b"first"), (Status::Ok, object(b"")));
        session
    }
}

/// Settings of who hears what the source has to say, however long that takes.
fn patient() -> ClientConfig {
    let timeout = Duration::from_secs(60);
    ClientConfig { call_timeout: timeout, source_patience: timeout, ..ClientConfig::default() }
}

fn get(session: &mut Session, key: &[u8]) -> (Status, Vec<u8>) {
    session.submit(&Request::Get { table: TABLE, key }, 1).unwrap();
    let mut answer = None;
    while answer.is_none() {
        let take = &mut |completion: Completion<'_>| {
            let status = completion.status.expect("an answer");
            assert!(answer.replace((status, completion.body.to_vec())).is_none(), "one completion");
        };
        session.poll_waiting(take).unwrap();
    }
    answer.unwrap()
}

#[test]
fn what_was_frozen_is_taken_where_the_target_of_the_same_migration_knows_nothing() {
    let pair = Pair::new();
    let there = frozen(MIGRATION, Left::Object(Object { version: 3, ttl_ms: None, value: b"frozen" }));
    pair.say(b"there", not_arrived(MIGRATION), there);
    pair.say(b"absent", not_arrived(MIGRATION), frozen(MIGRATION, Left::Absent));
    let mut session = pair.session();
    let before = pair.waited();
    assert_eq!(get(&mut session, b"there"), (Status::Ok, object(b"frozen")));
    assert_eq!(get(&mut session, b"absent"), (Status::NotFound, vec![]));
    assert_eq!((pair.waited(), pair.asked(b"there")), (before, [1, 1]));
}

#[test]
fn what_was_frozen_by_another_migration_is_not_taken() {
    let pair = Pair::new();
    let old = frozen(MIGRATION - 1, Left::Object(Object { version: 2, ttl_ms: None, value: b"old" }));
    pair.say(b"key", not_arrived(MIGRATION), old);
    pair.put(b"key", b"new");
    let mut session = pair.session();
    assert_eq!(get(&mut session, b"key"), (Status::Ok, object(b"new")));
}

#[test]
fn what_the_target_knows_is_taken_and_the_source_not_asked_again() {
    let pair = Pair::new();
    let old = || frozen(MIGRATION, Left::Object(Object { version: 2, ttl_ms: None, value: b"old" }));
    pair.say(b"key", owned(Status::Ok, &[], &object(b"new")), old());
    pair.say(b"gone", owned(Status::NotFound, &[], &[]), old());
    pair.put(b"key", b"newer");
    let mut session = pair.session();
    assert_eq!(get(&mut session, b"key"), (Status::Ok, object(b"new")));
    assert_eq!(get(&mut session, b"gone"), (Status::NotFound, vec![]));
    assert_eq!(get(&mut session, b"key"), (Status::Ok, object(b"newer")));
    // When both have answered this, both have had whatever was asked of them before.
    pair.say(b"last", not_arrived(MIGRATION), frozen(MIGRATION, Left::Absent));
    assert_eq!(get(&mut session, b"last"), (Status::NotFound, vec![]));
    assert_eq!((pair.asked(b"key"), pair.asked(b"gone")), ([1, 1], [1, 1]));
}

#[test]
fn the_target_alone_is_asked_for_what_has_arrived() {
    let pair = Pair::new();
    let key = |is_low: bool| {
        (0_u32..).map(u32::to_le_bytes).find(|key| (xxh3_64(key) < 1 << 63) == is_low).expect("some")
    };
    let (low, high) = (key(true), key(false));
    pair.say(b"key", owned(Status::NotFound, &[(0, (1 << 63) - 1)], &[]), frozen(MIGRATION, Left::Absent));
    for key in [low, high] {
        pair.say(&key, not_arrived(MIGRATION), frozen(MIGRATION, Left::Absent));
    }
    pair.put(&low, b"low");
    let mut session = pair.session();
    assert_eq!(get(&mut session, b"key").0, Status::NotFound);
    assert_eq!(get(&mut session, &low), (Status::Ok, object(b"low")));
    assert_eq!(get(&mut session, &high).0, Status::NotFound);
    assert_eq!((pair.asked(&low), pair.asked(&high)), ([0, 0], [1, 1]));
}

#[test]
fn where_the_source_has_nothing_more_or_tells_nothing_the_target_alone_is_asked() {
    for source in [(Status::NotOwned, vec![]), frozen(MIGRATION, Left::Untold)] {
        let pair = Pair::new();
        let is_gone = source.0 == Status::NotOwned;
        pair.say(b"key", not_arrived(MIGRATION), source);
        pair.say(b"other", not_arrived(MIGRATION), frozen(MIGRATION, Left::Absent));
        pair.put(b"key", b"value");
        pair.put(b"other", b"value");
        let mut session = pair.session();
        assert_eq!(get(&mut session, b"key"), (Status::Ok, object(b"value")));
        if is_gone {
            assert_eq!(get(&mut session, b"other"), (Status::Ok, object(b"value")));
            assert_eq!(pair.asked(b"other"), [0, 0]);
        }
    }
}

#[test]
fn a_source_that_says_nothing_is_not_waited_for() {
    let pair = Pair::new();
    pair.say(b"key", not_arrived(MIGRATION), (Status::Retry, wire::reply::encode_retry(500).to_vec()));
    pair.put(b"key", b"value");
    let mut session = pair.session_with(ClientConfig::default());
    assert_eq!(get(&mut session, b"key"), (Status::Ok, object(b"value")));
}

#[test]
fn a_source_that_has_forgotten_the_session_is_not_needed() {
    let pair = Pair::new();
    pair.say(b"key", not_arrived(MIGRATION), frozen(MIGRATION, Left::Absent));
    pair.put(b"key", b"value");
    let mut session = pair.session();
    pair.source.restart();
    assert_eq!(get(&mut session, b"key"), (Status::Ok, object(b"value")));
}

#[test]
fn a_group_of_sessions_asks_both_at_once() {
    let pair = Pair::new();
    let there = frozen(MIGRATION, Left::Object(Object { version: 3, ttl_ms: None, value: b"frozen" }));
    pair.say(b"there", not_arrived(MIGRATION), there);
    let mut group = SessionGroup::new(patient()).unwrap();
    let members = [(); 3].map(|()| group.open(&pair.source.address, TENANT, SECRET).unwrap());
    // By the first key they come to know of the target.
    for key in [&b"first"[..], b"there", b"there"] {
        for member in members {
            group.submit(member, &Request::Get { table: TABLE, key }, 7).unwrap();
        }
        let mut answers = Vec::new();
        while answers.len() < members.len() {
            let take = &mut |_, completion: Completion<'_>| answers.push(completion.body.to_vec());
            group.poll(take).unwrap();
        }
        let value = if key == b"there" { object(b"frozen") } else { object(b"") };
        assert!(answers.iter().all(|answer| *answer == value), "{answers:?}");
    }
    assert_eq!(pair.asked(b"there"), [6, 6]);
}
