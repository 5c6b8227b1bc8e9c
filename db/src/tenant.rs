//! Tenants: their identity, the rules for names, their secrets.
//!
//! A tenant is known to the data path by its number alone; name and secret matter only when a session is
//! opened. Numbers are never given out again, so nothing that outlives a tenant can be mistaken for a
//! thing of another one.

pub mod secret;

use crate::limits::NAME_BYTES_MAX;

/// Number of a tenant, never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TenantId(pub u32);

/// Whether `name` may be the name of a tenant, a table or an extension: 1 to [`NAME_BYTES_MAX`] bytes of
/// `a-z`, `A-Z`, `0-9`, `_`, `-` and `.`, beginning with a letter, a digit or `_`. So a name is never a
/// path that leads elsewhere, never an option, and needs no quoting.
#[must_use]
pub fn name_is_valid(name: &[u8]) -> bool {
    let inner = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    (1..=NAME_BYTES_MAX).contains(&name.len())
        && (name[0].is_ascii_alphanumeric() || name[0] == b'_')
        && name.iter().all(inner)
}

#[cfg(test)]
mod tests {
    use super::name_is_valid;
    use crate::limits::NAME_BYTES_MAX;

    #[test]
    fn ordinary_names_pass() {
        for name in ["a", "graph", "tao.v2", "_private", "9lives", "A-b_c"] {
            assert!(name_is_valid(name.as_bytes()), "{name}");
        }
        assert!(name_is_valid(&[b'x'; NAME_BYTES_MAX]));
    }

    #[test]
    fn paths_options_and_bytes_are_refused() {
        for name in ["", "..", "../etc", "a/b", "-x", ".hidden", "a b", "a\0", "\u{fc}ber"] {
            assert!(!name_is_valid(name.as_bytes()), "{name:?}");
        }
        assert!(!name_is_valid(&[0xff, 0xfe]));
        assert!(!name_is_valid(&[b'x'; NAME_BYTES_MAX + 1]));
        assert!(!name_is_valid(&[b'x'; 10_000]));
    }
}
