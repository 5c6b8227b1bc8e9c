//! Which names and paths a package may have.
//!
//! Paths are built from a small alphabet, so that no path can leave the folder it is written to, hide a
//! file or mean two things on two systems.

use crate::Refusal;
use crate::limits;

/// What to write instead of a bad name.
pub(super) const NAME_SHAPE: &str = "use a to z, 0 to 9, - and _, at most 64 of them, a letter first";

/// Names that mean something else to the compiler.
const RESERVED: [&str; 9] =
    ["alloc", "compiler_builtins", "core", "crate", "proc_macro", "sandstorm", "self", "std", "test"];

/// Whether an extension, or a package that it depends on, may have this name: 1 to 64 of `a-z 0-9 - _`, a
/// letter first, and not the name of a crate that the compiler or the SDK provides.
pub fn name_is_valid(name: &str) -> bool {
    let shape = name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_'));
    let first = name.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase());
    let crate_name = name.replace('-', "_");
    let reserved = RESERVED.contains(&&*crate_name) || crate_name.starts_with("splinter_");
    shape && first && name.len() <= limits::NAME_BYTES_MAX && !reserved
}

/// Refuses a path that is not of a package's layout.
pub(super) fn check(path: &str) -> Result<(), Refusal> {
    if is_valid(path) {
        return Ok(());
    }
    let shown: String = path.chars().take(80).collect();
    let instead = "send Cargo.toml, src/*.rs and the same below deps/NAME/; \
                   folders and files are named with letters, digits, - and _";
    Err(Refusal::of("", format!("{shown:?} is no path of a package"), instead))
}

fn is_valid(path: &str) -> bool {
    if path.len() > limits::PATH_BYTES_MAX {
        return false;
    }
    let own = match path.strip_prefix("deps/") {
        None => path,
        Some(rest) => match rest.split_once('/') {
            Some((name, own)) if name_is_valid(name) => own,
            _ => return false,
        },
    };
    if own == "Cargo.toml" {
        return true;
    }
    let Some(module) = own.strip_prefix("src/").and_then(|file| file.strip_suffix(".rs")) else {
        return false;
    };
    module.split('/').all(|part| {
        !part.is_empty()
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
    })
}

#[cfg(test)]
mod tests {
    use super::is_valid;
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
            &"x".repeat(65),
            &"x".repeat(10_000),
            "a\0",
        ] {
            assert!(!name_is_valid(name), "{name}");
        }
    }

    #[test]
    fn paths_stay_within_the_layout() {
        for path in ["Cargo.toml", "src/lib.rs", "src/a/b_2.rs", "deps/tao/Cargo.toml", "deps/tao/src/x.rs"] {
            assert!(is_valid(path), "{path}");
        }
        for path in [
            "",
            "/etc/passwd",
            "../Cargo.toml",
            "src/../lib.rs",
            "src//lib.rs",
            "src/.rs",
            "src/a.b.rs",
            "src/lib.txt",
            "build.rs",
            "Cargo.lock",
            "deps/Cargo.toml",
            "deps/../src/lib.rs",
            "deps/core/src/lib.rs",
            "deps/tao/deps/x/src/lib.rs",
            "src/lib.rs\0",
            "src\\lib.rs",
            "src/é.rs",
            ".cargo/config.toml",
            &format!("src/{}.rs", "x".repeat(200)),
        ] {
            assert!(!is_valid(path), "{path}");
        }
    }
}
