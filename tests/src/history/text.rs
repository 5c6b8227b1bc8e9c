//! A history as lines of text, an operation each, for other checkers and for people.
//!
//! ```text
//!   client key call end action outcome           end is - for none
//!   3 17 100 120 put 55 absent done 9
//! ```

use std::fmt;

use super::{Action, Condition, Operation, Outcome};

impl fmt::Display for Condition {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Condition::Always => formatter.write_str("always"),
            Condition::Absent => formatter.write_str("absent"),
            Condition::Present => formatter.write_str("present"),
            Condition::Version(version) => write!(formatter, "{version}"),
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Get => formatter.write_str("get"),
            Action::Put(value, condition) => write!(formatter, "put {value} {condition}"),
            Action::Delete(condition) => write!(formatter, "delete {condition}"),
            Action::Add(delta) => write!(formatter, "add {delta}"),
            Action::Expire(value) => write!(formatter, "expire {value}"),
            Action::Lose => formatter.write_str("lose"),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Found(version, value) => write!(formatter, "found {version} {value}"),
            Outcome::Nothing => formatter.write_str("nothing"),
            Outcome::Done(version) => write!(formatter, "done {version}"),
            Outcome::Summed(version, sum) => write!(formatter, "summed {version} {sum}"),
            Outcome::Refused(version) => write!(formatter, "refused {version}"),
            Outcome::Unknown => formatter.write_str("unknown"),
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Operation { client, key, call, end, action, outcome } = self;
        let end = end.map_or("-".to_owned(), |end| end.to_string());
        write!(formatter, "{client} {key} {call} {end} {action} {outcome}")
    }
}

/// All lines of a history.
pub fn to_text(history: &[Operation]) -> String {
    history.iter().map(|operation| format!("{operation}\n")).collect()
}
