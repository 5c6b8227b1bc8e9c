//! Whether a history could be that of one store without faults, which does one operation after the other.
//!
//! The search of Wing and Gong with Lowe's memory ("Testing for linearizability", 2017): operations are put one behind the
//! other, each at a moment between its call and its end, and what was tried is remembered by which operations were placed and
//! the state behind them. A history is linearizable if that of each key is, so keys are checked one by one. Operations
//! without an end may be left out. Exponential in how many are open at a time, which the steps are bounded for; three rules
//! keep the open ones few, and none of them loses an order that explains a history:
//! - What was told that nothing was changed happens as soon as it may: it hinders nothing that comes later.
//! - Of operations without an end that nobody can tell apart the one that was asked first happens first.
//! - An operation without an end is not put before one that has the same answer and effect without it.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::model::State;
use super::{Action, Operation, Outcome};

/// Operations that a search for one key places or takes back, each some 500 ns and 100 bytes where some hundred are of the key.
const PLACED_MAX: usize = 5_000_000;

/// What a check has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It could be.
    Linearizable,
    /// It could not: the key, and its operations in the order of their calls.
    Violated(u64, Vec<Operation>),
    /// Nobody knows: so many operations of this key, which are these, are open at a time that the search was given up.
    Undecided(u64, Vec<Operation>),
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
            None => undecided = Some((key, operations)),
        }
    }
    undecided.map_or(Verdict::Linearizable, |(key, operations)| Verdict::Undecided(key, operations))
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

    fn first(&self) -> usize {
        self.nodes[self.head].behind
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
    let mut search = Search::new(&operations);
    let mut at = search.moments.first();
    for _ in 0..PLACED_MAX {
        at = match search.next(at) {
            Next::End => return Some(true),
            Next::Place(call, state, is_only) => search.place(call, state, is_only),
            Next::Nothing => match search.take_back() {
                Some(at) => at,
                None => return Some(false),
            },
        };
    }
    None
}

/// How a search goes on.
enum Next {
    /// No end is left: what remains may never have happened.
    End,
    /// With this call, and the state behind it; whether there is no need to try another one.
    Place(usize, State, bool),
    /// Not from here.
    Nothing,
}

/// An operation that was placed.
struct Placed {
    call: usize,
    before: State,
    is_only: bool,
}

struct Search<'o> {
    operations: &'o [Operation],
    twins: Vec<Option<usize>>,
    moments: Moments,
    /// Operations that are placed, a bit each.
    placed: Vec<u64>,
    tried: HashSet<(Box<[u64]>, State)>,
    way: Vec<Placed>,
    state: State,
}

impl Search<'_> {
    fn new(operations: &[Operation]) -> Search<'_> {
        Search {
            operations,
            twins: twins(operations),
            moments: Moments::new(operations),
            placed: vec![0_u64; operations.len().div_ceil(64)],
            tried: HashSet::new(),
            way: Vec::new(),
            state: State::NEW,
        }
    }

    /// What to do, of the moments from that on.
    fn next(&mut self, from: usize) -> Next {
        if from == self.moments.first()
            && let Some(call) = self.without_change()
        {
            return Next::Place(call, self.state, true);
        }
        let mut at = from;
        while at != self.moments.head {
            let node = self.moments.nodes[at];
            if !node.is_call {
                return Next::Nothing;
            }
            if let Some(next) = self.after(node.operation) {
                self.mark(node.operation, true);
                if self.tried.insert((self.placed.clone().into(), next)) {
                    return Next::Place(at, next, false);
                }
                self.mark(node.operation, false);
            }
            at = node.behind;
        }
        Next::End
    }

    /// One that was told that nothing was changed, and may happen now without telling more of the state.
    fn without_change(&self) -> Option<usize> {
        let mut at = self.moments.first();
        loop {
            let node = self.moments.nodes[at];
            if at == self.moments.head || !node.is_call {
                return None;
            }
            let operation = &self.operations[node.operation];
            let is_reading =
                matches!(operation.outcome, Outcome::Found(..) | Outcome::Nothing | Outcome::Refused(_));
            if is_reading && self.state.after(operation) == Some(self.state) {
                return Some(at);
            }
            at = node.behind;
        }
    }

    /// The state behind an operation that may happen now, and need not happen earlier or with less before it.
    fn after(&self, operation: usize) -> Option<State> {
        let state = self.state.after(&self.operations[operation])?;
        if self.twins[operation].is_some_and(|twin| !self.is_placed(twin)) {
            return None;
        }
        let last = self.way.last().filter(|last| {
            let last = self.moments.nodes[last.call].operation;
            self.operations[last].end.is_none()
        });
        let without = last.and_then(|last| last.before.after(&self.operations[operation]));
        (!without.is_some_and(|without| without.includes(state))).then_some(state)
    }

    fn is_placed(&self, operation: usize) -> bool {
        self.placed[operation / 64] & (1 << (operation % 64)) != 0
    }

    fn mark(&mut self, operation: usize, is_placed: bool) {
        let bit = 1 << (operation % 64);
        if is_placed {
            self.placed[operation / 64] |= bit;
        } else {
            self.placed[operation / 64] &= !bit;
        }
    }

    /// Where the search goes on.
    fn place(&mut self, call: usize, state: State, is_only: bool) -> usize {
        self.mark(self.moments.nodes[call].operation, true);
        self.way.push(Placed { call, before: self.state, is_only });
        self.state = state;
        self.moments.lift(call);
        self.moments.first()
    }

    /// Where the search goes on; `None`: everything was tried.
    fn take_back(&mut self) -> Option<usize> {
        loop {
            let Placed { call, before, is_only } = self.way.pop()?;
            self.mark(self.moments.nodes[call].operation, false);
            self.state = before;
            self.moments.unlift(call);
            if !is_only {
                return Some(self.moments.nodes[call].behind);
            }
        }
    }
}

/// For each operation without an end the one that was asked before it and cannot be told from it, if there is one.
fn twins(operations: &[Operation]) -> Vec<Option<usize>> {
    let delta = |operation: &Operation| match operation.action {
        Action::Add(delta) => delta.unsigned_abs(),
        _ => 0,
    };
    let added: u64 = operations.iter().map(delta).sum();
    let mut seen: Vec<i64> = operations.iter().filter_map(seen).collect();
    seen.sort_unstable();
    // Nobody has seen what was put, whatever was added to it.
    let is_unseen = |value: i64| {
        let first = seen.partition_point(|&it| it < value.saturating_sub_unsigned(added));
        seen.get(first).is_none_or(|&it| it > value.saturating_add_unsigned(added))
    };
    let mut newest: HashMap<(Action, bool), usize> = HashMap::new();
    let twin = |(index, operation): (usize, &Operation)| {
        let kind = match operation.action {
            Action::Put(value, condition) if is_unseen(value) => (Action::Put(0, condition), true),
            action => (action, false),
        };
        if operation.end.is_some() { None } else { newest.insert(kind, index) }
    };
    operations.iter().enumerate().map(twin).collect()
}

/// The value that somebody was told, or that decides what happens.
fn seen(operation: &Operation) -> Option<i64> {
    match (operation.action, operation.outcome) {
        (Action::Expire(value), _) | (_, Outcome::Found(_, value) | Outcome::Summed(_, value)) => Some(value),
        _ => None,
    }
}
