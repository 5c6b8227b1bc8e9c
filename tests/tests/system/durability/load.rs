//! Clients that keep many requests under way until their server is gone, and note in the model what they were told.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use client::{Client, Completion, Condition, Request, Session, Status, reply};
use fastrand::Rng;

use super::model::{Counter, Object, State, number_of, value_of};

/// Keys that are put and deleted; those with an odd number lie in the ordered table.
const OBJECTS: usize = 600;
const COUNTERS: usize = 8;
/// Looks at the port after the crash, for answers from before it.
const LAST_LOOKS: u32 = 20;
/// The hash table and the ordered one.
pub const TABLES: [&str; 2] = ["plain", "ordered"];

/// What all clients know.
pub struct Model {
    objects: Vec<Mutex<Object>>,
    counters: Vec<Mutex<Counter>>,
    next: AtomicU64,
    tables: [u32; 2],
    /// Clients send nothing new.
    rests: AtomicBool,
}

/// How the requests of a client ended.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ended {
    pub written: u64,
    pub read: u64,
    pub refused: u64,
    pub open: u64,
}

/// A request without an answer, and the newest state at the time when it was sent.
#[derive(Clone, Copy)]
enum Asked {
    Put { key: usize, number: u64, known: State },
    Delete { key: usize, known: State },
    Get { key: usize, known: State },
    Increment { key: usize, known: i64 },
    Read { key: usize, known: i64 },
}

/// How long a client waits for answers before it looks again.
pub fn pause(rests: bool) -> Duration {
    Duration::from_millis(if rests { 50 } else { 1 })
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().expect("no client found anything wrong")
}

fn counter_key(key: usize) -> [u8; 9] {
    let mut bytes = [b'n'; 9];
    bytes[1..].copy_from_slice(&key.to_be_bytes());
    bytes
}

impl Model {
    pub fn new(tables: [u32; 2]) -> Self {
        Self {
            objects: (0..OBJECTS).map(|_| Mutex::default()).collect(),
            counters: (0..COUNTERS).map(|_| Mutex::default()).collect(),
            next: AtomicU64::new(1),
            tables,
            rests: AtomicBool::new(false),
        }
    }

    /// Has clients send nothing new until it is taken back.
    pub fn set_rests(&self, rests: bool) {
        self.rests.store(rests, Ordering::SeqCst);
    }

    /// Returns whether a client is to send nothing new.
    pub fn rests(&self) -> bool {
        self.rests.load(Ordering::SeqCst)
    }

    fn table_of(&self, key: usize) -> u32 {
        self.tables[key % 2]
    }

    /// Sends requests with so many under way, until it is over; says how they ended.
    pub fn load(&self, mut session: Session, random: Rng, depth: usize, is_over: &AtomicBool) -> Ended {
        let mut load = Load { model: self, random, asked: HashMap::new(), ended: Ended::default() };
        let mut tag = 0;
        while !is_over.load(Ordering::SeqCst) {
            while session.can_submit() && load.asked.len() < depth && !self.rests() {
                load.ask(&mut session, tag);
                tag += 1;
            }
            let polled = session.poll(&mut |completion| load.note(&completion));
            if polled.is_ok_and(|completed| completed == 0) {
                // The server may be gone.
                let _ = session.wait(pause(self.rests()));
            }
        }
        for _ in 0..LAST_LOOKS {
            let _ = session.poll(&mut |completion| load.note(&completion));
        }
        load.ended.open = load.asked.len() as u64;
        load.ended
    }

    /// Compares everything with what the server holds after a crash; returns how many objects there are.
    pub fn compare(&self, client: &mut Client) -> u64 {
        let mut wrong = Vec::new();
        let mut found = 0;
        for (table, of_table) in self.tables.into_iter().zip(0..2) {
            let keys: Vec<usize> = (of_table..OBJECTS).step_by(2).collect();
            let names: Vec<[u8; 8]> = keys.iter().map(|key| key.to_be_bytes()).collect();
            let names: Vec<&[u8]> = names.iter().map(|name| &name[..]).collect();
            let objects = client.multi_get(table, &names).expect("the server answers");
            for (key, object) in keys.into_iter().zip(objects) {
                found += u64::from(object.is_some());
                let object = object.map(|object| (object.version, number_of(&object.value)));
                let result = lock(&self.objects[key]).recover(object);
                wrong.extend(result.err().map(|what| format!("key {key}: {what}")));
            }
        }
        for (key, counter) in self.counters.iter().enumerate() {
            let object = client.get(self.table_of(key), &counter_key(key)).expect("the server answers");
            found += u64::from(object.is_some());
            let read = |bytes: &[u8]| i64::from_le_bytes(bytes.try_into().expect("a number"));
            let number = object.map_or((0, 0), |object| (read(&object.value), object.version));
            wrong.extend(lock(counter).recover(number).err().map(|what| format!("counter {key}: {what}")));
        }
        assert!(wrong.is_empty(), "{} keys:\n{}", wrong.len(), wrong.join("\n"));
        found
    }
}

/// A client at work.
struct Load<'m> {
    model: &'m Model,
    random: Rng,
    asked: HashMap<u64, Asked>,
    ended: Ended,
}

impl Load<'_> {
    fn ask(&mut self, session: &mut Session, tag: u64) {
        let key = self.random.usize(0..OBJECTS);
        let (table, name) = (self.model.table_of(key), key.to_be_bytes());
        let asked = match self.random.u8(0..100) {
            0..50 => self.ask_put(session, tag),
            50..60 => {
                let condition = Condition::Always;
                let known = {
                    let mut object = lock(&self.model.objects[key]);
                    object.begin_delete();
                    object.newest()
                };
                session
                    .submit(&Request::Delete { table, key: &name, condition }, tag)
                    .expect("there is room");
                Asked::Delete { key, known }
            }
            60..80 => {
                let known = lock(&self.model.objects[key]).newest();
                session.submit(&Request::Get { table, key: &name }, tag).expect("there is room");
                Asked::Get { key, known }
            }
            kind => {
                let key = self.random.usize(0..COUNTERS);
                let (table, name) = (self.model.table_of(key), counter_key(key));
                let mut counter = lock(&self.model.counters[key]);
                let known = counter.value;
                let (request, asked) = if kind < 95 {
                    counter.begin();
                    (Request::Increment { table, key: &name, delta: 1 }, Asked::Increment { key, known })
                } else {
                    (Request::Get { table, key: &name }, Asked::Read { key, known })
                };
                session.submit(&request, tag).expect("there is room");
                asked
            }
        };
        self.asked.insert(tag, asked);
    }

    /// Puts an object, often under a condition.
    fn ask_put(&mut self, session: &mut Session, tag: u64) -> Asked {
        let key = self.random.usize(0..OBJECTS);
        let number = self.model.next.fetch_add(1, Ordering::Relaxed);
        let known = {
            let mut object = lock(&self.model.objects[key]);
            object.begin_put(number);
            object.newest()
        };
        let condition = match self.random.u8(0..8) {
            0 => known.version().map_or(Condition::Absent, Condition::Version),
            1 => Condition::Present,
            2 => Condition::Absent,
            _ => Condition::Always,
        };
        let (table, name, value) = (self.model.table_of(key), key.to_be_bytes(), value_of(number));
        let request = Request::Put { table, key: &name, value: &value, condition };
        session.submit(&request, tag).expect("there is room");
        Asked::Put { key, number, known }
    }

    fn note(&mut self, completion: &Completion<'_>) {
        // Requests without an answer stay among those that were asked.
        let Ok(status) = completion.status else { return };
        let asked = self.asked.remove(&completion.tag).expect("a request ends once");
        let body = completion.body;
        let is_passing = [Status::OutOfMemory, Status::StorageFull].contains(&status);
        match asked {
            Asked::Put { key, number, known } => {
                let mut object = lock(&self.model.objects[key]);
                match status {
                    Status::Ok => {
                        let version = reply::decode_version(body).expect("a version");
                        object.end_put(number, version, known);
                        self.ended.written += 1;
                    }
                    Status::ConditionFailed => {
                        object.refuse_put(number);
                        match reply::decode_version(body).expect("a version") {
                            0 => object.show_absence(known),
                            current => object.show(current, None, known),
                        }
                        self.ended.read += 1;
                    }
                    _ if is_passing => object.refuse_put(number),
                    _ => panic!("a put ended with {status:?}"),
                }
            }
            Asked::Delete { key, known } => {
                let mut object = lock(&self.model.objects[key]);
                match status {
                    Status::Ok => {
                        object.end_delete(reply::decode_version(body).expect("a version"), known);
                        self.ended.written += 1;
                    }
                    Status::NotFound => {
                        object.refuse_delete();
                        object.show_absence(known);
                        self.ended.read += 1;
                    }
                    _ if is_passing => object.refuse_delete(),
                    _ => panic!("a delete ended with {status:?}"),
                }
            }
            Asked::Get { key, known } => {
                let mut object = lock(&self.model.objects[key]);
                match status {
                    Status::Ok => {
                        let found = reply::Object::decode(body).expect("an object");
                        object.show(found.version, Some(number_of(found.value)), known);
                    }
                    Status::NotFound => object.show_absence(known),
                    _ => panic!("a get ended with {status:?}"),
                }
                self.ended.read += 1;
            }
            Asked::Increment { .. } | Asked::Read { .. } => self.note_counter(asked, status, body),
        }
        self.ended.refused += u64::from(is_passing);
    }

    fn note_counter(&mut self, asked: Asked, status: Status, body: &[u8]) {
        match (asked, status) {
            (Asked::Increment { key, known }, Status::Ok) => {
                let number = reply::Number::decode(body).expect("a number");
                lock(&self.model.counters[key]).end(number.value, number.version, known);
                self.ended.written += 1;
            }
            (Asked::Increment { key, .. }, Status::OutOfMemory | Status::StorageFull) => {
                lock(&self.model.counters[key]).refuse();
            }
            (Asked::Read { key, known }, Status::Ok) => {
                let found = reply::Object::decode(body).expect("an object");
                let value = i64::from_le_bytes(found.value.try_into().expect("a number"));
                lock(&self.model.counters[key]).show(value, found.version, known);
                self.ended.read += 1;
            }
            (Asked::Read { known: 0, .. }, Status::NotFound) => self.ended.read += 1,
            _ => panic!("a request to a counter ended with {status:?}"),
        }
    }
}

impl Ended {
    /// Adds what another client did.
    pub fn add(&mut self, other: &Ended) {
        self.written += other.written;
        self.read += other.read;
        self.refused += other.refused;
        self.open += other.open;
    }
}
