//! Requests for a table that is on its way here: workers serve it while its objects are in another store, and who pulls
//! brings them in any order and at any pace.

mod client;
mod driver;
#[path = "../support/seed.rs"]
mod seed;
mod site;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use db::limits::TENANT_PENDING_REQUESTS_MAX;
use db::metrics::Counter;
use db::session::Claim;
use db::sync::oneshot::NoValue;
use db::view::change::Change;
use net::Faults;
use store::{HashRange, TableOptions};
use wire::{Condition, KeyRange, Keys, Request, Status, reply};

use client::Client;
use driver::Driver;
use seed::seed;
use site::{PARTITIONS, Site, Source, TABLE, VIEW};

/// Loss, copies, and disorder.
const BAD_NETWORK: Faults = Faults {
    drop_ppm: 100_000,
    duplicate_ppm: 150_000,
    reorder_ppm: 200_000,
    delay_us_min: 0,
    delay_us_max: 3_000,
};

fn key(number: u32) -> Vec<u8> {
    format!("key {number}").into_bytes()
}

/// What a key holds: two thirds of them their number.
fn held(number: u32) -> Option<i64> {
    (!number.is_multiple_of(3)).then_some(i64::from(number))
}

/// Those, and one half of the other keys, which were removed again.
fn objects(count: u32) -> impl Iterator<Item = (Vec<u8>, Option<i64>)> {
    (0..count).filter(|number| number % 6 > 0).map(|number| (key(number), held(number)))
}

#[test]
fn every_request_is_answered_rightly_while_its_objects_arrive() {
    let seed = seed();
    for round in 0..6 {
        let mut random = fastrand::Rng::with_seed(seed ^ round);
        let count = [40, 600, 3_000][round as usize % 3];
        let source = Source::with(objects(count));
        let site = Site::expecting(&source, TableOptions::default(), random.u64(..));
        if round % 2 == 1 {
            site.network.set_faults(BAD_NETWORK);
        }
        let seeds: [u64; 3] = std::array::from_fn(|_| random.u64(..));
        thread::scope(|scope| {
            for (number, seed) in (0..2).zip(seeds) {
                let own = (0..count).filter(|key| key % 2 == number);
                let own = own.map(|number| (key(number), held(number))).collect();
                let site = &site;
                scope.spawn(move || {
                    let mut client = Client::new(site, u64::from(number) + 1, own);
                    client.run(6_000, seed);
                });
            }
            let (site, source) = (&site, &source);
            scope.spawn(move || {
                while site.total(Counter::RequestsParked) == 0 {
                    thread::yield_now();
                }
                Driver::new(site, source).run(seeds[2]);
            });
        });
        site.until_waiting(0);
    }
}

#[test]
fn what_needs_nothing_of_the_old_object_does_not_wait() {
    let source = Source::with(objects(10));
    let site = Site::expecting(&source, TableOptions::default(), 1);
    let session = site.session(1);
    let (table, key, condition) = (TABLE, &key(1)[..], Condition::Always);
    let ask = |sequence, request: &Request<'_>| {
        let answered = site.stream_request(&session, (0, VIEW, sequence), request);
        answered.receive().expect("an answer").status
    };
    assert_eq!(ask(1, &Request::Put { table, key, value: &[1; 8], condition }), Status::Ok);
    assert_eq!(ask(2, &Request::Get { table, key }), Status::Ok);
    assert_eq!(ask(3, &Request::Increment { table, key, delta: 1 }), Status::Ok);
    assert_eq!(ask(4, &Request::Delete { table, key, condition }), Status::Ok);
    assert_eq!(ask(5, &Request::Get { table, key }), Status::NotFound);
    assert_eq!(ask(6, &Request::PutFor { table, key, value: b"", condition, ttl_ms: 60_000 }), Status::Ok);
    assert_eq!((site.waiting(), site.total(Counter::RequestsParked)), (0, 0));
}

#[test]
fn a_cut_that_takes_the_range_away_leaves_no_trace_of_what_waits() {
    let source = Source::with(objects(10));
    let site = Site::expecting(&source, TableOptions::default(), 1);
    let session = site.session(1);
    let keys = [key(1), key(2)];
    let add = Request::Increment { table: TABLE, key: &keys[0], delta: 1 };
    let waiting = [
        site.stream_request(&session, (0, VIEW, 1), &add),
        site.stream_request(&session, (1, VIEW, 2), &Request::Get { table: TABLE, key: &keys[1] }),
    ];
    site.until_waiting(2);
    assert_eq!(session.ring.look(1), Claim::InFlight);
    let view = site.cut(&[]);
    for answered in waiting {
        let status = answered.receive().expect("an answer").status;
        assert!(matches!(status, Status::WrongView | Status::Retry), "{status:?}");
    }
    site.until_waiting(0);
    assert_eq!(session.ring.look(1), Claim::Execute);
    let again = site.stream_request(&session, (0, view, 1), &add).receive().expect("an answer");
    assert_eq!(again.status, Status::NotOwned);
    assert_eq!(site.part.objects(), 0);
    // The range comes back: the same sequence is executed once all has arrived.
    let view = site.cut(&[HashRange::ALL]);
    let again = site.stream_request(&session, (1, view, 1), &add);
    site.until_waiting(1);
    Driver::new(&site, &source).run(5);
    assert_eq!(again.receive().expect("an answer").status, Status::Ok);
}

#[test]
fn a_session_that_ends_leaves_nothing_waiting_and_others_wait_on() {
    let source = Source::with(objects(10));
    let site = Site::expecting(&source, TableOptions::default(), 1);
    let (session, other) = (site.session(1), site.session(2));
    let key = key(1);
    let add = Request::Increment { table: TABLE, key: &key, delta: 1 };
    let first = site.stream_request(&session, (0, VIEW, 1), &add);
    let second = site.stream_request(&other, (0, VIEW, 1), &add);
    site.until_waiting(2);
    session.close();
    site.tell(&Change::SessionClosed(session.token));
    assert_eq!(first.receive().expect("an answer").status, Status::BadToken);
    site.until_waiting(1);
    assert_eq!(second.try_receive(), Err(NoValue::Yet));
    assert_eq!(Driver::new(&site, &source).pull_wanted(16), 1, "both want the same");
    let sum = second.receive().expect("an answer");
    assert_eq!(reply::Number::decode(&sum.body).map(|sum| sum.value), Ok(2), "one of them was executed");
}

#[test]
fn a_multi_get_waits_for_all_its_objects_and_copies_of_what_waits_get_one_answer() {
    let source = Source::with(objects(100));
    let site = Site::expecting(&source, TableOptions::default(), 1);
    let session = site.session(1);
    let all: Vec<Vec<u8>> = (0..100).map(key).collect();
    let slices: Vec<&[u8]> = all.iter().map(|key| &key[..]).collect();
    let request = Request::MultiGet { table: TABLE, keys: Keys::from_slices(&slices) };
    let copy = site.stream_request(&session, (0, VIEW, 1), &request);
    site.until_waiting(1);
    let answered = site.stream_request(&session, (0, VIEW, 1), &request);
    assert!(copy.receive().is_err(), "the copy took its place");
    let mut driver = Driver::new(&site, &source);
    while driver.pull_wanted(7) > 0 {}
    let answer = answered.receive().expect("an answer");
    let found =
        reply::Objects::decode(&answer.body).expect("objects").filter(|entry| entry.status == Status::Ok);
    assert_eq!((answer.status, found.count()), (Status::Ok, 66));
    assert_eq!(driver.priority_hashes, 100);
    let again = site.stream_request(&session, (1, VIEW, 2), &request).receive().expect("an answer");
    assert_eq!(again, answer, "what was pulled is known to be absent, before its partition has come");
}

#[test]
fn beyond_its_share_a_tenant_is_told_to_come_again_and_keeps_no_record() {
    let source = Source::with(objects(10));
    let site = Site::expecting(&source, TableOptions::default(), 1);
    let sessions: Vec<_> = (1..=9).map(|token| site.session(token)).collect();
    let key = key(1);
    let add = Request::Increment { table: TABLE, key: &key, delta: 1 };
    let mut waiting = Vec::new();
    for session in &sessions {
        waiting.extend((1..=256).map(|sequence| site.stream_request(session, (0, VIEW, sequence), &add)));
    }
    let beyond = waiting.len() - TENANT_PENDING_REQUESTS_MAX;
    site.until_waiting(TENANT_PENDING_REQUESTS_MAX as u64);
    let refused = waiting.split_off(TENANT_PENDING_REQUESTS_MAX);
    assert_eq!(refused.len(), beyond);
    assert!(refused.iter().all(|answered| answered.receive().expect("an answer").status == Status::Retry));
    assert_eq!(sessions[8].ring.look(256), Claim::Execute);
    Driver::new(&site, &source).pull_wanted(16);
    let sums = waiting.iter().map(|answered| {
        let answer = answered.receive().expect("an answer");
        assert_eq!(answer.status, Status::Ok);
        reply::Number::decode(&answer.body).expect("a number").value
    });
    let mut sums: Vec<i64> = sums.collect();
    sums.sort_unstable();
    assert!(sums.iter().zip(2..).all(|(&sum, expected)| sum == expected), "each was executed once");
}

#[test]
fn what_nobody_brings_is_told_to_come_again() {
    let source = Source::with(objects(10));
    let site = Site::expecting(&source, TableOptions::default(), 1);
    let session = site.session(1);
    let key = key(1);
    let get = Request::Get { table: TABLE, key: &key };
    let answer = site.stream_request(&session, (0, VIEW, 1), &get).receive().expect("an answer");
    assert_eq!(answer.status, Status::Retry);
    assert!(reply::decode_retry(&answer.body).is_ok());
    site.until_waiting(0);
    assert_eq!(site.total(Counter::RequestsOverdue), 1);
}

#[test]
fn a_worker_that_stops_answers_what_waits() {
    let source = Source::with(objects(10));
    let site = Site::expecting(&source, TableOptions::default(), 1);
    let session = site.session(1);
    let key = key(1);
    let answered = site.stream_request(&session, (1, VIEW, 1), &Request::Get { table: TABLE, key: &key });
    site.until_waiting(1);
    drop(site);
    assert_eq!(answered.receive().expect("an answer").status, Status::Retry);
}

#[test]
fn enumerations_go_as_far_as_objects_have_arrived_and_scans_wait_for_all() {
    let source = Source::with(objects(3_000));
    let site = Site::expecting(
        &source,
        TableOptions { kind: store::TableKind::Ordered, ..TableOptions::default() },
        1,
    );
    let session = site.session(1);
    let (stop, table) = (AtomicBool::new(false), TABLE);
    let scan = Request::Scan {
        table,
        range: KeyRange::default(),
        cursor: &[],
        keys_only: true,
        objects_max: 512,
        bytes_max: 65_536,
    };
    let ask = |sequence, request: &Request<'_>| {
        site.stream_request(&session, (0, VIEW, sequence), request).receive().expect("an answer")
    };
    assert_eq!(ask(1, &scan).status, Status::Retry);
    let mut driver = Driver::new(&site, &source);
    let (mut cursor, mut met, mut sequence, mut retries) = (Vec::new(), Vec::new(), 2, 0);
    while !stop.load(Ordering::Relaxed) {
        let request = Request::Enumerate {
            table,
            cursor: &cursor,
            keys_only: true,
            objects_max: 100,
            bytes_max: 65_536,
        };
        let answer = ask(sequence, &request);
        sequence += 1;
        if answer.status == Status::Retry {
            retries += 1;
            (0..PARTITIONS).find(|&partition| driver.pull(partition, 2_000)).expect("something is left");
            continue;
        }
        assert_eq!(answer.status, Status::Ok);
        let listing = reply::Listing::decode(&answer.body).expect("a page");
        let next = listing.cursor().unwrap_or_default().to_vec();
        met.extend(listing.map(|listed| listed.key.to_vec()));
        cursor = next;
        stop.store(cursor.is_empty(), Ordering::Relaxed);
    }
    met.sort_unstable();
    met.dedup();
    assert_eq!((met.len(), driver.is_done()), (2_000, true));
    assert!(retries > PARTITIONS);
    assert_eq!(ask(sequence, &scan).status, Status::Ok);
}
