//! A client of the simulated cluster: one operation at a time, over real requesters, one for each server that it has met.
//!
//! It routes by the tablet map of the table, which it asks any server for, and makes a request to another server only when
//! the one before cannot execute it any more (see "Views" in docs/formats.md); reads of what a cooperative migration moves
//! it makes to both.

mod answers;
mod routing;
mod transaction;

use std::collections::BTreeMap;

use answers::{outcome, outcomes};
use fastrand::Rng;
use tests::history::Operation;
use tests::serializability::{Fate, Observed};
use wire::{Body, CompletionError, Requester, RequesterConfig, Status, TabletMap};

#[allow(unused_imports, reason = "only simulated clusters have conditions and counts of their own")]
pub use answers::to_wire;
#[allow(unused_imports, reason = "only simulated clusters count")]
pub use routing::Reads;
use routing::{BOTH, Sides};
use transaction::Transaction;
#[allow(unused_imports, reason = "only simulated clusters have transactions")]
pub use transaction::{LIST_LENGTH_MAX, LISTS_MAX};

/// Requests that a session may have outstanding.
const CREDITS: u16 = 16;
const MAP_TAG: u64 = u64::MAX;

/// A session with a server.
pub struct Link {
    pub requester: Requester,
    pub view: u64,
    is_broken: bool,
}

/// What is to be done for a client.
pub enum Wish {
    /// A session with this server.
    Open(u32),
    /// The tablet map over the stream of this server.
    Map(u32),
    /// To be called again at this time.
    Wake(u64),
    /// The operation is over; it may have been carried out.
    Over(Operation),
    /// The operation is over and was not carried out.
    Refused,
    /// The transaction is over.
    Transacted(Observed),
}

enum Stage {
    Idle,
    /// Wants to know where tablets are.
    Lost,
    Opening,
    /// Waits for the answer.
    Asked,
    /// The map is asked for at this server.
    Asking(u32),
    Resting(u64),
}

/// See the file's head.
pub struct Caller {
    pub links: BTreeMap<u32, Link>,
    stage: Stage,
    map: Option<TabletMap>,
    pub sides: Sides,
    table: u32,
    operation: Option<(Operation, Vec<u8>)>,
    /// Keys that are read with it, as far as the same server has them, and what a transaction commits of them.
    beside: Vec<(u64, Vec<u8>)>,
    transaction: Option<Transaction>,
    /// How long what it puts is there, in milliseconds.
    ttl_ms: Option<u64>,
    attempt: u64,
    /// Makes the request elsewhere as soon as the map says so.
    pub is_hasty: bool,
    due_us: u64,
    pub timeout_us: u64,
}

impl Caller {
    pub fn new(table: u32, timeout_us: u64) -> Caller {
        Caller {
            links: BTreeMap::new(),
            stage: Stage::Idle,
            map: None,
            sides: Sides::new(3_000),
            table,
            operation: None,
            beside: Vec::new(),
            transaction: None,
            ttl_ms: None,
            attempt: 0,
            is_hasty: false,
            due_us: 0,
            timeout_us,
        }
    }

    pub fn is_idle(&self) -> bool {
        self.operation.is_none()
    }

    /// Begins an operation.
    pub fn begin(&mut self, operation: Operation, key: Vec<u8>) {
        assert!(self.is_idle());
        self.beside.clear();
        self.ttl_ms = None;
        self.sides.begin();
        self.operation = Some((operation, key));
        self.due_us = operation.call + self.timeout_us;
        self.stage = Stage::Lost;
    }

    /// Begins to read several keys with one request.
    #[allow(dead_code, reason = "who records what real servers do reads one by one")]
    pub fn begin_many(&mut self, operation: Operation, key: Vec<u8>, beside: Vec<(u64, Vec<u8>)>) {
        self.begin(operation, key);
        self.beside = beside;
    }

    /// Begins to put something that is there for a while.
    #[allow(dead_code, reason = "who records what real servers do lets nothing expire")]
    pub fn begin_for(&mut self, operation: Operation, key: Vec<u8>, ttl_ms: Option<u64>) {
        self.begin(operation, key);
        self.ttl_ms = ttl_ms;
    }

    pub fn opened(&mut self, server: u32, token: u64, view: u64) {
        let config = RequesterConfig { call_timeout_us: self.timeout_us, ..RequesterConfig::default() };
        let requester = Requester::new(token, 1, CREDITS, config);
        self.links.insert(server, Link { requester, view, is_broken: false });
        self.stage = Stage::Lost;
    }

    pub fn not_opened(&mut self, now_us: u64) {
        if self.sides.can_do_without() {
            self.stage = Stage::Lost;
            return;
        }
        self.map = None;
        self.stage = Stage::Resting(now_us + 20_000);
    }

    /// A frame has come from a server.
    pub fn hear(&mut self, now_us: u64, server: u32, frame: &[u8], wishes: &mut Vec<Wish>) {
        let Some(link) = self.links.get_mut(&server) else { return };
        let (mut told, mut streamed) = (Vec::new(), Vec::new());
        let view = link.requester.on_frame(now_us, frame, &mut |completion| {
            told.push((completion.tag, completion.status, completion.body.to_vec()));
            streamed.extend((completion.status == Ok(Status::UseStream)).then_some(completion.sequence));
        });
        for sequence in streamed {
            // A map of many tablets fits no frame.
            link.requester.release(sequence);
            wishes.push(Wish::Map(server));
        }
        let view = link.view.max(view.unwrap_or(0));
        // What it owns has changed, or what it says of others.
        self.sides.is_stale |= std::mem::replace(&mut link.view, view) < view;
        self.take(now_us, server, told, wishes);
    }

    /// What came over a stream; nothing when the server is not there.
    pub fn hear_map(&mut self, now_us: u64, server: u32, map: Option<Vec<u8>>, wishes: &mut Vec<Wish>) {
        let status = if map.is_some() { Ok(Status::Ok) } else { Ok(Status::BadToken) };
        self.take(now_us, server, vec![(MAP_TAG, status, map.unwrap_or_default())], wishes);
    }

    fn take(
        &mut self,
        now_us: u64,
        server: u32,
        told: Vec<(u64, Result<Status, CompletionError>, Vec<u8>)>,
        wishes: &mut Vec<Wish>,
    ) {
        for (tag, status, body) in told {
            if matches!(status, Ok(Status::BadToken) | Err(_))
                && let Some(link) = self.links.get_mut(&server)
            {
                link.is_broken = true;
            }
            if tag == MAP_TAG && status == Ok(Status::UseStream) {
                continue;
            }
            if tag == MAP_TAG {
                if let (Ok(Status::Ok), Ok(map)) = (status, TabletMap::decode(&body))
                    && self.map.as_ref().is_none_or(|own| own.version() < map.version())
                {
                    self.sides.follow(&map);
                    self.map = Some(map);
                }
                if matches!(self.stage, Stage::Asking(asked) if asked == server) {
                    self.stage =
                        if self.map.is_some() { Stage::Lost } else { Stage::Resting(now_us + 10_000) };
                }
            } else if tag & BOTH != 0 {
                self.take_said(now_us, tag, (status, body), wishes);
            } else if tag == self.attempt && matches!(self.stage, Stage::Asked) {
                self.answered(now_us, status, &body, wishes);
            }
        }
    }

    fn answered(
        &mut self,
        now_us: u64,
        status: Result<Status, CompletionError>,
        body: &[u8],
        wishes: &mut Vec<Wish>,
    ) {
        if self.transaction.is_some() && status != Ok(Status::NotOwned) {
            return self.hear_of_transaction(now_us, status, body, wishes);
        }
        let (operation, _) = self.operation.as_mut().expect("it was asked");
        match status {
            Ok(Status::NotOwned) => {
                self.map = None;
                self.sides.move_on();
                self.stage = Stage::Resting(now_us + 2_000);
                return;
            }
            Ok(Status::Ok) if !self.beside.is_empty() => {
                let mut objects = outcomes(body);
                (operation.end, operation.outcome) = (Some(now_us), objects.next().expect("as many as keys"));
                let operation = *operation;
                for ((key, _), outcome) in self.beside.drain(..).zip(objects) {
                    wishes.push(Wish::Over(Operation { key, outcome, ..operation }));
                }
            }
            Ok(status) => {
                if let Some(outcome) = outcome(operation.action, status, body) {
                    (operation.end, operation.outcome) = (Some(now_us), outcome);
                }
            }
            Err(CompletionError::NotSent) => return self.give_up(now_us, wishes),
            Err(_) => {}
        }
        self.finish(wishes);
    }

    fn finish(&mut self, wishes: &mut Vec<Wish>) {
        self.stage = Stage::Idle;
        let (operation, _) = self.operation.take().expect("there is one");
        wishes.push(Wish::Over(operation));
    }

    /// Nobody has carried it out, unless it was made to two.
    fn give_up(&mut self, now_us: u64, wishes: &mut Vec<Wish>) {
        if self.transaction.is_some() {
            return self.end_transaction(now_us, Fate::Aborted, wishes);
        }
        if self.is_hasty {
            return self.finish(wishes);
        }
        (self.stage, self.operation) = (Stage::Idle, None);
        wishes.push(Wish::Refused);
    }

    /// Goes on as far as it can, and gives the frames that leave, with their servers.
    pub fn go_on(&mut self, now_us: u64, random: &mut Rng, wishes: &mut Vec<Wish>) -> Vec<(u32, Vec<u8>)> {
        let servers: Vec<u32> = self.links.keys().copied().collect();
        for server in servers {
            let mut told = Vec::new();
            let link = self.links.get_mut(&server).expect("it is there");
            link.requester.on_timer(now_us, &mut |it| told.push((it.tag, it.status, it.body.to_vec())));
            self.take(now_us, server, told, wishes);
        }
        self.hurry(now_us, wishes);
        if self.is_hasty
            && self.transaction.is_none()
            && let (Stage::Asked, Some(_)) = (&self.stage, &self.operation)
            && random.u8(0..4) == 0
        {
            // On purpose: nobody has said that it cannot be executed there any more.
            self.map = None;
            self.stage = Stage::Lost;
        }
        match self.stage {
            Stage::Resting(until_us) if until_us <= now_us => self.stage = Stage::Lost,
            Stage::Resting(until_us) => wishes.push(Wish::Wake(until_us)),
            _ => {}
        }
        if matches!(self.stage, Stage::Lost) {
            self.route(now_us, random, wishes);
        }
        let mut frames = Vec::new();
        for (&server, link) in &mut self.links {
            let mut buffer = vec![0; wire::limits::FRAME_BYTES_MAX];
            while let Some(bytes) = link.requester.poll_transmit(now_us, link.view, &mut buffer) {
                frames.push((server, buffer[..bytes].to_vec()));
            }
            wishes.extend(link.requester.next_deadline_us().map(Wish::Wake));
        }
        frames
    }
}
