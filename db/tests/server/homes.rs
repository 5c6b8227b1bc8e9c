//! Homes of tenants move away from a worker that is full, under load, and nothing is lost or repeated.

use std::time::{Duration, Instant};

use control::{AdminRequest, SessionEntry};
use net::Faults;
use wire::{Request, Status, function_hash};

use super::client::{Client, Ended};
use super::extensions::{install, is_outlived, package};
use super::stealing::{SLOW, compiling};
use super::{Site, seed};

/// Far longer than anything here takes; the test ends when it has seen what it waits for.
const PATIENCE: Duration = Duration::from_secs(300);

/// Doubles and reorders; loses so little that a worker can still be kept busy.
const UNRULY_NETWORK: Faults = Faults {
    drop_ppm: 2_000,
    duplicate_ppm: 150_000,
    reorder_ppm: 200_000,
    delay_us_min: 0,
    delay_us_max: 1_000,
};

/// A client that keeps its worker busy, with what it has asked for.
struct Load {
    client: Client,
    table: u32,
    extension: u32,
    submitted: u64,
    done: u64,
    /// Before all keys of this client.
    number: u64,
    /// Requests that were ended for their age.
    outlived: Vec<u64>,
}

impl Load {
    /// Submits as much as it may, follows its tenant's home, takes answers.
    fn step(&mut self, site: &Site, random: &mut fastrand::Rng, more: bool) {
        let mut open = more;
        while open {
            // Below a slice: what overruns counts as parked, of which a worker keeps so many only.
            let turns = random.u32(20_000..40_000).to_le_bytes();
            let key = self.key(self.submitted);
            let request = Request::Invoke {
                extension: self.extension,
                version: 0,
                function: function_hash("add"),
                table: self.table,
                key: &key,
                arguments: &turns,
            };
            open = self.client.submit(self.submitted, &request);
            self.submitted += u64::from(open);
        }
        if let Some(home) = self.client.requester.home_core() {
            self.client.server = site.cores[usize::from(home)];
        }
        self.client.step(&mut |tag, (status, body): Ended| {
            if is_outlived(status, &body) {
                self.outlived.push(tag);
            } else {
                assert_eq!(body, 1_i64.to_le_bytes(), "the function ran twice for one request");
            }
            self.done += 1;
        });
    }

    /// The key of a request.
    fn key(&self, tag: u64) -> [u8; 16] {
        let mut key = [0; 16];
        key[..8].copy_from_slice(&self.number.to_le_bytes());
        key[8..].copy_from_slice(&tag.to_le_bytes());
        key
    }

    fn home(&self) -> u16 {
        self.client.requester.home_core().unwrap_or(self.client.opened.home_core)
    }
}

#[test]
fn a_home_moves_under_load_and_every_request_runs_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let seed = seed();
    let site = compiling(directory.path(), 2, seed);
    let mut random = fastrand::Rng::with_seed(seed);
    let mut loads = Vec::new();
    // Tenants are at home one by one at each worker: of four, two share the first.
    for name in ["ann", "bob", "cid", "dan"] {
        let secret = site.create_tenant(name);
        let mut client = site.client(name, &secret);
        if client.opened.home_core != 0 {
            continue;
        }
        let table = client.create_table("t");
        let extension = install(&mut client, "slow", &package(SLOW)).expect("a good extension").extension;
        let second = site.client(name, &secret);
        for client in [client, second] {
            let number = loads.len() as u64;
            loads.push(Load {
                client,
                table,
                extension,
                submitted: 0,
                done: 0,
                number,
                outlived: Vec::new(),
            });
        }
    }
    assert_eq!(loads.len(), 4);
    site.network.set_faults(UNRULY_NETWORK);
    let deadline = Instant::now() + PATIENCE;
    while loads.iter().all(|load| load.home() == 0) {
        loads.iter_mut().for_each(|load| load.step(&site, &mut random, true));
        let busy_us = || (site.counter("busy_us"), site.counter("uptime_ms") * 1000);
        assert!(Instant::now() < deadline, "no home moved; busy and time: {:?}", busy_us());
    }
    // Some time with clients at both homes, then to the end.
    for _ in 0..500 {
        loads.iter_mut().for_each(|load| load.step(&site, &mut random, true));
    }
    while loads.iter().any(|load| load.done < load.submitted) {
        loads.iter_mut().for_each(|load| load.step(&site, &mut random, false));
        assert!(Instant::now() < deadline, "requests without an answer");
    }
    // Both sessions of the tenant that moved, and the list of sessions, agree.
    assert!(site.counter("homes_moved") >= 1);
    let list = site.administrator().ask(&AdminRequest::SessionList).expect("sessions");
    let entries = control::decode::<Vec<SessionEntry>>(&list).expect("a list");
    for load in &mut loads {
        assert_eq!(load.client.status(&Request::Ping), Status::Ok);
        let id = load.client.opened.client_id;
        let entry = entries.iter().find(|entry| entry.client_id == id).expect("it is open");
        assert_eq!(entry.home_core, load.home());
        for tag in std::mem::take(&mut load.outlived) {
            let get = Request::Get { table: load.table, key: &load.key(tag) };
            assert_eq!(load.client.status(&get), Status::NotFound, "what was ended leaves nothing");
        }
    }
}
