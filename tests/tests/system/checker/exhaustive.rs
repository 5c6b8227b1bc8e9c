//! The slowest checker: every order of the operations, every set of those without an answer, and every version that a write
//! without an answer may have been given, on a key whose state is always known.

use tests::history::{Action, Condition, Operation, Outcome};

#[derive(Clone, Copy)]
struct KnownCell {
    object: Option<(u64, i64)>,
    newest: u64,
}

/// Whether one key's history of a few operations is linearizable.
pub fn check(history: &[Operation]) -> bool {
    let told = history.iter().map(|operation| match (operation.outcome, operation.action) {
        (Outcome::Found(version, _) | Outcome::Done(version), _) => version,
        (Outcome::Summed(version, _) | Outcome::Refused(version), _) => version,
        _ => 0,
    });
    let asked = history.iter().map(|operation| match operation.action {
        Action::Put(_, Condition::Version(version)) | Action::Delete(Condition::Version(version)) => version,
        _ => 0,
    });
    let versions = told.chain(asked).max().unwrap_or(0) + history.len() as u64;
    place(history, &mut vec![false; history.len()], KnownCell { object: None, newest: 0 }, versions)
}

fn place(history: &[Operation], placed: &mut Vec<bool>, cell: KnownCell, versions: u64) -> bool {
    let left =
        || history.iter().zip(&*placed).filter(|(_, placed)| !**placed).map(|(operation, _)| operation);
    let Some(first_end) = left().filter_map(|operation| operation.end).min() else { return true };
    for index in 0..history.len() {
        let operation = &history[index];
        if placed[index] || operation.call > first_end {
            continue;
        }
        placed[index] = true;
        let found = after(operation, cell, versions).any(|cell| place(history, placed, cell, versions));
        placed[index] = false;
        if found {
            return true;
        }
    }
    false
}

/// All states of the key that the operation may lead to.
fn after(operation: &Operation, cell: KnownCell, versions: u64) -> impl Iterator<Item = KnownCell> {
    let possible = cell.newest + 1..versions + 1;
    let mut all = vec![(cell.execute(operation.action, 0), 0)];
    if matches!(operation.action, Action::Put(..) | Action::Add(_)) {
        all = possible.map(|version| (cell.execute(operation.action, version), version)).collect();
    }
    let outcome = operation.outcome;
    all.into_iter()
        .filter(move |((told, _), _)| outcome == Outcome::Unknown || *told == outcome)
        .map(|((_, cell), _)| cell)
}

impl KnownCell {
    fn execute(mut self, action: Action, version: u64) -> (Outcome, KnownCell) {
        let condition = match action {
            Action::Put(_, condition) | Action::Delete(condition) => condition,
            _ => Condition::Always,
        };
        let here = self.object.map_or(0, |object| object.0);
        let holds = match condition {
            Condition::Always => true,
            Condition::Absent => here == 0,
            Condition::Present => here != 0,
            Condition::Version(version) => here == version && here != 0,
        };
        let outcome = match (action, self.object) {
            (Action::Get, None) => Outcome::Nothing,
            (Action::Get, Some((version, value))) => Outcome::Found(version, value),
            (Action::Delete(Condition::Always | Condition::Absent), None) => Outcome::Nothing,
            (Action::Put(..) | Action::Delete(_), _) if !holds => Outcome::Refused(here),
            (Action::Put(value, _), _) => {
                (self.object, self.newest) = (Some((version, value)), version);
                Outcome::Done(version)
            }
            (Action::Delete(_), _) => {
                self.object = None;
                Outcome::Done(here)
            }
            (Action::Add(delta), object) => {
                let sum = object.map_or(0, |object| object.1) + delta;
                (self.object, self.newest) = (Some((version, sum)), version);
                Outcome::Summed(version, sum)
            }
            (Action::Lose | Action::Expire(_), _) => unreachable!("nothing is lost here"),
        };
        (outcome, self)
    }
}
