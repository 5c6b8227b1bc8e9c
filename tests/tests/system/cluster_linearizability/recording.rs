//! A thread that is a client of real servers, and records what it was told.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use fastrand::Rng;
use tests::history::{Action, Condition, Operation, Outcome};
use tests::raw::RawStream;
use wire::{Body, BodyReader, OpenRequest, Opened, Status};

use super::caller::{Caller, Wish};
use super::path::Path;

/// What all clients know.
pub struct Town {
    /// Where servers are, by number.
    pub servers: BTreeMap<u32, SocketAddr>,
    pub tenant: String,
    pub secret: String,
    pub table: u32,
    pub keys: u64,
    pub began: Instant,
    /// Operations that clients were told the end of, or gave up.
    pub told: AtomicUsize,
    /// Clients begin nothing more.
    pub is_over: AtomicBool,
    /// Clients ask elsewhere too early.
    pub is_hasty: bool,
}

impl Town {
    pub fn now_us(&self) -> u64 {
        self.began.elapsed().as_micros() as u64
    }
}

pub fn name(key: u64) -> Vec<u8> {
    format!("key {key}").into_bytes()
}

struct Client<'t> {
    town: &'t Town,
    caller: Caller,
    path: Path,
    random: Rng,
    /// The stream that keeps each session, and where its frames go.
    sessions: BTreeMap<u32, (RawStream, SocketAddr)>,
    wake: Instant,
    history: Vec<Operation>,
    newest: BTreeMap<u64, u64>,
}

/// Uses the servers until that is over: what it was told.
pub fn record(town: &Town, number: u32, mut random: Rng) -> Vec<Operation> {
    let mut caller = Caller::new(town.table, 2_000_000);
    caller.is_hasty = town.is_hasty;
    let path = Path::new(random.fork());
    let (sessions, wake, newest) = (BTreeMap::new(), Instant::now(), BTreeMap::new());
    let mut client = Client { town, caller, path, random, sessions, wake, history: Vec::new(), newest };
    let mut values = i64::from(number) << 40;
    loop {
        if client.caller.is_idle() {
            if town.is_over.load(Ordering::Relaxed) {
                return client.history;
            }
            values += 1 << 16;
            let key = client.random.u64(0..town.keys);
            let newest = client.newest.get(&key).copied();
            let (action, call) = (draw(&mut client.random, newest, values), town.now_us());
            let (end, outcome) = (None, Outcome::Unknown);
            let operation = Operation { client: number, key, call, end, action, outcome };
            client.drive(|caller, _, _| caller.begin(operation, name(key)));
        }
        let until = client.wake.min(Instant::now() + Duration::from_millis(20));
        if let Some((from, frame)) = client.path.receive(until) {
            let of = client.sessions.iter().find(|(_, session)| session.1 == from).map(|it| *it.0);
            client.drive(|caller, now_us, wishes| {
                if let Some(server) = of {
                    caller.hear(now_us, server, &frame, wishes);
                }
            });
        } else {
            client.drive(|_, _, _| {});
        }
    }
}

impl Client<'_> {
    fn drive(&mut self, act: impl FnOnce(&mut Caller, u64, &mut Vec<Wish>)) {
        let mut wishes = Vec::new();
        act(&mut self.caller, self.town.now_us(), &mut wishes);
        self.go_on(&mut wishes);
        self.wake = Instant::now() + Duration::from_millis(50);
        while let Some(wish) = wishes.pop() {
            match wish {
                Wish::Wake(due_us) => {
                    self.wake = self.wake.min(self.town.began + Duration::from_micros(due_us));
                }
                Wish::Open(server) => {
                    self.open(server);
                    self.go_on(&mut wishes);
                }
                Wish::Map(server) => {
                    self.caller.hear_map(self.town.now_us(), server, None, &mut wishes);
                }
                Wish::Over(operation) => {
                    if let Outcome::Found(version, _) | Outcome::Done(version) = operation.outcome {
                        self.newest.insert(operation.key, version);
                    }
                    self.history.push(operation);
                    self.town.told.fetch_add(1, Ordering::Relaxed);
                }
                Wish::Refused => {}
                Wish::Transacted(seen) => unreachable!("it begins no transactions: {seen:?}"),
            }
        }
    }

    fn go_on(&mut self, wishes: &mut Vec<Wish>) {
        for (server, frame) in self.caller.go_on(self.town.now_us(), &mut self.random, wishes) {
            if let Some((_, address)) = self.sessions.get(&server) {
                self.path.send(*address, &frame);
            }
        }
    }

    /// Opens a session at a server, or at any.
    fn open(&mut self, server: u32) {
        let known: Vec<u32> = self.town.servers.keys().copied().collect();
        let any = *self.random.choice(&known).expect("there are servers");
        let server = if self.town.servers.contains_key(&server) { server } else { any };
        match self.try_open(self.town.servers[&server]) {
            Some((stream, address, opened)) => {
                self.sessions.insert(server, (stream, address));
                self.caller.opened(server, opened.token, opened.view);
            }
            None => self.caller.not_opened(self.town.now_us()),
        }
    }

    fn try_open(&self, address: SocketAddr) -> Option<(RawStream, SocketAddr, Opened)> {
        let mut stream = RawStream::connect(address).ok()?;
        let open = OpenRequest::Session { tenant: &self.town.tenant, secret: &self.town.secret };
        let (status, body) = stream.open(&open).ok()?;
        let opened = Opened::read(&mut BodyReader::new(&body)).ok().filter(|_| status == Status::Ok)?;
        let port = opened.core_ports[usize::from(opened.home_core)];
        Some((stream, SocketAddr::new(address.ip(), port), opened))
    }
}

/// What is asked for next of a key whose newest known version is that.
pub fn draw(random: &mut Rng, newest: Option<u64>, value: i64) -> Action {
    let condition = match random.u8(0..6) {
        0 => Condition::Absent,
        1 => Condition::Present,
        2 => newest.map_or(Condition::Present, Condition::Version),
        _ => Condition::Always,
    };
    match random.u8(0..10) {
        0..=3 => Action::Get,
        4..=5 => Action::Put(value, condition),
        6 => Action::Delete(Condition::Always),
        _ => Action::Add(1),
    }
}
