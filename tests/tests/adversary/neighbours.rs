//! Three tenants that behave, each in a thread of its own for as long as a test runs.
//!
//! The keeper knows what each of its objects holds and has it summed up by `ext/checksum`; the counter knows
//! each of its numbers; the bank transfers through `ext/ycsbt` and knows each balance. A wrong answer, or
//! none, ends the thread, and with it the test.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use client::{Client, ClientConfig};
use fastrand::Rng;
use net::IdleStrategy;
use tests::effort::rng;
use tests::server::Server;

use super::latency::Latency;
use super::stage::{in_time, install_folder};

/// Time between two requests of a neighbour, so that there is time for others.
const PAUSE: Duration = Duration::from_millis(1);
/// Fewer requests in a whole test mean that a neighbour was kept from its work.
const REQUESTS_MIN: usize = 20;
/// Objects of the keeper that change, and those that do not.
const CHANGING: u32 = 100;
const CONSTANT: u32 = 64;
/// Numbers of the counter.
const NUMBERS: usize = 8;
/// Accounts of the bank, and what each begins with.
const ACCOUNTS: usize = 12;
const BALANCE: i64 = 1_000;

/// Longest time until all of them have set up what they need, which compiles.
const SETTING_UP: Duration = Duration::from_secs(600);

/// How a neighbour and the test hear of each other.
struct Signals {
    ready: Sender<()>,
    stop: Arc<AtomicBool>,
}

/// The three, at work.
pub struct Neighbours {
    stop: Arc<AtomicBool>,
    threads: Vec<(&'static str, JoinHandle<Latency>)>,
}

impl Neighbours {
    /// Sets the tenants up; all are at work when this returns.
    pub fn begin(server: &Server) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let mut random = rng();
        let mut threads = Vec::new();
        let (ready, at_work) = channel();
        let mut start = |name, work: fn(Client, Rng, &Signals) -> Latency| {
            let (client, random) = (patient(server, name), random.fork());
            let signals = Signals { ready: ready.clone(), stop: stop.clone() };
            let thread =
                thread::Builder::new().name(name.into()).spawn(move || work(client, random, &signals));
            threads.push((name, thread.expect("a thread")));
        };
        start("keeper", keep);
        start("counter", count);
        start("bank", transfer);
        for _ in &threads {
            at_work.recv_timeout(SETTING_UP).expect("the neighbours can set up what they need");
        }
        Self { stop, threads }
    }

    /// Stops them; all their answers were right, and there were some. Prints how long these took.
    pub fn end(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for (name, thread) in self.threads.drain(..) {
            let mut latency = thread.join().unwrap_or_else(|_| panic!("{name} got a wrong answer, or none"));
            latency.print(name);
            assert!(latency.count() >= REQUESTS_MIN, "{name} was served {} times", latency.count());
        }
    }

    /// Nobody has seen a wrong answer so far.
    pub fn are_well(&self) {
        for (name, thread) in &self.threads {
            assert!(!thread.is_finished(), "{name} got a wrong answer, or none");
        }
    }
}

impl Drop for Neighbours {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for (_, thread) in self.threads.drain(..) {
            // A test that fails has said why; what they say besides is printed by their own panics.
            let _ = thread.join();
        }
    }
}

/// A client of a fresh tenant that sleeps at once while it waits, to leave the processors to others.
fn patient(server: &Server, name: &str) -> Client {
    let tenant = server.tenant(name);
    let idle = IdleStrategy { spin_us: 0, yield_until_us: 0 };
    let config = ClientConfig { idle, ..tests::server::patient() };
    let address = server.address().to_string();
    Client::connect_with(&address, &tenant.name, &tenant.secret, config).expect("the tenant is let in")
}

/// Repeats until told to stop, and once at least for each kind of request.
fn repeat(signals: &Signals, mut work: impl FnMut(usize, &mut Latency)) -> Latency {
    let mut latency = Latency::default();
    // A test that has failed meanwhile does not listen any more.
    let _ = signals.ready.send(());
    while !signals.stop.load(Ordering::Relaxed) || latency.count() < REQUESTS_MIN {
        work(latency.count(), &mut latency);
        thread::sleep(PAUSE);
    }
    latency
}

fn keep(mut client: Client, mut random: Rng, signals: &Signals) -> Latency {
    let table = client.table_create("objects").expect("a table");
    install_folder(&mut client, "checksum");
    let mut list = Vec::new();
    for number in 0..CONSTANT {
        let key = (CHANGING + number).to_le_bytes();
        client.put(table, &key, &[number as u8; 100]).expect("a put");
        list.extend([&[4, 0], &key[..]].concat());
    }
    let checksum = in_time(|| client.invoke("checksum.checksum", table, b"", &list)).expect("a checksum");
    assert_eq!(checksum[4..8], CONSTANT.to_le_bytes(), "all are found");
    let mut model: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
    repeat(signals, |round, latency| {
        let number = random.u32(0..CHANGING);
        let key = number.to_le_bytes();
        match random.u8(0..10) {
            0..4 => {
                let value = vec![round as u8; random.usize(0..700)];
                latency.of(|| client.put(table, &key, &value)).expect("a put");
                model.insert(number, value);
            }
            4 => {
                let deleted = latency.of(|| client.delete(table, &key)).expect("a delete");
                assert_eq!(deleted.is_some(), model.remove(&number).is_some(), "object {number}");
            }
            5 => {
                let sum = latency.of(|| in_time(|| client.invoke("checksum.checksum", table, b"", &list)));
                assert_eq!(sum.expect("a checksum"), checksum, "of objects that do not change");
            }
            _ => {
                let found = latency.of(|| client.get(table, &key)).expect("a get");
                let value = found.map(|object| object.value);
                assert_eq!(value.as_ref(), model.get(&number), "object {number}");
            }
        }
    })
}

fn count(mut client: Client, mut random: Rng, signals: &Signals) -> Latency {
    let table = client.table_create("numbers").expect("a table");
    let mut numbers = [(0_i64, 0_u64); NUMBERS];
    repeat(signals, |_, latency| {
        let at = random.usize(0..NUMBERS);
        let (value, version) = &mut numbers[at];
        let key = [at as u8];
        if *version > 0 && random.bool() {
            let found = latency.of(|| client.get(table, &key)).expect("a get").expect("it was written");
            assert_eq!(found.value, value.to_le_bytes(), "number {at}");
            assert_eq!(found.version, *version, "of number {at}");
            return;
        }
        let delta = random.i64(-1_000..1_000);
        let (sum, newer) = latency.of(|| client.increment(table, &key, delta)).expect("an increment");
        assert_eq!(sum, *value + delta, "number {at}");
        assert!(newer > *version, "versions grow");
        (*value, *version) = (sum, newer);
    })
}

fn transfer(mut client: Client, mut random: Rng, signals: &Signals) -> Latency {
    let table = client.table_create("accounts").expect("a table");
    install_folder(&mut client, "ycsbt");
    let mut accounts = [(BALANCE, 0_u64); ACCOUNTS];
    for number in 0..ACCOUNTS as u64 {
        let key = number.to_le_bytes();
        in_time(|| client.invoke("ycsbt.open", table, &key, &BALANCE.to_le_bytes())).expect("opened");
    }
    repeat(signals, |round, latency| {
        if round % 50 == 49 {
            let range = [&0_u64.to_le_bytes()[..], &(ACCOUNTS as u32).to_le_bytes()].concat();
            let answer = latency.of(|| in_time(|| client.invoke("ycsbt.audit", table, b"", &range)));
            let answer = answer.expect("an audit");
            let total = BALANCE * ACCOUNTS as i64;
            assert_eq!(answer[..8], total.to_le_bytes(), "money was made or lost");
            let transfers: u64 = accounts.iter().map(|account| account.1).sum();
            assert_eq!(answer[8..16], transfers.to_le_bytes());
            return;
        }
        let from = random.usize(0..ACCOUNTS);
        let to = (from + random.usize(1..ACCOUNTS)) % ACCOUNTS;
        let amount = random.i64(0..=accounts[from].0);
        let order = [amount.to_le_bytes(), (to as u64).to_le_bytes()].concat();
        let key = (from as u64).to_le_bytes();
        let reply = latency.of(|| in_time(|| client.invoke("ycsbt.transfer", table, &key, &order)));
        let reply = reply.expect("a transfer");
        accounts[from] = (accounts[from].0 - amount, accounts[from].1 + 1);
        accounts[to].0 += amount;
        let expected = [accounts[from].0.to_le_bytes(), accounts[from].1.to_le_bytes()].concat();
        assert_eq!(reply, expected, "account {from} after a transfer");
    })
}
