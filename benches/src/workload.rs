//! The requests of each workload, one after another.
//!
//! A [`Generator`] owns the buffers that its requests borrow, so that drawing one allocates nothing once
//! they have grown. The same seed draws the same requests. YCSB's letters are those of its paper (Cooper et
//! al., SoCC 2010): A half reads and half writes, B 95 % reads, C reads alone. The TAO mix is that of
//! `tao::mix`, over its synthetic graph; aggregates sum records that `loading` has written.

use clap::ValueEnum;
use fastrand::Rng;
use serde::{Deserialize, Serialize};
use tao::message::Call;
use tao::mix::{self, Mix, Random};
use wire::{Condition, Keys, Request, function_hash};

use crate::dataset::{Dataset, LISTS, graph_mix, list_key, list_members};
use crate::popularity::Popularity;

/// Most objects that one request of a workload touches.
pub const RECORDS_MAX: usize = 64;

/// The workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Workload {
    /// An empty request.
    Ping,
    /// Reads one object.
    Get,
    /// Overwrites one object.
    Put,
    /// Reads several objects in one request.
    Multiget,
    /// Half gets, half puts.
    YcsbA,
    /// 95 % gets, 5 % puts.
    YcsbB,
    /// Only gets.
    YcsbC,
    /// Invokes a function that does nothing, of the extension noop.
    Noop,
    /// Invokes a function that reads one object, of the extension get.
    InvokeGet,
    /// Invokes a function that sums several objects, of the extension aggregate.
    Aggregate,
    /// Invokes the read mix of the ATC'13 paper over a graph with as many objects, of the extension tao.
    Tao,
}

impl Workload {
    /// The extension whose functions the workload invokes.
    pub fn extension(self) -> Option<&'static str> {
        match self {
            Self::Noop => Some("noop"),
            Self::InvokeGet => Some("get"),
            Self::Aggregate => Some("aggregate"),
            Self::Tao => Some("tao"),
            _ => None,
        }
    }

    /// Whether the workload is about the objects of a [`Dataset`].
    pub fn uses_dataset(self) -> bool {
        !matches!(self, Self::Ping | Self::Noop | Self::Tao)
    }
}

/// What a good answer of a request contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Any bytes.
    Anything,
    /// A get's answer: an object whose value names this index.
    Object(u64),
    /// Several objects.
    Objects(usize),
    /// So many objects of an ordered table, whose values name this index and those behind it.
    Ordered(u64, usize),
    /// An invocation's answer: a value that names this index.
    Value(u64),
    /// An invocation's answer: this sum.
    Sum(u64),
}

/// Where the requests of a load come from.
pub trait Source {
    /// Draws the next request, lends it to `send` and returns what that returned.
    fn next<R>(&mut self, send: impl FnOnce(&Request<'_>, Expected) -> R) -> R;

    /// Objects that one request touches.
    fn objects(&self) -> u64;

    /// Chooses the session of the next request; else it is `free`.
    fn session(&mut self, free: usize) -> usize {
        free
    }
}

/// Draws the requests of one workload.
#[derive(Debug)]
pub struct Generator {
    workload: Workload,
    table: u32,
    extension: u32,
    records: usize,
    data: Dataset,
    popularity: Popularity,
    random: Rng,
    questions: Random,
    mix: Mix,
    key: Vec<u8>,
    arguments: Vec<u8>,
}

/// Where a workload's requests go and how large they are.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The table that holds the data.
    pub table: u32,
    /// The extension's id, where the workload invokes one.
    pub extension: u32,
    /// Objects of one multi-get or aggregate, at most [`RECORDS_MAX`].
    pub records: usize,
    /// Seed of all choices.
    pub seed: u64,
}

impl Generator {
    /// A generator over `data`, or over a graph of as many objects.
    pub fn new(workload: Workload, target: Target, data: Dataset, theta: f64) -> Result<Self, String> {
        if target.records == 0 || target.records > RECORDS_MAX {
            return Err(format!("a request touches 1 to {RECORDS_MAX} objects, not {}", target.records));
        }
        Ok(Self {
            workload,
            table: target.table,
            extension: target.extension,
            records: target.records,
            popularity: Popularity::new(data.keys(), theta)?,
            random: Rng::with_seed(target.seed),
            questions: Random::new(target.seed),
            mix: graph_mix(data.keys()),
            data,
            key: Vec::new(),
            arguments: Vec::new(),
        })
    }

    fn get<R>(&mut self, send: impl FnOnce(&Request<'_>, Expected) -> R) -> R {
        let index = self.popularity.pick(&mut self.random);
        send(&Request::Get { table: self.table, key: self.data.key(index) }, Expected::Object(index))
    }

    fn put<R>(&mut self, send: impl FnOnce(&Request<'_>, Expected) -> R) -> R {
        let index = self.popularity.pick(&mut self.random);
        let table = self.table;
        let (key, value) = self.data.object(index);
        send(&Request::Put { table, key, value, condition: Condition::Always }, Expected::Anything)
    }

    fn multi_get<R>(&mut self, send: impl FnOnce(&Request<'_>, Expected) -> R) -> R {
        self.arguments.clear();
        for _ in 0..self.records {
            let index = self.popularity.pick(&mut self.random);
            self.arguments.extend_from_slice(self.data.key(index));
        }
        let mut keys = [[].as_slice(); RECORDS_MAX];
        for (place, key) in keys.iter_mut().zip(self.arguments.chunks_exact(self.data.key_bytes())) {
            *place = key;
        }
        let keys = Keys::from_slices(&keys[..self.records]);
        send(&Request::MultiGet { table: self.table, keys }, Expected::Objects(self.records))
    }

    fn invoke_get<R>(&mut self, send: impl FnOnce(&Request<'_>, Expected) -> R) -> R {
        let index = self.popularity.pick(&mut self.random);
        self.key.clear();
        self.key.extend_from_slice(self.data.key(index));
        send(&invoke(self, "get", &self.key, &[]), Expected::Value(index))
    }

    fn aggregate<R>(&mut self, send: impl FnOnce(&Request<'_>, Expected) -> R) -> R {
        let list = self.random.u64(0..LISTS);
        self.key.clear();
        self.key.extend_from_slice(&list_key(self.records, list));
        let sum = list_members(self.records, list, self.data.keys()).sum();
        let key_bytes = self.data.key_bytes() as u32;
        send(&invoke(self, "aggregate", &self.key, &key_bytes.to_le_bytes()), Expected::Sum(sum))
    }

    fn question<R>(&mut self, send: impl FnOnce(&Request<'_>, Expected) -> R) -> R {
        let objects = self.mix.objects;
        let question = self
            .mix
            .draw(&mut self.questions, |id, choice| mix::neighbour(id, choice % mix::degree(id), objects));
        let call = Call::of_question(&question);
        call.encode(&mut self.key, &mut self.arguments);
        send(&invoke(self, call.function(), &self.key, &self.arguments), Expected::Anything)
    }
}

impl Source for Generator {
    fn objects(&self) -> u64 {
        match self.workload {
            Workload::Ping | Workload::Noop => 0,
            Workload::Multiget | Workload::Aggregate => self.records as u64,
            _ => 1,
        }
    }

    fn next<R>(&mut self, send: impl FnOnce(&Request<'_>, Expected) -> R) -> R {
        match self.workload {
            Workload::Ping => send(&Request::Ping, Expected::Anything),
            Workload::Get | Workload::YcsbC => self.get(send),
            Workload::Put => self.put(send),
            Workload::YcsbA if self.random.bool() => self.put(send),
            Workload::YcsbB if self.random.u32(0..100) < 5 => self.put(send),
            Workload::YcsbA | Workload::YcsbB => self.get(send),
            Workload::Multiget => self.multi_get(send),
            Workload::Noop => send(&invoke(self, "noop", &[], &[]), Expected::Anything),
            Workload::InvokeGet => self.invoke_get(send),
            Workload::Aggregate => self.aggregate(send),
            Workload::Tao => self.question(send),
        }
    }
}

fn invoke<'a>(generator: &Generator, function: &str, key: &'a [u8], arguments: &'a [u8]) -> Request<'a> {
    invocation((generator.extension, generator.table), function_hash(function), key, arguments)
}

/// An invocation of the latest version of an extension, with a table.
pub fn invocation<'a>(
    (extension, table): (u32, u32),
    function: u32,
    key: &'a [u8],
    arguments: &'a [u8],
) -> Request<'a> {
    Request::Invoke { extension, version: 0, function, table, key, arguments }
}
