//! Transfers in a closed economy, after YCSB+T: whatever runs at the same time, fails, is killed, lost on the way
//! or sent twice, the total never changes, and each acknowledged transfer happened exactly once.
//!
//! Clients of one tenant send to both cores of a server, so that transfers meet each other on both and in
//! between. Among the transfers are looks at the balances, functions that write a forged balance and then
//! panic, fail or never end, and native writes under a condition. An auditor adds everything up meanwhile. The server
//! crashes in [`crashes`] alone.

mod bank;
mod crashes;
pub mod network;
mod teller;

use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use client::{Client, ClientConfig, Durability};
use fastrand::Rng;
use tests::effort::{rng, rounds};

use bank::Bank;
use network::{Faults, Network};
use teller::{Ended, Teller, Work};

/// Longest wait for an answer: much longer than a busy machine and a bad network take.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);

/// A client whose datagrams go over a link of the network.
fn client(bank: &Bank, network: &Network, link: usize) -> Client {
    let address = network.address(link);
    let config =
        ClientConfig { call_timeout: CALL_TIMEOUT, core_addresses: vec![address; 2], ..Default::default() };
    let (server, tenant) = (bank.server.address().to_string(), &bank.tenant);
    Client::connect_with(&server, &tenant.name, &tenant.secret, config).expect("the bank is let in")
}

/// Lets tellers work, every other one at the other core, with an auditor; then everything must add up.
fn tellers_and_an_auditor(accounts: u64, tellers: usize, faults: Faults, work: Work) -> Ended {
    let mut random = rng();
    let bank = Bank::open(accounts, Durability::Memory);
    let cores: Vec<_> = (0..tellers).map(|teller| bank.core(teller as u16 % 2)).collect();
    let network = Network::to(&cores, faults, random.fork());
    let mut all = Ended::default();
    let (audits, rewrites) = thread::scope(|scope| {
        let auditor = scope.spawn(|| bank.watch());
        let start = |(link, random): (usize, Rng)| {
            let (bank, network) = (&bank, &network);
            scope.spawn(move || Teller::new(bank, client(bank, network, link), random).run(work))
        };
        let at_work: Vec<_> = (0..tellers).map(|link| start((link, random.fork()))).collect();
        let ended: Vec<_> = at_work.into_iter().map(thread::ScopedJoinHandle::join).collect();
        bank.is_over.store(true, Ordering::Relaxed);
        for one in &ended {
            all.add(one.as_ref().expect("a teller met something wrong"));
        }
        auditor.join().expect("the auditor met something wrong")
    });
    println!("{:?}", network.end());
    println!("{audits} audits, {rewrites} rewrites, {all:?}");
    for name in ["commit_conflicts", "preemptions", "duplicates_in_flight", "replayed", "retries"] {
        println!("{name} {}", bank.counted(name));
    }
    everything_adds_up(&bank, &all);
    assert!(faults.doubled == 0 || bank.counted("replayed") > 0, "nothing was sent twice");
    assert!(audits > 0 && rewrites > 0, "the auditor was kept from its work");
    all
}

fn everything_adds_up(bank: &Bank, all: &Ended) {
    let accounts = bank.accounts();
    assert_eq!(accounts.iter().map(|account| account.0).sum::<i64>(), bank.total(), "{accounts:?}");
    let paid: Vec<u64> = accounts.iter().map(|account| account.1).collect();
    assert_eq!(paid, all.paid, "each acknowledged transfer happened once, and no other");
    let mut client = bank.server.client(&bank.tenant);
    let audit = bank.audit(&mut client).expect("nobody is in its way");
    assert_eq!((audit.balances, audit.transfers), (bank.total(), paid.iter().sum()));
    assert_eq!(client.table_stat("accounts").unwrap().objects, bank.accounts);
}

#[test]
fn the_total_stands_and_transfers_happen_once_over_a_network_that_loses_and_doubles() {
    let faults = Faults { lost: 30, doubled: 60, held: 60 };
    let work = Work { requests: rounds(1_500, 40_000), depth: 8, endless: rounds(1, 10) };
    let ended = tellers_and_an_auditor(8, 8, faults, work);
    assert!(ended.killed > 0 && ended.forgeries > ended.killed);
}

#[test]
fn the_total_stands_when_both_cores_fight_for_two_accounts() {
    let faults = Faults { lost: 0, doubled: 0, held: 0 };
    let work = Work { requests: rounds(5_000, 200_000), depth: 64, endless: rounds(1, 10) };
    tellers_and_an_auditor(2, 4, faults, work);
}
