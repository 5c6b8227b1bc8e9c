//! `splinter tao`: graphs in the store.
//!
//! Queries invoke the tenant's extension `tao`. Loading invokes its write functions, or bypasses them with plain puts
//! of the same records.

pub mod load;

use super::bytes::shown;
use super::failure::{Failure, FailureKind};
use super::graph::{Graph, Shape};
use super::object;
use super::output::{Answer, columns, thousands};
use super::settings::Settings;
use clap::{Args, Subcommand};
use load::{Load, Through};
use serde_json::json;
use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;
use tao::entry::Run;
use tao::key::{AssocType, ListId, ObjectId};
use tao::message::{Call, FriendsOfFriends, decode_count};
use tao::object::Object;

/// Type of the associations of a loaded graph: friends, symmetric.
pub const FRIEND: AssocType = AssocType(1);

/// The commands of `splinter tao`.
#[derive(Debug, Subcommand)]
pub enum TaoCommand {
    /// Load an edge list (SNAP format) as objects and associations.
    Load {
        /// File to load.
        file: PathBuf,
        #[command(flatten)]
        place: GraphTable,
        /// Way to write the graph.
        #[arg(long, value_enum, default_value = "extension")]
        through: Through,
        /// Number of outstanding requests.
        #[arg(long, default_value_t = 128)]
        outstanding: usize,
    },
    /// Write a random graph that resembles friendships, as an edge list.
    Generate {
        /// File to write; default: standard output.
        file: Option<PathBuf>,
        /// Number of nodes.
        #[arg(long, default_value_t = 4_000, value_parser = clap::value_parser!(u64).range(2..=10_000_000))]
        nodes: u64,
        /// Number of friends that each new node makes.
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=1_000))]
        edges_per_node: u64,
        /// Seed of the random generator.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Show the associations of an object by position, newest first.
    AssocRange {
        #[command(flatten)]
        list: List,
        /// Position to start at, counted from the newest.
        #[arg(long, default_value_t = 0)]
        position: u32,
        /// Maximum number of associations.
        #[arg(long, default_value_t = 10)]
        limit: u32,
    },
    /// Show the number of associations of an object.
    AssocCount {
        #[command(flatten)]
        list: List,
    },
    /// Show an object.
    ObjGet {
        /// Id of the object.
        id: u64,
        #[command(flatten)]
        place: GraphTable,
    },
    /// Show friends of friends, those on most paths first.
    FriendsOfFriends {
        #[command(flatten)]
        list: List,
        /// Maximum number of friends of friends.
        #[arg(long, default_value_t = 10)]
        limit: u32,
    },
}

/// The table and the extension of a graph.
#[derive(Args, Clone, Debug)]
pub struct GraphTable {
    /// Table of the graph.
    #[arg(long, default_value = "graph")]
    pub table: String,
    /// Name of the installed extension.
    #[arg(long, default_value = "tao")]
    pub extension: String,
}

/// An association list of a graph.
#[derive(Args, Clone, Debug)]
pub struct List {
    /// Id of the object where the associations start.
    id: u64,
    /// Type of the associations.
    #[arg(long = "type", default_value_t = FRIEND.0)]
    atype: u32,
    #[command(flatten)]
    place: GraphTable,
}

impl List {
    fn id(&self) -> ListId {
        ListId { id1: ObjectId(self.id), atype: AssocType(self.atype) }
    }
}

/// Runs a graph command.
pub fn run(settings: &Settings, command: TaoCommand) -> Result<Answer, Failure> {
    match command {
        TaoCommand::Load { file, place, through, outstanding } => {
            let graph = Graph::read(&file)?;
            let mut client = settings.connect()?;
            let GraphTable { table, extension } = place;
            let load = Load { table, extension, through, outstanding: outstanding.max(1) };
            let (loaded, _) = load.run(&mut client, &graph)?;
            Ok(Answer::new(loaded.to_string(), json!(loaded)))
        }
        TaoCommand::Generate { file, nodes, edges_per_node, seed } => {
            generate(file, Shape { nodes, edges_per_node, seed })
        }
        TaoCommand::AssocRange { list, position, limit } => {
            let reply = call(settings, &list.place, &Call::AssocRange { list: list.id(), position, limit })?;
            Ok(entries(Run::new(&reply)))
        }
        TaoCommand::AssocCount { list } => {
            let reply = call(settings, &list.place, &Call::AssocCount(list.id()))?;
            let count = decode_count(&reply).ok_or_else(unintelligible)?;
            Ok(Answer::new(count.to_string(), json!({ "count": count })))
        }
        TaoCommand::ObjGet { id, place } => {
            let reply = call(settings, &place, &Call::ObjGet(ObjectId(id)))?;
            let Some(object) = Object::parse(&reply) else {
                let failure = Failure::new(FailureKind::Missing, format!("there is no object {id}"));
                return Err(failure.known_as(client::Status::NotFound));
            };
            let text = format!("type {}: {}", object.otype.0, shown(object.data));
            let value = json!({ "id": id, "type": object.otype.0, "data": object::value_of(object.data) });
            Ok(Answer::new(text, value))
        }
        TaoCommand::FriendsOfFriends { list, limit } => {
            let question = Call::FriendsOfFriends { list: list.id(), limit, visits: 0, objects: false };
            let reply = call(settings, &list.place, &question)?;
            let found = FriendsOfFriends::decode(&reply).ok_or_else(unintelligible)?;
            Ok(friends_of_friends(&found))
        }
    }
}

/// Invokes the extension.
fn call(settings: &Settings, place: &GraphTable, call: &Call<'_>) -> Result<Vec<u8>, Failure> {
    let (mut client, table) = object::open(settings, &place.table)?;
    let (mut key, mut arguments) = (Vec::new(), Vec::new());
    call.encode(&mut key, &mut arguments);
    let name = format!("{}.{}", place.extension, call.function());
    client.invoke(&name, table, &key, &arguments).map_err(failure_of)
}

/// Describes the failure of a call, with the meaning of the graph's own codes.
pub fn failure_of(error: client::Error) -> Failure {
    let meaning = match &error {
        client::Error::ExtensionFailed { code, .. } => tao::fault::describe(*code),
        _ => None,
    };
    match meaning {
        Some(meaning) => {
            Failure::new(FailureKind::Extension, meaning).known_as(client::Status::ExtensionError)
        }
        None if error.status() == Some(client::Status::UnknownExtension) => {
            Failure::from(error).next("install it from the sources of Splinter: splinter ext install ext/tao")
        }
        None => error.into(),
    }
}

/// Returns the failure for a reply that the graph extension cannot have sent.
pub fn unintelligible() -> Failure {
    Failure::new(FailureKind::Local, "the reply is none of the graph's")
        .next("install ext/tao of this release with `splinter ext install`")
}

fn generate(file: Option<PathBuf>, shape: Shape) -> Result<Answer, Failure> {
    let graph = shape.graph();
    let comment = format!("Generated by splinter tao generate, seed {}.", shape.seed);
    let (nodes, edges) = (graph.nodes.len(), graph.edges.len());
    let Some(path) = file else {
        // A reader that closed the pipe is not a failure.
        let _ = graph.write(&mut BufWriter::new(std::io::stdout().lock()), &comment);
        return Ok(Answer::new("", json!({ "nodes": nodes, "edges": edges })));
    };
    let write = || graph.write(&mut BufWriter::new(File::create(&path)?), &comment);
    write().map_err(|error| {
        Failure::new(FailureKind::Local, format!("cannot write {}: {error}", path.display()))
    })?;
    let (shown_nodes, shown_edges) = (thousands(nodes as u64), thousands(edges as u64));
    let text = format!("wrote {}: {shown_nodes} nodes, {shown_edges} edges", path.display());
    Ok(Answer::new(text, json!({ "file": path, "nodes": nodes, "edges": edges })))
}

fn entries(mut run: Run<'_>) -> Answer {
    let mut rows = vec![["time", "id", "data"].map(str::to_owned).to_vec()];
    let mut values = Vec::new();
    while let Some(entry) = run.take_first() {
        let data = shown(entry.data);
        rows.push(vec![entry.time.to_string(), entry.id2.0.to_string(), data]);
        let data = object::value_of(entry.data);
        values.push(json!({ "time": entry.time, "id": entry.id2.0, "data": data }));
    }
    Answer::new(columns(&rows), json!(values))
}

fn friends_of_friends(found: &FriendsOfFriends) -> Answer {
    let mut rows = vec![["id", "paths"].map(str::to_owned).to_vec()];
    rows.extend(found.ranked.iter().map(|(id, paths)| vec![id.0.to_string(), thousands(u64::from(*paths))]));
    let visited = thousands(u64::from(found.visited));
    let mut text = columns(&rows);
    text.push_str(&format!("{} in all, {visited} edges visited\n", thousands(u64::from(found.distinct))));
    let ranked: Vec<_> =
        found.ranked.iter().map(|(id, paths)| json!({ "id": id.0, "paths": paths })).collect();
    let value = json!({
        "distinct": found.distinct, "visited": found.visited, "complete": found.complete, "ranked": ranked,
    });
    Answer::new(text, value)
}
