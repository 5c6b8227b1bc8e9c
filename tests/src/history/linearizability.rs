//! Whether a history could be that of one store without faults, which does one operation after the other.
//!
//! The search of Wing and Gong with Lowe's memory ("Testing for linearizability", 2017): operations are put one behind the
//! other, each at a moment between its call and its end, and what was tried is remembered by which operations were placed and
//! the state behind them. A history is linearizable if that of each key is, so keys are checked one by one. Operations
//! without an end may be left out. Exponential in how many are open at a time, which the steps are bounded for.

use std::collections::{BTreeMap, HashSet};

use super::model::State;
use super::{Action, Operation, Outcome};

/// Steps of a search for one key, each some 100 ns.
const STEPS_MAX: usize = 20_000_000;

/// What a check has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It could be.
    Linearizable,
    /// It could not: the key, and its operations in the order of their calls.
    Violated(u64, Vec<Operation>),
    /// Nobody knows: so many operations of this key are open at a time that the search was given up.
    Undecided(u64),
}

/// Checks a history, in which operations of all keys stand in any order.
pub fn check(history: &[Operation]) -> Verdict {
    let mut keys: BTreeMap<u64, Vec<Operation>> = BTreeMap::new();
    for operation in history {
        keys.entry(operation.key).or_default().push(*operation);
    }
    let mut undecided = None;
    for (key, mut operations) in keys {
        operations.sort_by_key(|operation| operation.call);
        match check_key(&operations) {
            Some(true) => {}
            Some(false) => return Verdict::Violated(key, operations),
            None => undecided = Some(key),
        }
    }
    undecided.map_or(Verdict::Linearizable, Verdict::Undecided)
}

/// A moment of an operation, in a list from which placed operations are taken out. The head is the last node.
#[derive(Clone, Copy)]
struct Node {
    operation: usize,
    /// Node of the end; `None` for an end itself.
    end: Option<usize>,
    is_call: bool,
    before: usize,
    behind: usize,
}

struct Moments {
    nodes: Vec<Node>,
    head: usize,
}

impl Moments {
    fn new(operations: &[Operation]) -> Moments {
        // Ends behind calls of the same moment, so that those overlap.
        let mut moments: Vec<(u64, bool, usize)> = Vec::new();
        for (index, operation) in operations.iter().enumerate() {
            moments.push((operation.call, false, index));
            moments.extend(operation.end.map(|end| (end, true, index)));
        }
        moments.sort_unstable();
        let head = moments.len();
        let mut nodes: Vec<Node> = Vec::with_capacity(head + 1);
        let mut calls = vec![0; operations.len()];
        for (at, &(_, is_end, operation)) in moments.iter().enumerate() {
            if is_end {
                let call: usize = calls[operation];
                nodes[call].end = Some(at);
            } else {
                calls[operation] = at;
            }
            let before = at.checked_sub(1).unwrap_or(head);
            nodes.push(Node { operation, end: None, is_call: !is_end, before, behind: at + 1 });
        }
        let (before, behind) = (head.checked_sub(1).unwrap_or(head), if head == 0 { head } else { 0 });
        nodes.push(Node { operation: 0, end: None, is_call: false, before, behind });
        Moments { nodes, head }
    }

    fn take_out(&mut self, at: usize) {
        let Node { before, behind, .. } = self.nodes[at];
        self.nodes[before].behind = behind;
        self.nodes[behind].before = before;
    }

    fn put_back(&mut self, at: usize) {
        let Node { before, behind, .. } = self.nodes[at];
        self.nodes[before].behind = at;
        self.nodes[behind].before = at;
    }

    fn lift(&mut self, call: usize) {
        self.take_out(call);
        if let Some(end) = self.nodes[call].end {
            self.take_out(end);
        }
    }

    fn unlift(&mut self, call: usize) {
        if let Some(end) = self.nodes[call].end {
            self.put_back(end);
        }
        self.put_back(call);
    }
}

/// `None`: given up.
fn check_key(operations: &[Operation]) -> Option<bool> {
    let matters =
        |operation: &&Operation| !(operation.action == Action::Get && operation.outcome == Outcome::Unknown);
    let operations: Vec<Operation> = operations.iter().filter(matters).copied().collect();
    let mut moments = Moments::new(&operations);
    let mut placed = vec![0_u64; operations.len().div_ceil(64)];
    let mut tried: HashSet<(Box<[u64]>, State)> = HashSet::new();
    let mut way: Vec<(usize, State)> = Vec::new();
    let mut state = State::NEW;
    let mut at = moments.nodes[moments.head].behind;
    for _ in 0..STEPS_MAX {
        let node = moments.nodes[at];
        if at == moments.head {
            // No end is left: what remains may never have happened.
            return Some(true);
        }
        if node.is_call {
            let (word, bit) = (node.operation / 64, 1 << (node.operation % 64));
            if let Some(next) = state.after(&operations[node.operation]) {
                placed[word] |= bit;
                if tried.insert((placed.clone().into(), next)) {
                    way.push((at, state));
                    state = next;
                    moments.lift(at);
                    at = moments.nodes[moments.head].behind;
                    continue;
                }
                placed[word] &= !bit;
            }
            at = node.behind;
            continue;
        }
        let Some((call, before)) = way.pop() else { return Some(false) };
        let operation = moments.nodes[call].operation;
        placed[operation / 64] &= !(1 << (operation % 64));
        state = before;
        moments.unlift(call);
        at = moments.nodes[call].behind;
    }
    None
}
