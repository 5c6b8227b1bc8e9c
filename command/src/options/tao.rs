//! The command lines of `splinter tao` and `splinter demo`.

use crate::graph::FRIEND;
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;
use tao::key::{AssocType, ListId, ObjectId};

/// The commands of `splinter tao`.
#[derive(Debug, Subcommand)]
pub enum TaoCommand {
    /// Load an edge list (SNAP format) as objects and associations.
    Load {
        /// File to load.
        file: PathBuf,
        #[command(flatten)]
        place: GraphTable,
        /// How to write the graph.
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
    pub place: GraphTable,
}

impl List {
    /// Returns its key.
    pub fn id(&self) -> ListId {
        ListId { id1: ObjectId(self.id), atype: AssocType(self.atype) }
    }
}

/// How to write a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Through {
    /// Through the extension's write functions.
    Extension,
    /// With plain puts.
    Puts,
}

/// The options of `splinter demo`.
#[derive(Args, Clone, Debug)]
pub struct DemoOptions {
    /// Edge list in SNAP format; default: a generated graph.
    #[arg(long)]
    pub graph: Option<PathBuf>,
    /// Also write the figures to this file, as JSON.
    #[arg(long)]
    pub json: Option<PathBuf>,
    /// Table of the graph; the records of the aggregates are in the table NAME-records.
    #[arg(long, default_value = "graph")]
    pub table: String,
    /// How to write the graph.
    #[arg(long, value_enum, default_value = "extension")]
    pub through: Through,
    /// Ask a tenth of the questions.
    #[arg(long)]
    pub quick: bool,
    /// Seed that selects the questions.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}
