//! Loading a graph: each node becomes an object, each edge an association in both directions.
//!
//! Through the extension, an edge is one invocation, which writes both directions. With plain puts, the client makes
//! the same records itself: fewer requests, but it must be the only writer of the graph.

use crate::failure::Failure;
use crate::graph::{FRIEND, Graph};
use crate::options::Through;
use crate::output::thousands;
use crate::pipeline::{self, Then};
use crate::tao::failure_of;
use client::{Client, Condition, Error, Function, Request};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Instant;
use tao::bulk;
use tao::entry::Entry;
use tao::key::{self, ListId, ObjectId};
use tao::message::Call;
use tao::object::{Object, ObjectType};

/// Kind of the objects that nodes become.
pub const PERSON: ObjectType = ObjectType(1);

/// Time of the first edge; each edge is a second later than the one before it in the file.
pub const TIME_FIRST: u64 = 1_600_000_000;

/// A load of a graph.
#[derive(Debug)]
pub struct Load {
    /// Name of the table of the graph; created if it does not exist.
    pub table: String,
    /// Name of the extension.
    pub extension: String,
    /// How to write.
    pub through: Through,
    /// Maximum number of outstanding requests.
    pub outstanding: usize,
}

/// Statistics of a load.
#[derive(Clone, Debug, Serialize)]
pub struct Loaded {
    /// Nodes of the graph.
    pub nodes: usize,
    /// Edges of the graph.
    pub edges: usize,
    /// Number of requests.
    pub requests: u64,
    /// Duration.
    pub seconds: f64,
}

impl Load {
    /// Loads a graph, and returns its table. Existing records are written again, so an interrupted load can be
    /// repeated.
    pub fn run(&self, client: &mut Client, graph: &Graph) -> Result<(Loaded, u32), Failure> {
        let started = Instant::now();
        let (requests, table) = match self.through {
            Through::Extension => {
                // Without the extension there is no table either.
                let functions = self.functions(client)?;
                let table = client.table_open_or_create(&self.table)?;
                (self.invoke_all(client, table, functions, graph)?, table)
            }
            Through::Puts => {
                let table = client.table_open_or_create(&self.table)?;
                (self.put_all(client, table, graph)?, table)
            }
        };
        let seconds = started.elapsed().as_secs_f64();
        Ok((Loaded { nodes: graph.nodes.len(), edges: graph.edges.len(), requests, seconds }, table))
    }

    /// Resolves the functions of a load: those that declare a type, add an object, add an association.
    fn functions(&self, client: &mut Client) -> Result<[Function; 3], Failure> {
        let mut resolve =
            |name: &str| client.resolve(&format!("{}.{name}", self.extension)).map_err(failure_of);
        Ok([resolve("assoc_declare")?, resolve("obj_add")?, resolve("assoc_add")?])
    }

    fn invoke_all(
        &self,
        client: &mut Client,
        table: u32,
        [declare, obj_add, assoc_add]: [Function; 3],
        graph: &Graph,
    ) -> Result<u64, Failure> {
        let function_of = |call: &Call<'_>| match call {
            Call::ObjAdd(..) => obj_add,
            Call::AssocAdd { .. } => assoc_add,
            _ => declare,
        };
        // The type first: an association that is written before its type is declared has no inverse.
        let declaration = Call::AssocDeclare { atype: FRIEND, inverse: FRIEND };
        self.invoke_some((client, table), 1, |_, send| send(function_of(&declaration), &declaration))?;
        let nodes = graph.nodes.len() as u64;
        let total = nodes + graph.edges.len() as u64;
        self.invoke_some((client, table), total, |index, send| {
            if index < nodes {
                let id = graph.nodes[index as usize];
                let data = person(id);
                let call = Call::ObjAdd(ObjectId(id), Object { otype: PERSON, data: data.as_bytes() });
                return send(function_of(&call), &call);
            }
            let edge = index - nodes;
            let (left, right) = graph.edges[edge as usize];
            let list = ListId { id1: ObjectId(left), atype: FRIEND };
            let data = edge.to_le_bytes();
            let call = Call::AssocAdd { list, id2: ObjectId(right), time: TIME_FIRST + edge, data: &data };
            send(function_of(&call), &call)
        })?;
        Ok(1 + total)
    }

    /// Invokes the calls that `make` returns for the indices 0 to `total` - 1.
    fn invoke_some(
        &self,
        (client, table): (&mut Client, u32),
        total: u64,
        make: impl Fn(u64, &mut dyn FnMut(Function, &Call<'_>) -> Result<(), Error>) -> Result<(), Error>,
    ) -> Result<(), Failure> {
        let (mut key, mut arguments) = (Vec::new(), Vec::new());
        let progress = Progress::new(total);
        let submit = |session: &mut client::Session, index: u64| {
            make(index, &mut |function: Function, call: &Call<'_>| {
                call.encode(&mut key, &mut arguments);
                session.submit(&function.request(table, &key, &arguments), index)
            })
        };
        pipeline::run(client.session(), total, self.outstanding, submit, |completion| {
            if pipeline::is_conflict(completion) {
                return Ok(Then::Again);
            }
            progress.step();
            match Error::check(completion) {
                Ok(_) => Ok(Then::Done),
                // An earlier load added this object.
                Err(Error::ExtensionFailed { code, .. })
                    if sandstorm::Error::Application(code) == tao::fault::OBJECT_EXISTS =>
                {
                    Ok(Then::Done)
                }
                Err(error) => Err(broken_off(failure_of(error))),
            }
        })
    }

    fn put_all(&self, client: &mut Client, table: u32, graph: &Graph) -> Result<u64, Failure> {
        let records = records(graph);
        let total = records.len() as u64;
        let progress = Progress::new(total);
        let submit = |session: &mut client::Session, index: u64| {
            let (key, value) = &records[index as usize];
            let request = Request::Put { table, key, value, condition: Condition::Always };
            session.submit(&request, index)
        };
        pipeline::run(client.session(), total, self.outstanding, submit, |completion| {
            progress.step();
            Error::check(completion).map(|_| Then::Done).map_err(|error| broken_off(error.into()))
        })?;
        Ok(total)
    }
}

/// Returns all records of a graph.
fn records(graph: &Graph) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut lists: BTreeMap<u64, Vec<(u64, u64)>> = BTreeMap::new();
    for (edge, (left, right)) in (0..).zip(&graph.edges) {
        lists.entry(*left).or_default().push((*right, edge));
        lists.entry(*right).or_default().push((*left, edge));
    }
    let mut records = vec![(key::assoc_type(FRIEND).to_vec(), FRIEND.0.to_le_bytes().to_vec())];
    for id in &graph.nodes {
        let data = person(*id);
        let object = Object { otype: PERSON, data: data.as_bytes() };
        records.push((key::object(ObjectId(*id)).to_vec(), object.encode()));
    }
    for (id, ends) in lists {
        let data: Vec<[u8; 8]> = ends.iter().map(|(_, edge)| edge.to_le_bytes()).collect();
        let entries: Vec<Entry<'_>> = ends
            .iter()
            .zip(&data)
            .map(|((end, edge), data)| Entry { time: TIME_FIRST + edge, id2: ObjectId(*end), data })
            .collect();
        let list = ListId { id1: ObjectId(id), atype: FRIEND };
        records.extend(bulk::list_records(list, &entries).into_iter().map(|put| (put.key, put.value)));
    }
    records
}

/// Returns the data of a node's object.
pub fn person(id: u64) -> String {
    let (city, year) = (id * 7 % 1_000, 1950 + id % 60);
    format!("{{\"name\":\"person {id}\",\"city\":\"city {city}\",\"born\":{year}}}")
}

fn broken_off(failure: Failure) -> Failure {
    failure.next("what was loaded so far is kept: repeat the load")
}

/// Returns a progress bar on standard error, hidden if that is not a terminal.
struct Progress {
    bar: ProgressBar,
}

impl Progress {
    fn new(total: u64) -> Progress {
        let bar = ProgressBar::new(total);
        let style = ProgressStyle::with_template("{wide_bar} {human_pos}/{human_len} {per_sec} {eta}");
        if let Ok(style) = style {
            bar.set_style(style);
        }
        Progress { bar }
    }

    fn step(&self) {
        self.bar.inc(1);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

impl fmt::Display for Loaded {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let per_second = self.requests as f64 / self.seconds.max(1e-9);
        write!(
            out,
            "loaded {} objects and {} edges (both directions) in {:.2} s: {} requests, {}/s",
            thousands(self.nodes as u64),
            thousands(self.edges as u64),
            self.seconds,
            thousands(self.requests),
            thousands(per_second as u64)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::{FRIEND, Graph, records};
    use tao::head::Head;
    use tao::key::{self, ListId, ObjectId};

    #[test]
    fn each_node_gets_an_object_and_a_list_of_all_its_edges() {
        let star = (1..200).map(|end| (0, end));
        let records = records(&Graph::new(star.chain([(5, 6)])));
        let count = |id: u64| {
            let head = key::head(ListId { id1: ObjectId(id), atype: FRIEND });
            let record = records.iter().find(|record| record.0 == head).unwrap();
            Head::parse(&record.1).unwrap().count()
        };
        assert_eq!([count(0), count(1), count(5), count(6)], [199, 1, 2, 2]);
        let objects = (0..200).filter(|id| {
            let key = key::object(ObjectId(*id));
            records.iter().any(|record| record.0 == key)
        });
        assert_eq!(objects.count(), 200);
    }
}
