//! The permitted names of extensions and packages, which become names of crates, files and log lines.

use crate::limits;

/// The advice for a bad name.
pub(crate) const SHAPE: &str = "use a to z, 0 to 9, - and _, at most 64 of them, a letter first";

/// Names with another meaning to the compiler or in the glue.
const RESERVED: [&str; 59] = [
    "abstract",
    "alloc",
    "as",
    "async",
    "await",
    "become",
    "box",
    "break",
    "compiler_builtins",
    "const",
    "continue",
    "core",
    "crate",
    "do",
    "dyn",
    "else",
    "enum",
    "extern",
    "false",
    "final",
    "fn",
    "for",
    "gen",
    "if",
    "impl",
    "in",
    "let",
    "loop",
    "macro",
    "match",
    "mod",
    "move",
    "mut",
    "override",
    "priv",
    "proc_macro",
    "pub",
    "ref",
    "return",
    "sandstorm",
    "self",
    "static",
    "std",
    "struct",
    "super",
    "tenant",
    "test",
    "trait",
    "true",
    "try",
    "type",
    "typeof",
    "unsafe",
    "unsized",
    "use",
    "virtual",
    "where",
    "while",
    "yield",
];

/// Returns whether an extension, or a package that it depends on, may have this name: 1 to 64 of `a-z 0-9 - _`, a
/// letter first, and neither a keyword nor the name of a crate of the compiler, the SDK or the glue.
pub fn name_is_valid(name: &str) -> bool {
    let shape = name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_'));
    let first = name.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase());
    let crate_name = name.replace('-', "_");
    let reserved = RESERVED.contains(&&*crate_name) || crate_name.starts_with("splinter_");
    shape && first && name.len() <= limits::NAME_BYTES_MAX && !reserved
}

#[cfg(test)]
mod tests {
    use super::name_is_valid;

    #[test]
    fn names_are_short_plain_and_not_the_compilers() {
        for name in ["a", "tao", "hello-2", "a_b", &"x".repeat(64)] {
            assert!(name_is_valid(name), "{name}");
        }
        for name in [
            "",
            "2a",
            "-a",
            "A",
            "a b",
            "a/b",
            "../a",
            "ä",
            "core",
            "proc-macro",
            "splinter-x",
            "tenant",
            &"x".repeat(65),
            &"x".repeat(10_000),
            "a\0",
            "loop",
        ] {
            assert!(!name_is_valid(name), "{name}");
        }
    }
}
