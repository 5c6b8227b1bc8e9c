//! The source's half of copying what it goes on serving: it sends pieces by itself, as fast as it may, and says when little
//! is left.
//!
//! ```text
//!   round 0: all │ round 1: what was written since │ ... little is left ─► cut ─► one round more: nothing is left
//! ```
//! A piece is kept until the target has stored it and sent again when that takes long; pieces are stored in their order, so
//! a later state of a key never makes room for an earlier one.

use std::collections::VecDeque;

use crate::cluster::migration::message::{Copied, Left, Message, PullSpan};
use crate::limits::{COPIED_PIECES_MAX, COPY_LEFT_BYTES, COPY_ROUNDS_MAX, MIGRATION_RETRY_US, PULL_BYTES};

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum CopyPhase {
    /// Nobody has asked.
    Off,
    /// Writers do not mark yet what they write.
    Watching,
    On,
    Over,
}

/// A piece that was gathered.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Gathered {
    /// Which hashes.
    pub spans: Vec<PullSpan>,
    /// All of their objects.
    pub objects: Vec<u8>,
    /// Where the round is over: about so many bytes were written since they were gathered.
    pub left_bytes: Option<u64>,
}

/// See the file's head.
#[derive(Debug)]
pub(super) struct CopyState {
    phase: CopyPhase,
    round: u32,
    number: u32,
    is_gathering: bool,
    /// The round at hand is to be begun, when it makes sense.
    is_between: bool,
    /// Nothing was written lately: the next round has time.
    is_resting: bool,
    /// Little is left, or was.
    is_little: bool,
    is_cut: bool,
    /// The round at hand began after the cut.
    is_last: bool,
    allowance_bytes: i64,
    sent: VecDeque<(u64, Copied)>,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum CopyStep {
    Watch,
    /// A piece of this round.
    Gather(u32),
}

impl CopyState {
    pub(super) fn new() -> Self {
        CopyState {
            phase: CopyPhase::Off,
            round: 0,
            number: 0,
            is_gathering: false,
            is_between: false,
            is_resting: false,
            is_little: false,
            is_cut: false,
            is_last: false,
            allowance_bytes: 0,
            sent: VecDeque::new(),
        }
    }

    /// The target wants it.
    pub(super) fn begin(&mut self) -> Option<CopyStep> {
        let is_new = self.phase == CopyPhase::Off;
        if is_new {
            self.phase = CopyPhase::Watching;
        }
        is_new.then_some(CopyStep::Watch)
    }

    /// Writers mark what they write.
    pub(super) fn watched(&mut self) -> Option<CopyStep> {
        if self.phase == CopyPhase::Watching {
            self.phase = CopyPhase::On;
        }
        self.next()
    }

    /// Whether it goes on by itself.
    pub(super) fn is_on(&self) -> bool {
        self.phase == CopyPhase::On
    }

    /// Whether nobody writes here any more.
    pub(super) fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Nobody writes here any more: what is left is sent at once. The second time nothing changes.
    pub(super) fn cut(&mut self) -> Option<CopyStep> {
        self.is_cut = true;
        self.next()
    }

    /// It comes to nothing, or all has arrived.
    pub(super) fn end(&mut self) {
        self.phase = CopyPhase::Over;
        self.sent.clear();
    }

    /// A piece was gathered: what is sent of it.
    pub(super) fn gathered(&mut self, gathered: Gathered) -> (Option<Message>, Option<CopyStep>) {
        self.is_gathering = false;
        if self.phase != CopyPhase::On {
            return (None, None);
        }
        let Gathered { spans, objects, left_bytes } = gathered;
        self.allowance_bytes -= objects.len() as i64;
        let (is_again, was_little) = (self.round > 0, self.is_little);
        let is_whole = left_bytes.is_some() && self.is_last;
        if let Some(left_bytes) = left_bytes {
            self.round += 1;
            self.is_between = true;
            self.is_little |= left_bytes <= COPY_LEFT_BYTES || self.round >= COPY_ROUNDS_MAX;
        }
        let left = match () {
            () if is_whole => Left::Nothing,
            () if self.is_little => Left::Little,
            () => Left::Much,
        };
        let is_news = is_whole || self.is_little != was_little;
        self.is_resting = spans.is_empty() && !is_news;
        let message = (!self.is_resting).then(|| {
            let piece = Copied { number: self.number, left, is_again, spans, objects };
            self.number += 1;
            self.sent.push_back((0, piece.clone()));
            Message::Copied(piece)
        });
        if is_whole {
            self.phase = CopyPhase::Over;
        }
        (message, self.next())
    }

    /// So many pieces are stored.
    pub(super) fn stored(&mut self, count: u32) -> Option<CopyStep> {
        while self.sent.front().is_some_and(|(_, piece)| piece.number < count) {
            self.sent.pop_front();
        }
        self.next()
    }

    /// Time has passed: what is said again, and what is done.
    pub(super) fn tick(
        &mut self,
        now_us: u64,
        allowance_bytes: u64,
        out: &mut Vec<Message>,
    ) -> Option<CopyStep> {
        self.is_resting = false;
        let most = (COPIED_PIECES_MAX * PULL_BYTES) as i64 + allowance_bytes as i64;
        self.allowance_bytes = (self.allowance_bytes + allowance_bytes as i64).min(most);
        for (due_us, piece) in &mut self.sent {
            if *due_us == 0 {
                *due_us = now_us + MIGRATION_RETRY_US;
            } else if *due_us <= now_us {
                *due_us = now_us + MIGRATION_RETRY_US;
                out.push(Message::Copied(piece.clone()));
            }
        }
        self.next()
    }

    /// The next piece, if there is room for one.
    fn next(&mut self) -> Option<CopyStep> {
        let may = self.phase == CopyPhase::On && !self.is_gathering && self.sent.len() < COPIED_PIECES_MAX;
        if !may || (!self.is_cut && self.allowance_bytes <= 0) {
            return None;
        }
        if self.is_between {
            // While the target is about to take over a round has what was written in a round trip.
            if self.is_little && !self.is_cut && (self.is_resting || !self.sent.is_empty()) {
                return None;
            }
            self.is_between = false;
            self.is_last = self.is_cut;
        }
        self.is_gathering = true;
        Some(CopyStep::Gather(self.round))
    }
}
