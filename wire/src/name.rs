//! The syntax of names: of tenants, tables and extensions, of files in a package, of functions.
//!
//! Names reach file systems, logs and terminals, so they are checked when they are decoded: a valid name is plain
//! ASCII, cannot leave a directory and does not look like an option.

use crate::limits::{NAME_BYTES_MAX, PATH_BYTES_MAX};

/// Returns whether `name` is valid for a tenant, a table or an extension.
///
/// A name has 1 to [`NAME_BYTES_MAX`] bytes of letters, digits, `_`, `-` and `.`, the first one a letter or a digit.
pub fn name_is_valid(name: &str) -> bool {
    let starts_well = name.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric());
    starts_well && name.len() <= NAME_BYTES_MAX && name.bytes().all(is_name_byte)
}

/// Returns whether `name` is valid for an object that may be another tenant's: a name, or tenant and name with a
/// slash between them.
pub fn qualified_name_is_valid(name: &str) -> bool {
    match name.split_once('/') {
        Some((tenant, name)) => name_is_valid(tenant) && name_is_valid(name),
        None => name_is_valid(name),
    }
}

/// Returns whether `path` is valid for a file of a package.
///
/// A path is relative, has 1 to [`PATH_BYTES_MAX`] bytes, and every part between slashes has the form of a name (a
/// leading `_` is allowed too), so that no part is empty, `.` or `..`.
pub fn path_is_valid(path: &str) -> bool {
    let part_is_valid = |part: &str| {
        let first = part.bytes().next();
        first.is_some_and(|first| first.is_ascii_alphanumeric() || first == b'_')
            && part.bytes().all(is_name_byte)
    };
    path.len() <= PATH_BYTES_MAX && path.split('/').all(part_is_valid)
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.')
}

/// Returns the number of a function for invocations: FNV-1a, 32 bits, over its name. An installation in which two
/// functions share a number is refused.
pub const fn function_hash(name: &str) -> u32 {
    let bytes = name.as_bytes();
    let mut hash = 0x811c_9dc5_u32;
    let mut at = 0;
    while at < bytes.len() {
        hash = (hash ^ bytes[at] as u32).wrapping_mul(0x0100_0193);
        at += 1;
    }
    hash
}

/// The number of a tenant, never reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TenantId(pub u32);

#[cfg(test)]
mod tests {
    use super::{function_hash, name_is_valid, path_is_valid, qualified_name_is_valid};

    #[test]
    fn names_that_climb_or_hide_are_refused() {
        for name in ["a", "tao-2.1", "0_x", &"n".repeat(64)] {
            assert!(name_is_valid(name), "{name}");
        }
        for name in ["", ".", "..", "../x", "a/b", "-rf", ".hidden", "a b", "ä", "a\0", &"n".repeat(65)] {
            assert!(!name_is_valid(name), "{name}");
        }
    }

    #[test]
    fn a_qualified_name_has_one_slash_at_most() {
        for name in ["a", "acme/users", "0/tao-2.1"] {
            assert!(qualified_name_is_valid(name), "{name}");
        }
        for name in ["", "/", "a/", "/a", "a/b/c", "../a", "a/..", "a b/c"] {
            assert!(!qualified_name_is_valid(name), "{name}");
        }
    }

    #[test]
    fn paths_stay_below_their_package() {
        for path in ["Cargo.toml", "src/lib.rs", "src/_private/x.rs"] {
            assert!(path_is_valid(path), "{path}");
        }
        for path in ["", "/etc/passwd", "../x", "src/../../x", "src//x", "src/", "a\\b", ".git/config"] {
            assert!(!path_is_valid(path), "{path}");
        }
        assert!(!path_is_valid(&"d/".repeat(200)));
    }

    #[test]
    fn function_hash_is_fnv_1a() {
        // Vectors of the FNV authors' list.
        assert_eq!(function_hash(""), 0x811c_9dc5);
        assert_eq!(function_hash("a"), 0xe40c_292c);
        assert_eq!(function_hash("foobar"), 0xbf9c_f968);
    }
}
