//! Tokens of sessions that have ended: what still comes under them is late, and no guess.
//!
//! Of the latest some are remembered, so that copies of requests that were under way when their session was revoked, or
//! a stream that wants to be of it, are told apart from tokens that somebody makes up. Nothing is served for it. Each
//! worker has a set of its own, and control threads one; who asks has found no session first.

use std::collections::{HashSet, VecDeque};

use crate::limits::ENDED_SESSIONS_REMEMBERED;
use crate::tablet::NumberHash;

/// See the file's head.
#[derive(Debug, Default)]
pub struct Ended {
    tokens: HashSet<u64, NumberHash>,
    /// The same in the order of their ends.
    order: VecDeque<u64>,
}

impl Ended {
    /// The session of this token is over.
    pub fn note(&mut self, token: u64) {
        if !self.tokens.insert(token) {
            return;
        }
        self.order.push_back(token);
        if self.order.len() > ENDED_SESSIONS_REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.tokens.remove(&oldest);
        }
    }

    /// Whether the token was that of a session which is over.
    #[must_use]
    pub fn has(&self, token: u64) -> bool {
        self.tokens.contains(&token)
    }
}

#[cfg(test)]
mod tests {
    use super::Ended;
    use crate::limits::ENDED_SESSIONS_REMEMBERED;

    #[test]
    fn the_latest_ends_are_remembered_and_no_more() {
        let mut ended = Ended::default();
        let most = ENDED_SESSIONS_REMEMBERED as u64;
        for token in (0..most + 10).chain([most + 9]) {
            ended.note(token);
        }
        assert!(!ended.has(9) && ended.has(10) && ended.has(most + 9) && !ended.has(most + 10));
        assert_eq!(
            (ended.tokens.len(), ended.order.len()),
            (ENDED_SESSIONS_REMEMBERED, ENDED_SESSIONS_REMEMBERED)
        );
    }
}
