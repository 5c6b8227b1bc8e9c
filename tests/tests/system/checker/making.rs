//! Histories of clients that use a correct store at the same time, and falsified ones.

use fastrand::Rng;
use tests::history::{Action, Condition, Operation, Outcome};

/// One key of a correct store.
#[derive(Clone, Copy, Default)]
struct Cell {
    object: Option<(u64, i64)>,
    newest: u64,
}

impl Cell {
    fn fulfils(&self, condition: Condition) -> bool {
        match condition {
            Condition::Always => true,
            Condition::Absent => self.object.is_none(),
            Condition::Present => self.object.is_some(),
            Condition::Version(version) => self.object.is_some_and(|object| object.0 == version),
        }
    }

    fn write(&mut self, value: i64, skipped: u64) -> u64 {
        self.newest += 1 + skipped;
        self.object = Some((self.newest, value));
        self.newest
    }

    fn execute(&mut self, action: Action, skipped: u64) -> Outcome {
        let refused = Outcome::Refused(self.object.map_or(0, |object| object.0));
        match (action, self.object) {
            (Action::Get, None) => Outcome::Nothing,
            (Action::Get, Some((version, value))) => Outcome::Found(version, value),
            (Action::Put(value, condition), _) if self.fulfils(condition) => {
                Outcome::Done(self.write(value, skipped))
            }
            (Action::Delete(Condition::Always), None) => Outcome::Nothing,
            (Action::Delete(condition), Some((version, _))) if self.fulfils(condition) => {
                self.object = None;
                Outcome::Done(version)
            }
            (Action::Delete(Condition::Absent), None) => Outcome::Nothing,
            (Action::Put(..) | Action::Delete(_), _) => refused,
            (Action::Add(delta), object) => {
                let sum = object.map_or(0, |object| object.1) + delta;
                Outcome::Summed(self.write(sum, skipped), sum)
            }
            (Action::Lose | Action::Expire(_), _) => unreachable!("nothing is lost here"),
        }
    }
}

fn condition(random: &mut Rng) -> Condition {
    match random.u8(0..5) {
        0 => Condition::Absent,
        1 => Condition::Present,
        2 => Condition::Version(random.u64(1..6)),
        _ => Condition::Always,
    }
}

fn action(random: &mut Rng, values: &mut impl FnMut(&mut Rng) -> i64) -> Action {
    match random.u8(0..8) {
        0..=2 => Action::Get,
        3..=4 => Action::Put(values(random), condition(random)),
        5 => Action::Delete(condition(random)),
        _ => Action::Add(random.i64(1..3)),
    }
}

/// So many operations of up to four clients on so many keys of a correct store, with few values. Some have no answer.
pub fn make(random: &mut Rng, operations: usize, keys: u64) -> Vec<Operation> {
    make_with(random, operations, keys, 12, |random| random.i64(0..4))
}

/// The same with these values, and so many answers that are lost at most.
pub fn make_with(
    random: &mut Rng,
    operations: usize,
    keys: u64,
    lost_max: usize,
    mut values: impl FnMut(&mut Rng) -> i64,
) -> Vec<Operation> {
    let mut cells = vec![Cell::default(); keys as usize];
    let (mut history, mut under_way, mut now) = (Vec::new(), Vec::new(), 0_u64);
    let mut left_open = 0;
    while history.len() < operations || !under_way.is_empty() {
        now += random.u64(0..2);
        if under_way.len() < 4 && history.len() < operations && random.bool() {
            let (client, key) = (under_way.len() as u32, random.u64(0..keys));
            under_way.push((history.len(), false));
            let (action, outcome) = (action(random, &mut values), Outcome::Unknown);
            history.push(Operation { client, key, call: now, end: None, action, outcome });
        } else if !under_way.is_empty() {
            let at = random.usize(0..under_way.len());
            let (index, executed): (usize, bool) = under_way[at];
            let operation: &mut Operation = &mut history[index];
            if !executed && random.u8(0..20) > 0 {
                under_way[at].1 = true;
                let skipped = if random.u8(0..4) == 0 { random.u64(0..3) } else { 0 };
                operation.outcome = cells[operation.key as usize].execute(operation.action, skipped);
            } else {
                under_way.swap_remove(at);
                if executed && (left_open > lost_max || random.u8(0..10) > 0) {
                    operation.end = Some(now);
                } else {
                    left_open += 1;
                    operation.outcome = Outcome::Unknown;
                }
            }
        }
    }
    history
}

/// Makes an answer, or a moment, of a history another one.
pub fn falsify(random: &mut Rng, history: &mut [Operation]) {
    let other = *random.choice(&*history).expect("there are some");
    let operation = random.choice(history).expect("there are some");
    let by = random.u64(0..3);
    operation.outcome = match operation.outcome {
        Outcome::Found(version, value) if random.bool() => Outcome::Found((version + by).max(2) - 1, value),
        Outcome::Found(version, value) => Outcome::Found(version, value + by as i64 - 1),
        Outcome::Summed(version, sum) => Outcome::Summed(version, sum + 1),
        Outcome::Done(version) => Outcome::Done((version + by).max(2) - 1),
        Outcome::Refused(_) => Outcome::Refused(by),
        Outcome::Nothing if operation.action == Action::Get => Outcome::Found(by + 1, 1),
        outcome => outcome,
    };
    if let (Some(end), 0) = (operation.end, by) {
        // It was asked before, or much later.
        let length = end - operation.call;
        operation.call = other.call;
        operation.end = Some(other.call + length);
    }
}
