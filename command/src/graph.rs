//! A graph on disk: an edge list in the format of the SNAP collection, and a generator of one.
//!
//! A line is two node numbers; lines that start with `#` are comments. Edges are undirected: an edge that
//! is listed in both directions, or twice, counts once. Edges from a node to itself are ignored.

mod generate;

pub use generate::Shape;

use super::failure::{Failure, FailureKind};
use std::collections::HashSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use tao::key::AssocType;

/// Type of the associations that edges become: friends, symmetric.
pub const FRIEND: AssocType = AssocType(1);

/// An undirected graph.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Graph {
    /// Its nodes, ascending.
    pub nodes: Vec<u64>,
    /// Its edges, in the order of the file.
    pub edges: Vec<(u64, u64)>,
}

/// Ids from here on belong to the store (see `tao::object`), so a file may not use them.
const NODE_MAX: u64 = tao::object::ID_ASSIGNED_FIRST - 1;

impl Graph {
    /// Returns a graph of these edges, without duplicates and self-loops.
    pub fn new(edges: impl IntoIterator<Item = (u64, u64)>) -> Graph {
        let mut seen = HashSet::new();
        let mut graph = Graph::default();
        for (left, right) in edges {
            if left != right && seen.insert((left.min(right), left.max(right))) {
                graph.edges.push((left, right));
            }
        }
        graph.nodes = graph.edges.iter().flat_map(|&(left, right)| [left, right]).collect();
        graph.nodes.sort_unstable();
        graph.nodes.dedup();
        graph
    }

    /// Reads an edge list.
    pub fn read(path: &Path) -> Result<Graph, Failure> {
        let cannot = |error: std::io::Error| {
            Failure::new(FailureKind::Local, format!("cannot read {}: {error}", path.display()))
                .next("give a text file with two node numbers per line, as in the SNAP collection")
        };
        let mut edges = Vec::new();
        for (number, line) in BufReader::new(File::open(path).map_err(cannot)?).lines().enumerate() {
            let line = line.map_err(cannot)?;
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let edge = parse_line(line).ok_or_else(|| {
                let shown: String = line.chars().take(40).collect();
                Failure::new(
                    FailureKind::Local,
                    format!("{}:{}: not an edge: \"{shown}\"", path.display(), number + 1),
                )
                .next("a line is two node numbers below 2^63, separated by blanks; comments start with #")
            })?;
            edges.push(edge);
        }
        let graph = Graph::new(edges);
        if graph.edges.is_empty() {
            return Err(Failure::new(FailureKind::Local, format!("{} has no edges", path.display())));
        }
        Ok(graph)
    }

    /// Writes it as an edge list under a comment.
    pub fn write(&self, out: &mut impl Write, comment: &str) -> std::io::Result<()> {
        writeln!(out, "# {comment} Undirected. Nodes: {} Edges: {}", self.nodes.len(), self.edges.len())?;
        for (left, right) in &self.edges {
            writeln!(out, "{left} {right}")?;
        }
        out.flush()
    }
}

fn parse_line(line: &str) -> Option<(u64, u64)> {
    let mut words = line.split_ascii_whitespace();
    let left = words.next()?.parse().ok()?;
    let right = words.next()?.parse().ok()?;
    (words.next().is_none() && left <= NODE_MAX && right <= NODE_MAX).then_some((left, right))
}

#[cfg(test)]
mod tests {
    use super::{Graph, Shape};
    use std::io::Write;

    fn read(text: &str) -> Result<Graph, String> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        Graph::read(file.path()).map_err(|failure| failure.to_string())
    }

    #[test]
    fn comments_doubles_and_self_edges_are_left_out() {
        let graph = read("# a comment\n\n1 2\n2 1\n 3\t1 \n3 3\n").unwrap();
        assert_eq!(graph.edges, [(1, 2), (3, 1)]);
        assert_eq!(graph.nodes, [1, 2, 3]);
    }

    #[test]
    fn a_line_that_is_no_edge_is_named() {
        let refused = read("1 2\n1 two\n").unwrap_err();
        assert!(refused.contains(":2: not an edge"), "{refused}");
        assert!(read("1 2 3\n").unwrap_err().contains(":1: not an edge"));
        assert!(read("1 9223372036854775808\n").unwrap_err().contains("2^63"));
    }

    #[test]
    fn an_empty_graph_is_refused() {
        assert!(read("# nothing\n").unwrap_err().contains("no edges"));
    }

    #[test]
    fn a_written_graph_reads_back_as_itself() {
        let graph = Shape { nodes: 200, edges_per_node: 5, seed: 3 }.graph();
        let mut text = Vec::new();
        graph.write(&mut text, "Test.").unwrap();
        assert_eq!(read(std::str::from_utf8(&text).unwrap()).unwrap(), graph);
    }
}
