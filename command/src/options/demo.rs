//! The options of `splinter demo`.

use super::tao::Through;
use clap::Args;
use std::path::PathBuf;

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
