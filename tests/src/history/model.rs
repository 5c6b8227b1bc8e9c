//! One key as a store without faults would have it, as far as clients can know.
//!
//! Versions of a key rise with every write, however far. Of a write without an answer the version is not known, only that it
//! is above the one before, until somebody is told it; so a state has a version or a least one, and each answer either
//! contradicts it or makes it more precise. Nothing is guessed: a state and an operation lead to one state at most.

use super::{Action, Condition, Operation, Outcome};

/// What is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Value {
    Nothing,
    Is(i64),
    /// After a loss: anything.
    Any,
}

/// See the file's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct State {
    value: Value,
    /// Of what is stored, or the last that was; the least possible one where it is not exact.
    version: u64,
    is_exact: bool,
}

impl State {
    /// Of a key that was never written.
    pub const NEW: State = State { value: Value::Nothing, version: 0, is_exact: false };

    /// Whether everything that can happen from another one can happen from this one.
    pub fn includes(self, other: State) -> bool {
        self == other || self.value == other.value && !self.is_exact && self.version <= other.version
    }

    /// The state when it is known that there is nothing.
    fn without(self) -> Option<State> {
        match self.value {
            Value::Is(_) => None,
            Value::Nothing => Some(self),
            Value::Any => Some(State { value: Value::Nothing, ..self }),
        }
    }

    /// The state when it is known that something of this version is there.
    fn with(self, version: u64) -> Option<State> {
        let may_be = if self.is_exact { version == self.version } else { version >= self.version };
        let exists = self.value != Value::Nothing && version > 0;
        (may_be && exists).then_some(State { version, is_exact: true, ..self })
    }

    /// The state when it is known that a condition holds.
    fn fulfilling(self, condition: Condition) -> Option<State> {
        match condition {
            Condition::Always => Some(self),
            Condition::Absent => self.without(),
            Condition::Present => (self.value != Value::Nothing).then_some(self),
            Condition::Version(version) => self.with(version),
        }
    }

    /// The state when it is known that a condition failed since this version was there, 0 for none.
    fn refusing(self, condition: Condition, version: u64) -> Option<State> {
        let may_be = match condition {
            Condition::Always => false,
            Condition::Absent => version > 0,
            Condition::Present => version == 0,
            Condition::Version(wanted) => wanted != version,
        };
        let state = if version == 0 { self.without() } else { self.with(version) };
        state.filter(|_| may_be)
    }

    /// The state after a write, whose version is known or not.
    fn written(self, value: Value, version: Option<u64>) -> Option<State> {
        match version {
            Some(version) => (version > self.version).then_some(State { value, version, is_exact: true }),
            None => Some(State { value, version: self.version + 1, is_exact: false }),
        }
    }

    /// The state after an addition, and the sum where it is known.
    fn added(self, delta: i64, told: Option<(u64, i64)>) -> Option<State> {
        let sum = match self.value {
            Value::Nothing => Some(delta),
            Value::Is(value) => Some(value.wrapping_add(delta)),
            Value::Any => told.map(|told| told.1),
        };
        if told.is_some_and(|told| sum != Some(told.1)) {
            return None;
        }
        self.written(sum.map_or(Value::Any, Value::Is), told.map(|told| told.0))
    }

    /// The state after an operation that happens now; `None` where it cannot, or not with this outcome.
    pub fn after(self, operation: &Operation) -> Option<State> {
        match (operation.action, operation.outcome) {
            (Action::Get, Outcome::Unknown) => Some(self),
            (Action::Get, Outcome::Nothing) => self.without(),
            (Action::Get, Outcome::Found(version, value)) => {
                let may_be = matches!(self.value, Value::Any) || self.value == Value::Is(value);
                let state = self.with(version).filter(|_| may_be)?;
                Some(State { value: Value::Is(value), ..state })
            }
            (Action::Put(_, condition) | Action::Delete(condition), Outcome::Refused(version)) => {
                self.refusing(condition, version)
            }
            (Action::Put(value, condition), Outcome::Done(version)) => {
                self.fulfilling(condition)?.written(Value::Is(value), Some(version))
            }
            (Action::Put(value, condition), Outcome::Unknown) => {
                self.fulfilling(condition)?.written(Value::Is(value), None)
            }
            (Action::Delete(_), Outcome::Nothing) => self.without(),
            (Action::Delete(condition), Outcome::Done(version)) => {
                let state = self.fulfilling(condition)?.with(version)?;
                Some(State { value: Value::Nothing, is_exact: false, ..state })
            }
            (Action::Delete(condition), Outcome::Unknown) => {
                let state = self.fulfilling(condition)?;
                Some(State { value: Value::Nothing, is_exact: false, ..state })
            }
            (Action::Add(delta), Outcome::Summed(version, sum)) => self.added(delta, Some((version, sum))),
            (Action::Add(delta), Outcome::Unknown) => self.added(delta, None),
            (Action::Expire(value), _) if self.value == Value::Is(value) => {
                Some(State { value: Value::Nothing, is_exact: false, ..self })
            }
            (Action::Expire(_), _) => Some(self),
            (Action::Lose, _) => Some(State { value: Value::Any, version: 0, is_exact: false }),
            _ => None,
        }
    }
}
