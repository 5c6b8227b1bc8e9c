//! A client that keeps many requests under way: transfers, looks at balances, and functions that write a forged
//! balance and then end badly. It notes which transfers were acknowledged, account by account.

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use client::{Client, Completion, Error, Function, Request, Status, reply};
use fastrand::Rng;

use super::bank::{Bank, account};

/// What the forgers would leave behind: so much that nobody could miss it.
const FORGED: i64 = 1 << 40;
/// The number by which `ycsbt.transfer` says that the payer has too little.
const NOT_ENOUGH: u32 = 1;

/// Functions that write what they are given and then end badly, and how.
const FORGERS: [(&str, Status); 6] = [
    ("panics", Status::ExtensionPanicked),
    ("panic_in_drop", Status::ExtensionPanicked),
    ("write_then_error", Status::ExtensionError),
    ("index_beyond", Status::ExtensionPanicked),
    ("allocate_at_once", Status::ExtensionOutOfMemory),
    ("recurse", Status::ExtensionStackOverflow),
];
/// Such that do not end by themselves.
const ENDLESS: [(&str, Status); 3] = [
    ("spin", Status::ExtensionKilled),
    ("spin_yielding", Status::ExtensionKilled),
    ("loop_in_drop_at_the_end", Status::ExtensionKilled),
];

/// How much a teller does.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    pub requests: usize,
    /// Requests under way at a time.
    pub depth: usize,
    /// Of the requests, how many forge and do not end by themselves; at least one.
    pub endless: usize,
}

/// How the requests of one teller, or of many, ended.
#[derive(Clone, Debug, Default)]
pub struct Ended {
    /// Acknowledged transfers by paying account.
    pub paid: Vec<u64>,
    pub refused: u64,
    pub conflicts: u64,
    pub looks: u64,
    pub forgeries: u64,
    pub killed: u64,
}

/// What was asked.
#[derive(Clone, Copy)]
enum Asked {
    Transfer { from: u64 },
    Look,
    Forgery { name: &'static str, end: Status },
}

/// A client at work.
pub struct Teller<'b> {
    bank: &'b Bank,
    client: Client,
    random: Rng,
    transfer: Function,
    forgers: HashMap<&'static str, Function>,
    ended: Ended,
}

impl<'b> Teller<'b> {
    /// A teller over a client of the bank's tenant.
    pub fn new(bank: &'b Bank, mut client: Client, random: Rng) -> Self {
        let mut find = |name: String| client.resolve(&name).expect("it is installed");
        let transfer = find("ycsbt.transfer".into());
        let names = FORGERS.iter().chain(&ENDLESS).map(|forger| forger.0);
        let forgers = names.map(|name| (name, find(format!("misbehave.{name}")))).collect();
        let ended = Ended { paid: vec![0; bank.accounts as usize], ..Ended::default() };
        Self { bank, client, random, transfer, forgers, ended }
    }

    /// Does the work, and says how it ended.
    pub fn run(mut self, work: Work) -> Ended {
        let mut asked: Vec<Asked> = Vec::with_capacity(work.requests);
        let mut done = 0;
        while done < work.requests {
            while asked.len() < work.requests
                && asked.len() - done < work.depth
                && self.client.session().can_submit()
            {
                let every = work.requests / work.endless;
                let next = self.ask(asked.len() as u64, asked.len() % every == 1);
                asked.push(next);
            }
            let Self { bank, client, ended, .. } = &mut self;
            let mut take = |completion: Completion<'_>| {
                done += 1;
                note(bank, ended, asked[completion.tag as usize], &completion);
            };
            client.session().poll_waiting(&mut take).expect("the session stands");
        }
        self.ended
    }

    fn ask(&mut self, tag: u64, endless: bool) -> Asked {
        let Self { bank, client, random, transfer, forgers, .. } = self;
        let session = client.session();
        let from = random.u64(0..bank.accounts);
        let (table, key) = (bank.table, from.to_le_bytes());
        let forged = [FORGED.to_le_bytes(), [0xff; 8]].concat();
        let kind = if endless { 100 } else { random.u8(0..100) };
        match kind {
            0..70 => {
                let to = (from + random.u64(1..bank.accounts)) % bank.accounts;
                let amount = random.i64(0..200);
                let order = [amount.to_le_bytes(), to.to_le_bytes()].concat();
                bank.submitted.fetch_add(1, Ordering::SeqCst);
                session.submit(&transfer.request(table, &key, &order), tag).expect("there is room");
                Asked::Transfer { from }
            }
            70..88 => {
                session.submit(&Request::Get { table, key: &key }, tag).expect("there is room");
                Asked::Look
            }
            _ => {
                let choices: &[(&str, Status)] = if endless { &ENDLESS } else { &FORGERS };
                let (name, end) = choices[random.usize(0..choices.len())];
                session.submit(&forgers[name].request(table, &key, &forged), tag).expect("there is room");
                Asked::Forgery { name, end }
            }
        }
    }
}

/// Checks an answer against what was asked.
fn note(bank: &Bank, ended: &mut Ended, asked: Asked, completion: &Completion<'_>) {
    let status = completion.status.unwrap_or_else(|error| panic!("no answer: {error:?}"));
    let body = completion.body;
    match asked {
        Asked::Transfer { from } => match status {
            Status::Ok => {
                let (balance, transfers) = account(body);
                assert!((0..=bank.total()).contains(&balance) && transfers > 0, "{balance} in {from}");
                ended.paid[from as usize] += 1;
                bank.acknowledged.fetch_add(1, Ordering::SeqCst);
            }
            Status::Conflict => ended.conflicts += 1,
            Status::ExtensionError => {
                let failure = reply::ExtensionFailure::decode(body).expect("a failure");
                assert_eq!(failure.code, NOT_ENOUGH);
                ended.refused += 1;
            }
            _ => panic!("a transfer ended with {}", Error::of_answer(status, body)),
        },
        Asked::Look => {
            assert_eq!(status, Status::Ok);
            let (balance, _) = account(reply::Object::decode(body).expect("an object").value);
            assert!((0..=bank.total()).contains(&balance), "{balance} in an account");
            ended.looks += 1;
        }
        Asked::Forgery { name, end } => {
            assert_eq!(status, end, "{name}: {}", String::from_utf8_lossy(body));
            ended.forgeries += 1;
            ended.killed += u64::from(status == Status::ExtensionKilled);
        }
    }
}

impl Ended {
    /// Adds what another teller did.
    pub fn add(&mut self, other: &Ended) {
        self.paid.resize(other.paid.len(), 0);
        for (paid, more) in self.paid.iter_mut().zip(&other.paid) {
            *paid += more;
        }
        self.refused += other.refused;
        self.conflicts += other.conflicts;
        self.looks += other.looks;
        self.forgeries += other.forgeries;
        self.killed += other.killed;
    }
}
