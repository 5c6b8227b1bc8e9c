//! Tokens of ended sessions, which distinguish late requests from guesses.
//!
//! The latest tokens are remembered, so that copies of requests that were under way when their session was revoked, or
//! a stream that wants to attach to it, are distinguished from invented tokens. Nothing is served for them. Each
//! worker has its own set, and control threads share one; callers first find that there is no such session.

use std::collections::{HashSet, VecDeque};

use crate::limits::ENDED_SESSIONS_REMEMBERED;
use crate::tablet::NumberHash;

/// The tokens of the latest ended sessions.
#[derive(Debug, Default)]
pub struct Ended {
    tokens: HashSet<u64, NumberHash>,
    /// The tokens in the order in which their sessions ended.
    order: VecDeque<u64>,
}

impl Ended {
    /// Records that the session of this token has ended.
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

    /// Returns true if the token's session has ended.
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
