//! Every mutation executes once, whatever the network does.

use net::Faults;
use wire::{Condition, Request, Status, reply};

use super::client::{Client, Ended};
use super::{BAD_NETWORK, Site, seed};

fn add(client: &mut Client, table: u32, key: &[u8], count: u64) {
    let (mut submitted, mut done, mut sum) = (0, 0, 0_u64);
    let request = Request::Increment { table, key, delta: 1 };
    while done < count {
        while submitted < count && client.submit(submitted, &request) {
            submitted += 1;
        }
        client.step(&mut |_, (status, body): Ended| {
            assert_eq!(status, Ok(Status::Ok));
            sum += reply::Number::decode(&body).expect("a number").value as u64;
            done += 1;
        });
    }
    // Each execution answered another value, so the answers are 1 to `count`, in whatever order.
    assert_eq!(sum, count * (count + 1) / 2);
}

fn counters(client: &mut Client, table: u32, key: &[u8]) -> i64 {
    let (status, body) = client.call(&Request::Get { table, key });
    assert_eq!(status, Ok(Status::Ok));
    let value = reply::Object::decode(&body).expect("an object").value;
    i64::from_le_bytes(value.try_into().expect("eight bytes"))
}

#[test]
fn increments_over_a_bad_network_add_up() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start(directory.path(), seed(), 1);
    let (mut client, table) = site.tenant_with_table("ann");
    site.network.set_faults(BAD_NETWORK);
    add(&mut client, table, b"count", 20_000);
    site.network.set_faults(Faults::default());
    assert_eq!(counters(&mut client, table, b"count"), 20_000);
}

#[test]
fn two_cores_execute_copies_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start(directory.path(), seed(), 2);
    let (mut client, table) = site.tenant_with_table("ann");
    site.network.set_faults(BAD_NETWORK);
    let (mut submitted, mut done) = (0, 0);
    let request = Request::Increment { table, key: b"count", delta: 1 };
    let count = 5_000;
    while done < count {
        while submitted < count && client.submit(submitted, &request) {
            submitted += 1;
        }
        // Whatever is sent again now goes to the other core.
        client.server = site.cores[fastrand::usize(..site.cores.len())];
        client.step(&mut |_, (status, _): Ended| {
            assert_eq!(status, Ok(Status::Ok));
            done += 1;
        });
    }
    site.network.set_faults(Faults::default());
    assert_eq!(counters(&mut client, table, b"count"), count as i64);
}

#[test]
fn conditional_puts_answer_every_copy_alike() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start(directory.path(), seed(), 1);
    let (mut client, table) = site.tenant_with_table("ann");
    site.network.set_faults(BAD_NETWORK);
    let keys: Vec<[u8; 4]> = (0..500_u32).map(u32::to_le_bytes).collect();
    // Some at a time, since each waits until what is lost is sent again.
    for keys in keys.chunks(100) {
        for expected in [Status::Ok, Status::ConditionFailed] {
            for (tag, key) in (0..).zip(keys) {
                let put = Request::Put { table, key, value: b"v", condition: Condition::Absent };
                assert!(client.submit(tag, &put), "the window is open");
            }
            let mut ended = 0;
            while ended < keys.len() {
                client.step(&mut |_, (status, _): Ended| {
                    assert_eq!(status, Ok(expected), "a copy of a put must not see the put");
                    ended += 1;
                });
            }
        }
    }
}

#[test]
fn a_session_that_runs_ahead_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start(directory.path(), 1, 1);
    let (mut client, table) = site.tenant_with_table("ann");
    let request = Request::Increment { table, key: b"k", delta: 1 };
    let far = db::limits::WINDOW_RECORDS as u64 + 1;
    let refused = client.control.request(far, &request).expect_err("outside of the window");
    assert_eq!(refused.0, Status::TooManyOutstanding);
    client.control.request(1, &request).expect("inside");
}

#[test]
fn an_old_request_is_expired_and_does_not_run() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start(directory.path(), 1, 1);
    let (mut client, table) = site.tenant_with_table("ann");
    add(&mut client, table, b"k", 100);
    // The next frame acknowledges all of them.
    assert_eq!(client.status(&Request::Increment { table, key: b"k", delta: 1 }), Status::Ok);
    assert_eq!(client.status(&Request::Increment { table, key: b"k", delta: 1 }), Status::Ok);
    let again = client.control.request(5, &Request::Increment { table, key: b"k", delta: 1 });
    assert_eq!(again.expect_err("below the window").0, Status::Expired);
    assert_eq!(counters(&mut client, table, b"k"), 102);
}
