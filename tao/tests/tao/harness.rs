//! A graph in memory, and a model of it that is too simple to be wrong.

use sandstorm::testing::MemoryDb;
use sandstorm::{Error, Table};
use std::collections::BTreeMap;
use tao::entry::{Run, Span};
use tao::function;
use tao::key::{self, AssocType, ListId, ObjectId};
use tao::message::{Call, decode_count, decode_flag};

/// Friends in most tests.
pub const FRIEND: AssocType = AssocType(7);

/// An association as the model knows it.
pub type Association = (u64, u64, Vec<u8>);

/// A graph in its own table.
pub struct Graph {
    /// The database.
    pub db: MemoryDb,
    /// The table.
    pub table: Table,
}

/// What lists hold, by list and other end.
#[derive(Default)]
pub struct Model {
    lists: BTreeMap<ListId, BTreeMap<u64, (u64, Vec<u8>)>>,
}

/// The seed of a random test: given, or its own.
pub fn seed(own: u64) -> u64 {
    let seed = std::env::var("TAO_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(own);
    println!("seed {seed}");
    seed
}

/// The friends of an object.
pub fn friends_of(id: u64) -> ListId {
    ListId { id1: ObjectId(id), atype: FRIEND }
}

/// The entries of a reply.
pub fn entries(reply: &[u8]) -> Vec<Association> {
    let (mut run, mut entries) = (Run::new(reply), Vec::new());
    while let Some(entry) = run.take_first() {
        entries.push((entry.time, entry.id2.0, entry.data.to_vec()));
    }
    assert!(run.bytes().is_empty(), "a reply ends with an entry");
    entries
}

impl Graph {
    /// An empty graph.
    pub fn new() -> Graph {
        let db = MemoryDb::new();
        let table = db.table("graph");
        Graph { db, table }
    }

    /// Makes a call, as a write only if it is one.
    pub fn call(&self, call: &Call<'_>) -> Result<Vec<u8>, Error> {
        let (mut key, mut arguments) = (Vec::new(), Vec::new());
        call.encode(&mut key, &mut arguments);
        self.raw(call.function(), call.is_write(), &key, &arguments)
    }

    /// Makes a call from its bytes.
    pub fn raw(&self, name: &str, write: bool, key: &[u8], arguments: &[u8]) -> Result<Vec<u8>, Error> {
        let run =
            async |db: &sandstorm::Db<'_>, args: sandstorm::Args<'_>, reply: &mut sandstorm::Reply<'_>| {
                function::by_name(name, db, args, reply).await
            };
        if write {
            self.db.call(run, self.table, key, arguments)
        } else {
            self.db.call_read(run, self.table, key, arguments)
        }
    }

    /// Adds an association; answers whether it is new.
    pub fn add(&self, list: ListId, id2: u64, time: u64, data: &[u8]) -> bool {
        let call = Call::AssocAdd { list, id2: ObjectId(id2), time, data };
        decode_flag(&self.call(&call).unwrap()).unwrap()
    }

    /// Deletes an association; answers whether there was one.
    pub fn delete(&self, list: ListId, id2: u64) -> bool {
        decode_flag(&self.call(&Call::AssocDelete { list, id2: ObjectId(id2) }).unwrap()).unwrap()
    }

    /// Entries by position.
    pub fn range(&self, list: ListId, position: u32, limit: u32) -> Vec<Association> {
        entries(&self.call(&Call::AssocRange { list, position, limit }).unwrap())
    }

    /// Entries by time.
    pub fn time_range(&self, list: ListId, span: Span, limit: u32) -> Vec<Association> {
        entries(&self.call(&Call::AssocTimeRange { list, span, limit }).unwrap())
    }

    /// Entries by their other ends.
    pub fn get(&self, list: ListId, ids: &[ObjectId], span: Span) -> Vec<Association> {
        entries(&self.call(&Call::AssocGet { list, ids, span }).unwrap())
    }

    /// Records of the first so many lists that are still there: heads, chunks, edges.
    pub fn records_left(&self, lists: u64, ends: u64) -> usize {
        let mut left = 0;
        for list in (0..lists).map(friends_of) {
            let chunks = (0..ends as u32).map(|number| key::chunk(list, number).to_vec());
            let edges = (0..ends).map(|end| key::edge(list, ObjectId(end)).to_vec());
            let keys = chunks.chain(edges).chain([key::head(list).to_vec()]);
            left += keys.filter(|key| self.db.get(self.table, key).is_some()).count();
        }
        left
    }

    /// How many entries.
    pub fn count(&self, list: ListId) -> u64 {
        decode_count(&self.call(&Call::AssocCount(list)).unwrap()).unwrap()
    }
}

impl Model {
    /// Adds an association; answers whether it is new.
    pub fn add(&mut self, list: ListId, id2: u64, time: u64, data: &[u8]) -> bool {
        self.lists.entry(list).or_default().insert(id2, (time, data.to_vec())).is_none()
    }

    /// Deletes an association; answers whether there was one.
    pub fn delete(&mut self, list: ListId, id2: u64) -> bool {
        self.lists.get_mut(&list).is_some_and(|entries| entries.remove(&id2).is_some())
    }

    /// How many entries.
    pub fn count(&self, list: ListId) -> usize {
        self.lists.get(&list).map_or(0, BTreeMap::len)
    }

    /// The whole list, newest first.
    pub fn list(&self, list: ListId) -> Vec<Association> {
        let entries = self.lists.get(&list).into_iter().flatten();
        let mut all: Vec<Association> =
            entries.map(|(id2, (time, data))| (*time, *id2, data.clone())).collect();
        all.sort_by(|left, right| right.cmp(left));
        all
    }

    /// Entries by time.
    pub fn time_range(&self, list: ListId, span: Span, limit: usize) -> Vec<Association> {
        let all = self.list(list).into_iter();
        all.filter(|entry| span.low <= entry.0 && entry.0 <= span.high).take(limit).collect()
    }

    /// Entries by their other ends.
    pub fn get(&self, list: ListId, ids: &[ObjectId], span: Span) -> Vec<Association> {
        let Some(entries) = self.lists.get(&list) else { return Vec::new() };
        let found =
            ids.iter().filter_map(|id| entries.get(&id.0).map(|entry| (entry.0, id.0, entry.1.clone())));
        found.filter(|entry| span.low <= entry.0 && entry.0 <= span.high).collect()
    }
}
