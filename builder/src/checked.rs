//! The input of the compiler: exactly the tokens that were checked.
//!
//! Sources are rewritten from the checked tokens, at their old lines. Comments and unit tests are gone, and the
//! compiler cannot read a file differently from the check.

use serde::Deserialize;
use serde::Serialize;

/// Whether a function may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// The function only reads; it is not recorded for exactly-once execution.
    Read,
    /// The function may write; its writes are applied together when it succeeds.
    Write,
}

/// A function that callers can invoke.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// Whether it may write.
    pub mode: Mode,
    /// Its doc comment.
    pub doc: String,
}

impl Function {
    /// Returns FNV-1a (32 bits) of the name, which identifies the function on the wire.
    pub fn hash(&self) -> u32 {
        self.name.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
    }
}

/// Returns the author's text after `Arguments:` at the beginning of a line of a function's doc comment.
pub fn arguments_of(doc: &str) -> Option<&str> {
    let shape = doc.lines().find_map(|line| line.trim().strip_prefix("Arguments:"))?.trim();
    (!shape.is_empty()).then_some(shape)
}

/// A match guard or index expression of a checked source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guard {
    /// The path within the package.
    pub file: String,
    /// The line and column of its first token in the checked text, each from 1.
    pub from: (usize, usize),
    /// The end of its last token.
    pub to: (usize, usize),
}

/// One crate to compile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// The crate's name as the compiler expects it.
    pub crate_name: String,
    /// The crates that it uses, without the SDK; each precedes it in [`Checked::sources`].
    pub dependencies: Vec<String>,
    /// The crate's folder within the package: empty, or `deps/NAME/`.
    pub folder: String,
    /// The paths within the package, and the texts.
    pub files: Vec<(String, String)>,
    /// Its match guards and index expressions.
    pub guards: Vec<Guard>,
}

/// A package that passed the check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checked {
    /// The crates in the order of compilation; the extension is the last.
    pub sources: Vec<Source>,
    /// The functions of the extension.
    pub functions: Vec<Function>,
}

#[cfg(test)]
mod tests {
    use super::Function;
    use super::Mode;
    use super::arguments_of;

    #[test]
    fn the_shape_of_arguments_stands_in_a_line_of_its_own() {
        assert_eq!(arguments_of("Adds.\n\nArguments: delta i64\nMore."), Some("delta i64"));
        assert_eq!(arguments_of(" Arguments:   key text, limit u32 "), Some("key text, limit u32"));
        assert_eq!(arguments_of("Arguments:"), None);
        assert_eq!(arguments_of("Adds the arguments: all of them."), None);
    }

    #[test]
    fn the_hash_of_a_name_is_fnv_1a() {
        let hash = |name: &str| Function { name: name.into(), mode: Mode::Read, doc: String::new() }.hash();
        assert_eq!(hash(""), 0x811c_9dc5);
        assert_eq!(hash("a"), 0xe40c_292c);
        assert_eq!(hash("foobar"), 0xbf9c_f968);
    }
}
