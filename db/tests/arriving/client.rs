//! A client that knows what each of its keys holds, and asks for all kinds of things.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use db::session::{Session, StreamAnswer};
use db::sync::oneshot::{NoValue, Receiver};
use net::{Batch, LoopbackPort, Outbox, Port};
use wire::{Condition, Keys, Request, Requester, RequesterConfig, Status, reply};

use super::site::{Site, TABLE, VIEW, WORKERS};

/// What is asked of one key, and of several.
#[derive(Clone, Debug)]
enum Ask {
    Get(usize),
    MultiGet(Vec<usize>),
    Put(usize, i64),
    PutIf(usize, i64, Condition),
    Increment(usize, i64),
    IncrementFloat(usize),
    Delete(usize, Condition),
}

impl Ask {
    fn keys(&self) -> &[usize] {
        match self {
            Ask::MultiGet(keys) => keys,
            Ask::Get(key)
            | Ask::Put(key, _)
            | Ask::PutIf(key, ..)
            | Ask::Increment(key, _)
            | Ask::IncrementFloat(key)
            | Ask::Delete(key, _) => std::slice::from_ref(key),
        }
    }
}

/// What a key holds, as far as the client knows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Known {
    pub value: Option<i64>,
    /// Unknown before the first answer that names it.
    pub version: Option<u64>,
}

/// See the file's head.
pub struct Client<'s> {
    site: &'s Site,
    session: Arc<Session>,
    port: LoopbackPort,
    requester: Requester,
    batch: Batch,
    outbox: Outbox,
    start: Instant,
    pub keys: Vec<(Vec<u8>, Known)>,
    /// Keys of requests under way.
    busy: HashSet<usize>,
    asked: HashMap<u64, Ask>,
    streamed: BTreeMap<u64, (Ask, Receiver<StreamAnswer>)>,
    next_tag: u64,
    pub answered: u64,
}

impl<'s> Client<'s> {
    pub fn new(site: &'s Site, token: u64, keys: Vec<(Vec<u8>, Option<i64>)>) -> Self {
        let port = site.network.port().expect("a port");
        let config = RequesterConfig { call_timeout_us: 60_000_000, ..RequesterConfig::default() };
        let (batch, outbox) = (Batch::new(), Outbox::new(port.frame_bytes_max()));
        let known = |value| Known { value, version: None };
        Self {
            site,
            session: site.session(token),
            port,
            requester: Requester::new(token, 1, 256, config),
            batch,
            outbox,
            start: Instant::now(),
            keys: keys.into_iter().map(|(key, value)| (key, known(value))).collect(),
            busy: HashSet::new(),
            asked: HashMap::new(),
            streamed: BTreeMap::new(),
            next_tag: 0,
            answered: 0,
        }
    }

    fn choose(&self, random: &mut fastrand::Rng) -> Ask {
        let key = random.usize(..self.keys.len());
        let condition = |random: &mut fastrand::Rng| match (random.u8(..3), self.keys[key].1.version) {
            (0, _) => Condition::Absent,
            (1, Some(version)) if version > 0 => Condition::Version(version),
            _ => Condition::Present,
        };
        match random.u8(..10) {
            0..3 => Ask::Get(key),
            3 => {
                let count = 1 + random.usize(..20);
                let mut keys: Vec<usize> = (0..count).map(|_| random.usize(..self.keys.len())).collect();
                keys.sort_unstable();
                keys.dedup();
                Ask::MultiGet(keys)
            }
            4 => Ask::Put(key, random.i64(0..1_000)),
            5 => Ask::PutIf(key, random.i64(0..1_000), condition(random)),
            6..8 => Ask::Increment(key, random.i64(0..10)),
            8 if self.keys[key].1.value.is_none() => Ask::IncrementFloat(key),
            _ if random.bool() => Ask::Delete(key, Condition::Always),
            _ => Ask::Delete(key, condition(random)),
        }
    }

    /// Asks for so many things, some of them over a stream, and checks every answer.
    pub fn run(&mut self, requests: u64, seed: u64) {
        let mut random = fastrand::Rng::with_seed(seed);
        while self.answered < requests {
            while self.asked.len() + self.streamed.len() < 64 && self.next_tag < requests {
                let ask = self.choose(&mut random);
                if ask.keys().iter().any(|key| self.busy.contains(key)) {
                    break;
                }
                self.ask(ask, &mut random);
            }
            let worker = self.site.cores[random.usize(..WORKERS)];
            self.step(worker);
            self.look_at_streams(&mut random);
        }
    }

    fn ask(&mut self, ask: Ask, random: &mut fastrand::Rng) {
        let tag = self.next_tag;
        let slices: Vec<&[u8]> = ask.keys().iter().map(|&key| &self.keys[key].0[..]).collect();
        let (mut value, table) = ([0; 8], TABLE);
        let request = request_of(&ask, &slices, &mut value, table);
        if random.u8(..5) == 0 {
            let Some(sequence) = self.requester.reserve_sequence() else { return };
            let worker = random.usize(..WORKERS);
            let answered = self.site.stream_request(&self.session, (worker, VIEW, sequence), &request);
            self.streamed.insert(sequence, (ask.clone(), answered));
        } else {
            let now_us = self.start.elapsed().as_micros() as u64;
            if self.requester.submit(now_us, tag, &request).is_err() {
                return;
            }
            self.asked.insert(tag, ask.clone());
        }
        self.busy.extend(ask.keys());
        self.next_tag += 1;
    }

    /// Sends what is due and takes what has come.
    fn step(&mut self, worker: SocketAddr) {
        let now_us = self.start.elapsed().as_micros() as u64;
        while let Some(index) = self.outbox.open(worker) {
            let Some(bytes) = self.requester.poll_transmit(now_us, VIEW, self.outbox.buffer(index)) else {
                break;
            };
            self.outbox.set_bytes(index, bytes);
        }
        self.port.send(&mut self.outbox).expect("a working port");
        self.port.receive(&mut self.batch).expect("a working port");
        let mut ended = Vec::new();
        let mut complete = |completion: wire::Completion<'_>| {
            ended.push((completion.tag, completion.status.expect("an answer"), completion.body.to_vec()));
        };
        for (frame, _) in self.batch.frames() {
            self.requester.on_frame(now_us, frame, &mut complete).expect("a good frame");
        }
        self.requester.on_timer(now_us, &mut complete);
        for (tag, status, body) in ended {
            let ask = self.asked.remove(&tag).expect("it was asked, and is answered once");
            self.check(&ask, status, &body);
        }
        if self.batch.is_empty() {
            self.port.wait(Duration::from_micros(100)).expect("a working port");
        }
    }

    /// Takes what has come over streams; what is to come again is asked again, under its sequence.
    fn look_at_streams(&mut self, random: &mut fastrand::Rng) {
        let mut answers = Vec::new();
        for (&sequence, (_, answered)) in &self.streamed {
            match answered.try_receive() {
                Ok(answer) => answers.push((sequence, answer)),
                Err(NoValue::Yet) => {}
                Err(NoValue::Ever) => panic!("a request over a stream is not answered"),
            }
        }
        for (sequence, StreamAnswer { status, body }) in answers {
            let (ask, _) = self.streamed.remove(&sequence).expect("it was asked");
            if status == Status::Retry {
                let slices: Vec<&[u8]> = ask.keys().iter().map(|&key| &self.keys[key].0[..]).collect();
                let mut value = [0; 8];
                let request = request_of(&ask, &slices, &mut value, TABLE);
                let to = (random.usize(..WORKERS), VIEW, sequence);
                let answered = self.site.stream_request(&self.session, to, &request);
                self.streamed.insert(sequence, (ask, answered));
                continue;
            }
            assert!(self.requester.release(sequence));
            self.check(&ask, status, &body);
        }
    }

    /// Holds an answer against what is known, and notes what it changes.
    fn check(&mut self, ask: &Ask, status: Status, body: &[u8]) {
        self.answered += 1;
        self.busy.retain(|key| !ask.keys().contains(key));
        let before = self.keys[ask.keys()[0]].1;
        let holds = |condition| match condition {
            Condition::Always => true,
            Condition::Absent => before.value.is_none(),
            Condition::Present => before.value.is_some(),
            Condition::Version(version) => before.value.is_some() && before.version == Some(version),
        };
        let wrong = || panic!("{ask:?} of {before:?} is answered with {status:?} {body:?}");
        let after = match (ask, status) {
            (Ask::Get(_), Status::NotFound) => Known { value: None, version: Some(0) },
            (Ask::Get(_), Status::Ok) => {
                let object = reply::Object::decode(body).expect("an object");
                Known { value: Some(number(object.value)), version: Some(object.version) }
            }
            (Ask::MultiGet(keys), Status::Ok) => return self.check_many(keys, body),
            (Ask::Put(_, value), Status::Ok) => Known { value: Some(*value), version: version(body) },
            (Ask::PutIf(_, value, condition), Status::Ok) if holds(*condition) => {
                Known { value: Some(*value), version: version(body) }
            }
            (Ask::PutIf(_, _, condition) | Ask::Delete(_, condition), Status::ConditionFailed)
                if !holds(*condition) =>
            {
                let current = version(body);
                assert_eq!(current == Some(0), before.value.is_none(), "{ask:?} of {before:?}");
                Known { version: current, ..before }
            }
            (Ask::Increment(_, delta), Status::Ok) => {
                let sum = reply::Number::decode(body).expect("a number");
                assert_eq!(sum.value, before.value.unwrap_or(0) + delta, "{ask:?} of {before:?}");
                Known { value: Some(sum.value), version: Some(sum.version) }
            }
            (Ask::IncrementFloat(_), Status::Ok) if before.value.is_none() => {
                Known { value: Some(0), version: version(&body[..8]) }
            }
            (Ask::Delete(_, condition), Status::Ok) if holds(*condition) && before.value.is_some() => {
                assert!(before.version.is_none() || before.version == version(body), "{ask:?} of {before:?}");
                Known { value: None, version: Some(0) }
            }
            (Ask::Delete(_, condition), Status::NotFound) if holds(*condition) && before.value.is_none() => {
                Known { value: None, version: Some(0) }
            }
            _ => wrong(),
        };
        if matches!(ask, Ask::Get(_)) {
            let is_as_before = before.version.is_none_or(|version| Some(version) == after.version);
            assert!(after.value == before.value && is_as_before, "a get of {before:?} finds {after:?}");
        }
        let grows = matches!(ask, Ask::Put(..) | Ask::PutIf(..) | Ask::Increment(..)) && status == Status::Ok;
        assert!(
            !grows || before.version.is_none_or(|version| Some(version) < after.version),
            "{ask:?} of {before:?}"
        );
        self.keys[ask.keys()[0]].1 = after;
    }

    fn check_many(&mut self, keys: &[usize], body: &[u8]) {
        let entries: Vec<_> = reply::Objects::decode(body).expect("objects").collect();
        assert_eq!(entries.len(), keys.len());
        for (entry, &key) in entries.iter().zip(keys) {
            let found = (entry.status == Status::Ok).then(|| number(entry.value));
            let known = &mut self.keys[key].1;
            assert_eq!(found, known.value, "key {key} of a multi-get");
            known.version = Some(entry.version);
        }
    }
}

fn number(value: &[u8]) -> i64 {
    i64::from_le_bytes(value.try_into().expect("eight bytes"))
}

fn version(body: &[u8]) -> Option<u64> {
    Some(reply::decode_version(body).expect("a version"))
}

fn request_of<'r>(ask: &Ask, keys: &'r [&'r [u8]], value: &'r mut [u8; 8], table: u32) -> Request<'r> {
    if let Ask::Put(_, number) | Ask::PutIf(_, number, _) = ask {
        *value = number.to_le_bytes();
    }
    let (key, value) = (keys[0], &value[..]);
    match *ask {
        Ask::Get(_) => Request::Get { table, key },
        Ask::MultiGet(_) => Request::MultiGet { table, keys: Keys::from_slices(keys) },
        Ask::Put(..) => Request::Put { table, key, value, condition: Condition::Always },
        Ask::PutIf(_, _, condition) => Request::Put { table, key, value, condition },
        Ask::Increment(_, delta) => Request::Increment { table, key, delta },
        Ask::IncrementFloat(_) => Request::IncrementFloat { table, key, delta_bits: 0 },
        Ask::Delete(_, condition) => Request::Delete { table, key, condition },
    }
}
