//! Mistakes that tests must notice, for a build with `--cfg weakened` alone: `SPLINTER_WEAKENED` names the one that is made.
//!
//! Other crates include this file by its path.

/// Returns whether this mistake is to be made; never in a build for use.
#[inline]
pub(crate) fn by(mistake: &str) -> bool {
    cfg!(weakened) && std::env::var("SPLINTER_WEAKENED").is_ok_and(|name| name == mistake)
}
