//! What the check hands to the compiler: the tokens that it saw, and nothing else.
//!
//! Sources are written anew from the checked tokens, at their old lines: comments and unit tests are gone,
//! and the compiler cannot read a file differently from how the check read it.

use serde::Deserialize;
use serde::Serialize;

/// Whether a function may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// It reads; it is not recorded for exactly-once execution.
    Read,
    /// Its writes are applied together at its good end.
    Write,
}

/// A function that callers may invoke.
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
    /// FNV-1a (32 bits) of the name: how an invocation names the function on the wire.
    pub fn hash(&self) -> u32 {
        self.name.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
    }
}

/// What the author wrote behind `Arguments:` at the beginning of a line of a function's doc comment.
pub fn arguments_of(doc: &str) -> Option<&str> {
    let shape = doc.lines().find_map(|line| line.trim().strip_prefix("Arguments:"))?.trim();
    (!shape.is_empty()).then_some(shape)
}

/// A guard or an index of a checked source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guard {
    /// Path within the package.
    pub file: String,
    /// Line and column of its first token in the checked text, each from 1.
    pub from: (usize, usize),
    /// Where its last token ends.
    pub to: (usize, usize),
}

/// One crate to compile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// The crate's name as the compiler wants it.
    pub crate_name: String,
    /// The crates that it uses, the SDK left out; each stands before it in [`Checked::sources`].
    pub dependencies: Vec<String>,
    /// Folder of the crate within the package: empty, or `deps/NAME/`.
    pub folder: String,
    /// Paths within the package, and texts.
    pub files: Vec<(String, String)>,
    /// Its match guards and index expressions.
    pub guards: Vec<Guard>,
}

/// A package that passed the check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checked {
    /// The crates in the order to compile them; the extension is the last.
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
