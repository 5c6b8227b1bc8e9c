//! Why a package is refused: the place, what is there, and what to write instead.

use std::fmt;

use serde::Deserialize;
use serde::Serialize;

/// One reason to refuse a package.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Refusal {
    /// Path within the package; empty when it is about the package as a whole.
    pub file: String,
    /// Line, from 1; 0 when it is about the file as a whole.
    pub line: usize,
    /// Column in characters, from 1; 0 when it is about the file as a whole.
    pub column: usize,
    /// What was found and why it is refused.
    pub what: String,
    /// What to write instead.
    pub instead: String,
}

impl Refusal {
    /// A refusal of a place in a file.
    pub fn at(file: &str, line: usize, column: usize, what: impl Into<String>, instead: &str) -> Refusal {
        Refusal { file: file.into(), line, column, what: what.into(), instead: instead.into() }
    }

    /// A refusal of a whole file; an empty name means the package.
    pub fn of(file: &str, what: impl Into<String>, instead: &str) -> Refusal {
        Refusal::at(file, 0, 0, what, instead)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.file.is_empty(), self.line) {
            (true, _) => {}
            (false, 0) => write!(out, "{}: ", self.file)?,
            (false, line) => write!(out, "{}:{line}:{}: ", self.file, self.column)?,
        }
        write!(out, "{}; instead, {}", self.what, self.instead)
    }
}

/// All refusals, one a line.
pub fn listing(refusals: &[Refusal]) -> String {
    refusals.iter().map(Refusal::to_string).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::Refusal;

    #[test]
    fn a_refusal_names_place_reason_and_remedy() {
        let place = Refusal::at("src/lib.rs", 3, 5, "a static keeps state", "put a record");
        assert_eq!(place.to_string(), "src/lib.rs:3:5: a static keeps state; instead, put a record");
        let file = Refusal::of("Cargo.toml", "no name", "add one");
        assert_eq!(file.to_string(), "Cargo.toml: no name; instead, add one");
        assert_eq!(Refusal::of("", "no files", "send some").to_string(), "no files; instead, send some");
    }
}
