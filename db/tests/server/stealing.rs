//! Several workers: idle ones help the loaded, and nobody notices but by the time it takes.

use std::time::{Duration, Instant};

use net::Faults;
use wire::{AdminRequest, Body, Request, Statistic, Status, reply};

use super::client::{Client, Ended};
use super::{BAD_NETWORK, Site, seed};

/// Far longer than anything here takes; the tests end when they have seen what they wait for.
const PATIENCE: Duration = Duration::from_secs(120);

/// A counter of all workers.
fn counter(site: &Site, name: &str) -> u64 {
    let answer = site.administrator().ask(&AdminRequest::Statistics { tenant: None }).expect("statistics");
    let statistics = Vec::<Statistic>::decode(&answer).expect("statistics");
    statistics.iter().find(|statistic| statistic.name == name).expect("a counter of this name").value
}

/// Adds one to `key` again and again, with as many requests outstanding as the session may have, until
/// `enough`; returns how often. Every answer is another number, and together they are all numbers.
fn add_until(client: &mut Client, table: u32, key: &[u8], mut enough: impl FnMut(&Client) -> bool) -> u64 {
    let request = Request::Increment { table, key, delta: 1 };
    let (mut submitted, mut sum, mut done) = (0_u64, 0_u64, 0_u64);
    let mut over = false;
    while !over || done < submitted {
        over = over || (done > 0 && enough(client));
        while !over && client.submit(submitted, &request) {
            submitted += 1;
        }
        client.step(&mut |_, (status, body): Ended| {
            assert_eq!(status, Ok(Status::Ok));
            sum += reply::Number::decode(&body).expect("a number").value as u64;
            done += 1;
        });
    }
    assert_eq!(sum, done * (done + 1) / 2, "each increment ran once");
    done
}

/// Clients of one tenant each flood that tenant's home core until frames were taken there by another worker.
fn flood_until_stolen(cores: usize, faults: Faults) {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start(directory.path(), seed(), cores);
    let secret = site.create_tenant("ann");
    let mut first = site.client("ann", &secret);
    let table = first.create_table("t");
    let others: Vec<Client> = (0..3).map(|_| site.client("ann", &secret)).collect();
    site.network.set_faults(faults);
    let deadline = Instant::now() + PATIENCE;
    std::thread::scope(|scope| {
        for (number, mut client) in others.into_iter().chain([first]).enumerate() {
            let site = &site;
            scope.spawn(move || {
                let mut rounds = 0_u32;
                add_until(&mut client, table, format!("count {number}").as_bytes(), |client| {
                    // Whom the answers came from: all from the port to which the requests went.
                    assert!(client.answered_by.iter().all(|&from| from == client.server));
                    rounds += 1;
                    assert!(Instant::now() < deadline, "no frame was stolen");
                    rounds.is_multiple_of(64) && counter(site, "frames_stolen") > 100
                });
            });
        }
    });
}

#[test]
fn an_idle_worker_takes_frames_from_a_loaded_one_and_answers_from_its_port() {
    flood_until_stolen(2, Faults::default());
}

#[test]
fn increments_execute_once_when_copies_of_them_are_stolen() {
    flood_until_stolen(2, BAD_NETWORK);
}

#[test]
fn four_workers_that_help_each_other_execute_every_increment_once() {
    flood_until_stolen(4, BAD_NETWORK);
}
