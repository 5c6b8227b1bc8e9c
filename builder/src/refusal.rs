//! The reasons why a package is refused: the place, the fault, and the alternative.

use std::fmt;

use serde::Deserialize;
use serde::Serialize;

/// One reason to refuse a package.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Refusal {
    /// The path within the package; empty if it concerns the whole package.
    pub file: String,
    /// The line, from 1; 0 if it concerns the whole file.
    pub line: usize,
    /// The column in characters, from 1; 0 if it concerns the whole file.
    pub column: usize,
    /// The finding and the reason for the refusal.
    pub what: String,
    /// The alternative to write.
    pub instead: String,
}

impl Refusal {
    /// Creates a refusal of a place in a file.
    pub fn at(file: &str, line: usize, column: usize, what: impl Into<String>, instead: &str) -> Refusal {
        Refusal { file: file.into(), line, column, what: what.into(), instead: instead.into() }
    }

    /// Creates a refusal of a whole file; an empty name means the package.
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

/// Returns the line and the column of a byte of a text, each from 1.
pub(crate) fn position(text: &str, at: usize) -> (usize, usize) {
    let before = &text[..text.floor_char_boundary(at)];
    let column = before.chars().rev().take_while(|character| *character != '\n').count() + 1;
    (before.matches('\n').count() + 1, column)
}

/// Formats all refusals, one per line.
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
