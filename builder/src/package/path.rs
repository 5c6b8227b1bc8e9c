//! The permitted paths of a package.
//!
//! Paths use a small alphabet, so that no path can leave its folder, hide a file or have two meanings on two systems.

use crate::Refusal;
use crate::limits;
use crate::name::name_is_valid;

/// Refuses a path outside a package's layout.
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
