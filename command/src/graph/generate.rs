//! A generator of graphs that resemble friendships: a few nodes have many edges, and friends of friends are often
//! friends.
//!
//! After Holme and Kim, "Growing scale-free networks with tunable clustering" (2002): nodes come one by
//! one; each makes some friends, the first chosen in proportion to how many friends one has, the next
//! mostly among that one's friends. A pure function of its numbers.

use super::Graph;
use std::collections::HashSet;
use tao::mix::Random;

/// Per cent of the friends that are chosen among the previous one's friends.
const CLOSURE_PERCENT: u64 = 75;

/// Parameters of a generated graph.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Nodes, numbered from 0.
    pub nodes: u64,
    /// Friends that a new node makes.
    pub edges_per_node: u64,
    /// Seed of the random generator; determines the graph.
    pub seed: u64,
}

impl Shape {
    /// Generates the graph.
    pub fn graph(&self) -> Graph {
        let mut random = Random::new(self.seed);
        let mut friends: Vec<Vec<u64>> = Vec::with_capacity(self.nodes as usize);
        let mut edges: Vec<(u64, u64)> = Vec::new();
        for node in 0..self.nodes {
            let wanted = self.edges_per_node.min(node) as usize;
            let mut chosen = HashSet::new();
            let mut order = Vec::with_capacity(wanted);
            while order.len() < wanted {
                let friend = self.choose(node, &friends, &edges, &order, &mut random);
                if chosen.insert(friend) {
                    order.push(friend);
                }
            }
            for friend in &order {
                edges.push((*friend, node));
                friends[*friend as usize].push(node);
            }
            friends.push(order);
        }
        Graph::new(edges)
    }

    /// Chooses a friend for `node`, possibly one that it already has.
    fn choose(
        &self,
        node: u64,
        friends: &[Vec<u64>],
        edges: &[(u64, u64)],
        order: &[u64],
        random: &mut Random,
    ) -> u64 {
        if let Some(previous) = order.last()
            && random.below(100) < CLOSURE_PERCENT
        {
            let among = &friends[*previous as usize];
            if !among.is_empty() {
                return among[random.below(among.len() as u64) as usize];
            }
        }
        // Any node, for the first few nodes and occasionally later, so that the loop terminates.
        if node <= self.edges_per_node || random.below(20) == 0 {
            return random.below(node);
        }
        let (left, right) = edges[random.below(edges.len() as u64) as usize];
        if random.below(2) == 0 { left } else { right }
    }
}

#[cfg(test)]
mod tests {
    use super::Shape;

    #[test]
    fn the_same_numbers_give_the_same_graph_of_the_size_asked_for() {
        let shape = Shape { nodes: 1_000, edges_per_node: 20, seed: 7 };
        let graph = shape.graph();
        assert_eq!(graph, shape.graph());
        assert_eq!(graph.nodes.len(), 1_000);
        assert_eq!(graph.edges.len(), 1_000 * 20 - 20 * 21 / 2);
        assert_ne!(graph, Shape { seed: 8, ..shape }.graph());
    }

    #[test]
    fn a_few_nodes_have_many_friends() {
        let graph = Shape { nodes: 2_000, edges_per_node: 10, seed: 1 }.graph();
        let mut degrees = vec![0; 2_000];
        for (left, right) in graph.edges {
            degrees[left as usize] += 1;
            degrees[right as usize] += 1;
        }
        degrees.sort_unstable();
        assert!(degrees[1_999] > 8 * degrees[1_000], "{} {}", degrees[1_999], degrees[1_000]);
        assert!(degrees[0] >= 10);
    }
}
