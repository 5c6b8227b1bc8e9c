//! A client of the simulated cluster: one operation at a time, over real requesters, one for each server that it has met.
//!
//! It routes by the tablet map of the table, which it asks any server for, and makes a request to another server only when
//! the one before cannot execute it any more (see "Views" in docs/formats.md).

use std::collections::BTreeMap;

use fastrand::Rng;
use tests::history::{Action, Condition, Operation, Outcome};
use wire::reply::{self, Number, Object, Objects};
use wire::{Body, CompletionError, Keys, Request, Requester, RequesterConfig, Status, TabletMap};

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
    table: u32,
    operation: Option<(Operation, Vec<u8>)>,
    /// Keys that are read with it, as far as the same server has them.
    beside: Vec<(u64, Vec<u8>)>,
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
            table,
            operation: None,
            beside: Vec::new(),
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
        link.view = link.view.max(view.unwrap_or(0));
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
                if let (Ok(Status::Ok), Ok(map)) = (status, TabletMap::decode(&body)) {
                    let is_newer = self.map.as_ref().is_none_or(|own| own.version() < map.version());
                    self.map = Some(map).filter(|_| is_newer).or(self.map.take());
                }
                if matches!(self.stage, Stage::Asking(asked) if asked == server) {
                    self.stage =
                        if self.map.is_some() { Stage::Lost } else { Stage::Resting(now_us + 10_000) };
                }
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
        let (operation, _) = self.operation.as_mut().expect("it was asked");
        match status {
            Ok(Status::NotOwned) => {
                self.map = None;
                self.stage = Stage::Resting(now_us + 2_000);
                return;
            }
            Ok(Status::Ok) if !self.beside.is_empty() => {
                let mut objects = Objects::decode(body).expect("objects").map(|entry| match entry.status {
                    Status::Ok => Outcome::Found(entry.version, number(entry.value)),
                    Status::NotFound => Outcome::Nothing,
                    status => panic!("{status:?} of a key"),
                });
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
            Err(CompletionError::NotSent) => return self.give_up(wishes),
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
    fn give_up(&mut self, wishes: &mut Vec<Wish>) {
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
        if self.is_hasty
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

    /// Finds the server, and asks it.
    fn route(&mut self, now_us: u64, random: &mut Rng, wishes: &mut Vec<Wish>) {
        let Some((operation, key)) = self.operation.clone() else { return };
        if now_us >= self.due_us {
            return self.give_up(wishes);
        }
        let broken: Vec<u32> = self.links.iter().filter(|(_, it)| it.is_broken).map(|(it, _)| *it).collect();
        for server in broken {
            // What was asked there was given up.
            self.links.remove(&server);
        }
        let Some(map) = &self.map else {
            let servers: Vec<u32> = self.links.keys().copied().collect();
            let Some(&server) = random.choice(&servers) else {
                self.stage = Stage::Opening;
                return wishes.push(Wish::Open(u32::MAX));
            };
            let link = self.links.get_mut(&server).expect("it is there");
            match link.requester.submit(now_us, MAP_TAG, &Request::Tablets { table: self.table }) {
                Ok(_) => self.stage = Stage::Asking(server),
                Err(_) => self.stage = Stage::Resting(now_us + 10_000),
            }
            return;
        };
        let server = map.servers()[map.server_of(store::hash(&key))].number;
        let its = |key: &[u8]| map.servers()[map.server_of(store::hash(key))].number == server;
        self.beside.retain(|(_, key)| its(key));
        let Some(link) = self.links.get_mut(&server) else {
            self.stage = Stage::Opening;
            return wishes.push(Wish::Open(server));
        };
        self.attempt += 1;
        let keys: Vec<&[u8]> = [&key[..]].into_iter().chain(self.beside.iter().map(|it| &it.1[..])).collect();
        let number;
        let request = match operation.action {
            Action::Get if keys.len() > 1 => {
                Request::MultiGet { table: self.table, keys: Keys::from_slices(&keys) }
            }
            Action::Get => Request::Get { table: self.table, key: &key },
            Action::Put(value, condition) => {
                number = value.to_le_bytes();
                let (table, key, value, condition) = (self.table, &key[..], &number[..], to_wire(condition));
                match self.ttl_ms {
                    Some(ttl_ms) => Request::PutFor { table, key, value, condition, ttl_ms },
                    None => Request::Put { table, key, value, condition },
                }
            }
            Action::Delete(condition) => {
                Request::Delete { table: self.table, key: &key, condition: to_wire(condition) }
            }
            Action::Add(delta) => Request::Increment { table: self.table, key: &key, delta },
            Action::Lose | Action::Expire(_) => unreachable!("no client asks for that"),
        };
        match link.requester.submit(now_us, self.attempt, &request) {
            Ok(_) => self.stage = Stage::Asked,
            Err(_) => self.stage = Stage::Resting(now_us + 10_000),
        }
    }
}

/// A condition as requests have it.
pub fn to_wire(condition: Condition) -> wire::Condition {
    match condition {
        Condition::Always => wire::Condition::Always,
        Condition::Absent => wire::Condition::Absent,
        Condition::Present => wire::Condition::Present,
        Condition::Version(version) => wire::Condition::Version(version),
    }
}

fn number(value: &[u8]) -> i64 {
    i64::from_le_bytes(value.try_into().expect("eight bytes"))
}

/// What an answer says; `None`: nothing of how it ended.
fn outcome(action: Action, status: Status, body: &[u8]) -> Option<Outcome> {
    Some(match (status, action) {
        (Status::Ok, Action::Get) => {
            let object = Object::decode(body).expect("an object");
            Outcome::Found(object.version, number(object.value))
        }
        (Status::Ok, Action::Add(_)) => {
            let told = Number::decode(body).expect("a number");
            Outcome::Summed(told.version, told.value)
        }
        (Status::Ok, _) => Outcome::Done(reply::decode_version(body).expect("a version")),
        (Status::NotFound, _) => Outcome::Nothing,
        (Status::ConditionFailed, _) => Outcome::Refused(reply::decode_version(body).expect("a version")),
        (Status::BadToken, _) => return None,
        (status, action) => panic!("{status:?} to {action:?}"),
    })
}
