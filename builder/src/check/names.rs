//! The names that an extension may use: modules of `core` and `alloc`, the SDK, macros, attributes.
//!
//! Everything else is refused. Deliberately missing: `core::arch`, `core::intrinsics`, `core::ptr`, `core::ffi`,
//! `core::any`, `core::sync`, `alloc::alloc`, `alloc::sync`, `alloc::task`; `core::error`, whose trait objects can be
//! asked for their type (rustc #84366).

/// Crates whose parts are listed here, so that a `use` may not name the whole crate.
pub(super) const LISTED_CRATES: [&str; 3] = ["core", "alloc", "sandstorm"];
/// Crates that do not exist in an artefact.
pub(super) const ABSENT_CRATES: [&str; 3] = ["std", "proc_macro", "test"];

/// Modules of `core`.
const CORE: [&str; 40] = [
    "array", "ascii", "bool", "borrow", "cell", "char", "clone", "cmp", "convert", "default", "f32", "f64",
    "fmt", "future", "hash", "hint", "i128", "i16", "i32", "i64", "i8", "isize", "iter", "marker", "mem",
    "num", "ops", "option", "pin", "result", "slice", "str", "task", "time", "u128", "u16", "u32", "u64",
    "u8", "usize",
];
/// Modules and macros of `alloc`.
const ALLOC: [&str; 10] =
    ["borrow", "boxed", "collections", "fmt", "format", "rc", "slice", "str", "string", "vec"];
/// The SDK's parts for authors, without its ABI and its testing host.
const SANDSTORM: [&str; 27] = [
    "Args",
    "Condition",
    "Cursor",
    "Db",
    "Delete",
    "Entries",
    "Entry",
    "EntryPage",
    "Enumerate",
    "Error",
    "FindTable",
    "Get",
    "GetMany",
    "GetRecord",
    "Increment",
    "IncrementFloat",
    "KeyRange",
    "Level",
    "NextEntry",
    "Put",
    "Reader",
    "Record",
    "Reply",
    "Scan",
    "Table",
    "YieldNow",
    "extension",
];

/// Returns the names that may follow the name of a listed crate.
pub(super) fn parts_of(listed: &str) -> &'static [&'static str] {
    match listed {
        "core" => &CORE,
        "alloc" => &ALLOC,
        _ => &SANDSTORM,
    }
}

/// Macros whose arguments are expressions.
pub(super) const MACROS: [&str; 17] = [
    "assert",
    "assert_eq",
    "assert_ne",
    "debug_assert",
    "debug_assert_eq",
    "debug_assert_ne",
    "format",
    "format_args",
    "matches",
    "panic",
    "todo",
    "unimplemented",
    "unreachable",
    "vec",
    "write",
    "writeln",
    "extension",
];

/// The traits that may be derived.
pub(super) const DERIVES: [&str; 9] =
    ["Clone", "Copy", "Debug", "Default", "Eq", "Hash", "Ord", "PartialEq", "PartialOrd"];

/// Attributes that set the level of lints.
pub(super) const LINT_LEVELS: [&str; 5] = ["allow", "deny", "expect", "forbid", "warn"];

/// Representations that change neither alignment nor packing.
pub(super) const REPRESENTATIONS: [&str; 14] = [
    "C",
    "transparent",
    "i128",
    "i16",
    "i32",
    "i64",
    "i8",
    "isize",
    "u128",
    "u16",
    "u32",
    "u64",
    "u8",
    "usize",
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{MACROS, SANDSTORM, parts_of};

    #[test]
    fn dangerous_names_are_in_no_list() {
        for name in
            ["arch", "intrinsics", "ptr", "ffi", "any", "error", "sync", "alloc", "prelude", "abi", "entry"]
        {
            for listed in ["core", "alloc", "sandstorm"] {
                assert!(!parts_of(listed).contains(&name), "{listed}::{name}");
            }
        }
        for name in ["asm", "include", "include_str", "include_bytes", "env", "option_env", "concat_bytes"] {
            assert!(!MACROS.contains(&name), "{name}");
        }
    }

    #[test]
    fn authors_may_name_what_the_sdk_exports_and_nothing_else() {
        let root = include_str!("../../../sandstorm/src/lib.rs");
        let exported = root.lines().filter_map(|line| line.strip_prefix("pub use ")?.strip_suffix(';'));
        let exported = exported.filter_map(|path| path.rsplit("::").next());
        let exported: BTreeSet<&str> = exported.chain(["extension"]).collect();
        assert_eq!(BTreeSet::from(SANDSTORM), exported);
    }
}
