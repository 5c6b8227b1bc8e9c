//! Transfers while the server crashes again and again: after each start the total is what it was, each acknowledged
//! transfer is there once, and each other one at most once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use client::{Client, Durability, Function, Session, Status};
use fastrand::Rng;
use tests::effort::{rng, rounds};
use tests::server::patient;

use super::bank::Bank;

const ACCOUNTS: u64 = 16;
const TELLERS: usize = 4;
/// Requests of a teller under way.
const DEPTH: u64 = 16;

/// Transfers by paying account.
#[derive(Clone, Debug)]
struct Paid {
    submitted: Vec<u64>,
    acknowledged: Vec<u64>,
}

impl Paid {
    fn nothing() -> Self {
        let none = vec![0; ACCOUNTS as usize];
        Self { submitted: none.clone(), acknowledged: none }
    }
}

/// Transfers until the server is gone.
fn transfer(
    mut session: Session,
    (transfer, table): (Function, u32),
    random: &mut Rng,
    is_over: &AtomicBool,
) -> Paid {
    let mut paid = Paid::nothing();
    let mut open = 0;
    while !is_over.load(Ordering::SeqCst) {
        while session.can_submit() && open < DEPTH {
            let from = random.u64(0..ACCOUNTS);
            let to = (from + random.u64(1..ACCOUNTS)) % ACCOUNTS;
            let order = [random.i64(0..200).to_le_bytes(), to.to_le_bytes()].concat();
            let key = from.to_le_bytes();
            let request = transfer.request(table, &key, &order);
            paid.submitted[from as usize] += 1;
            session.submit(&request, from).expect("there is room");
            open += 1;
        }
        let polled = session.poll(&mut |completion| {
            open -= 1;
            let from = completion.tag as usize;
            match completion.status {
                Ok(Status::Ok) => paid.acknowledged[from] += 1,
                Ok(Status::Conflict | Status::ExtensionError) => paid.submitted[from] -= 1,
                Ok(status) => panic!("a transfer ended with {status:?}"),
                // Nobody knows whether it happened.
                Err(_) => {}
            }
        });
        if polled.is_ok_and(|completed| completed == 0) {
            // The server may be gone.
            let _ = session.wait(Duration::from_millis(1));
        }
    }
    paid
}

#[test]
fn the_total_stands_and_transfers_happen_once_over_crashes() {
    let mut random = rng();
    let mut bank = Bank::open(ACCOUNTS, Durability::Synced);
    let mut paid = vec![0; ACCOUNTS as usize];
    for round in 0..rounds(4, 50) {
        let is_over = AtomicBool::new(false);
        let address = bank.server.address().to_string();
        let open = |_| {
            let (tenant, config) = (&bank.tenant, patient());
            let opened = Client::connect_with(&address, &tenant.name, &tenant.secret, config);
            let mut client = opened.expect("the bank is let in");
            let function = client.resolve("ycsbt.transfer").expect("it is installed");
            (client.into_session(), function)
        };
        let sessions: Vec<_> = (0..TELLERS).map(open).collect();
        let tellers = thread::scope(|scope| {
            let (table, is_over) = (bank.table, &is_over);
            let start = |(session, function): (Session, Function)| {
                let mut random = random.fork();
                scope.spawn(move || transfer(session, (function, table), &mut random, is_over))
            };
            let at_work: Vec<_> = sessions.into_iter().map(start).collect();
            thread::sleep(Duration::from_millis(random.u64(20..300)));
            bank.server.kill();
            is_over.store(true, Ordering::SeqCst);
            let ended = at_work.into_iter().map(thread::ScopedJoinHandle::join);
            ended.map(|one| one.expect("a teller met something wrong")).collect::<Vec<_>>()
        });
        bank.server.restart();
        let accounts = bank.accounts();
        let total = accounts.iter().map(|account| account.0).sum::<i64>();
        assert_eq!(total, bank.total(), "in round {round}: {accounts:?}");
        for (account, (known, &(_, now))) in paid.iter_mut().zip(&accounts).enumerate() {
            let sum = |of: fn(&Paid) -> &Vec<u64>| tellers.iter().map(|paid| of(paid)[account]).sum::<u64>();
            let least = *known + sum(|paid| &paid.acknowledged);
            let most = *known + sum(|paid| &paid.submitted);
            assert!((least..=most).contains(&now), "account {account}: {now} of {least} to {most}");
            *known = now;
        }
        println!("round {round}: {} transfers so far", paid.iter().sum::<u64>());
    }
    assert!(paid.iter().sum::<u64>() > 0, "nothing was transferred");
}
