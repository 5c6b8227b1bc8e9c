//! Copying of a tablet while the source keeps serving: the source sends pieces without requests, as fast as allowed, and
//! reports when little is left; the target stores each once and in order.
//!
//! ```text
//!   round 0: all │ round 1: objects written since │ ... little is left ─► cut ─► one more round: nothing is left
//! ```
//! A piece is kept until the target has stored it, and sent again when that takes long. Pieces are stored in their
//! order, so a later state of a key is never replaced by an earlier one.

use std::collections::{BTreeMap, VecDeque};

use crate::limits::{COPIED_PIECES_MAX, COPY_LEFT_BYTES, COPY_ROUNDS_MAX, MIGRATION_RETRY_US, PULL_BYTES};
use crate::migration::message::{Copied, Left, Message, PullSpan};

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum CopyPhase {
    /// Not requested.
    Off,
    /// Writers do not mark their writes yet.
    Watching,
    On,
    Over,
}

/// A gathered piece.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Gathered {
    /// Its hashes.
    pub spans: Vec<PullSpan>,
    /// All objects of these hashes.
    pub objects: Vec<u8>,
    /// At the end of a round: about how many bytes were written since they were gathered.
    pub left_bytes: Option<u64>,
}

/// The state of a source's copying.
#[derive(Debug)]
pub(super) struct CopyState {
    phase: CopyPhase,
    round: u32,
    number: u32,
    is_gathering: bool,
    /// The next round is to begin when it is worthwhile.
    is_between: bool,
    /// Few writes happened lately, so the next round can wait.
    is_resting: bool,
    /// Little is left, or was.
    is_little: bool,
    is_cut: bool,
    /// The current round began after the cut.
    is_last: bool,
    allowance_bytes: i64,
    sent: VecDeque<(u64, Copied)>,
}

/// The next action of the copying.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum CopyStep {
    Watch,
    /// Gather a piece of this round.
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

    /// Begins the copying at the target's request.
    pub(super) fn begin(&mut self) -> Option<CopyStep> {
        let is_new = self.phase == CopyPhase::Off;
        if is_new {
            self.phase = CopyPhase::Watching;
        }
        is_new.then_some(CopyStep::Watch)
    }

    /// Notes that writers mark their writes.
    pub(super) fn watched(&mut self) -> Option<CopyStep> {
        if self.phase == CopyPhase::Watching {
            self.phase = CopyPhase::On;
        }
        self.next()
    }

    /// Returns whether the copying is active.
    pub(super) fn is_on(&self) -> bool {
        self.phase == CopyPhase::On
    }

    /// Returns whether writes here have stopped.
    pub(super) fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Notes that writes here have stopped: the rest is sent at once. A second call changes nothing.
    pub(super) fn cut(&mut self) -> Option<CopyStep> {
        self.is_cut = true;
        self.next()
    }

    /// Ends the copying, because it failed or everything has arrived.
    pub(super) fn end(&mut self) {
        self.phase = CopyPhase::Over;
        self.sent.clear();
    }

    /// Takes a gathered piece; returns the message to send.
    pub(super) fn gathered(&mut self, gathered: Gathered) -> (Option<Message>, Option<CopyStep>) {
        debug_assert!(self.is_gathering, "a piece was asked for");
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
            debug_assert!(
                self.sent.len() < COPIED_PIECES_MAX,
                "a piece is gathered only if there is room for it"
            );
            debug_assert!(
                self.sent.back().is_none_or(|(_, last)| last.number + 1 == self.number),
                "pieces are numbered without a gap"
            );
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

    /// Notes that `count` pieces are stored.
    pub(super) fn stored(&mut self, count: u32) -> Option<CopyStep> {
        while self.sent.front().is_some_and(|(_, piece)| piece.number < count) {
            self.sent.pop_front();
        }
        self.next()
    }

    /// Handles elapsed time; returns retransmissions and the next action.
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

    /// Returns the next piece to gather, if there is room for one.
    fn next(&mut self) -> Option<CopyStep> {
        let may = self.phase == CopyPhase::On && !self.is_gathering && self.sent.len() < COPIED_PIECES_MAX;
        if !may || (!self.is_cut && self.allowance_bytes <= 0) {
            return None;
        }
        if self.is_between {
            // While the target is about to take over, each round holds the writes of one round trip.
            if self.is_little && !self.is_cut && (self.is_resting || !self.sent.is_empty()) {
                return None;
            }
            self.is_between = false;
            self.is_last = self.is_cut;
        }
        debug_assert!(!self.is_last || self.is_cut, "the last round begins after the cut");
        self.is_gathering = true;
        Some(CopyStep::Gather(self.round))
    }
}

/// The pieces that a target has received.
#[derive(Debug)]
pub(super) struct Copies {
    /// Pieces that arrived before their predecessors.
    early: BTreeMap<u32, Copied>,
    /// The number to be stored next, one more than the last stored one.
    next: u32,
    stored: u32,
    /// The source's remaining data after the stored pieces and those being stored.
    left: Left,
    storing: VecDeque<Left>,
}

impl Copies {
    pub(super) fn new() -> Self {
        let (early, storing) = (BTreeMap::new(), VecDeque::new());
        Copies { early, next: 0, stored: 0, left: Left::Much, storing }
    }

    /// Adds a received piece; returns the pieces to store now.
    pub(super) fn came(&mut self, piece: Copied) -> Vec<Copied> {
        if piece.number >= self.next && piece.number - self.next < COPIED_PIECES_MAX as u32 {
            self.early.insert(piece.number, piece);
        }
        let mut due = Vec::new();
        while let Some(piece) = self.early.remove(&self.next) {
            self.next += 1;
            self.storing.push_back(piece.left);
            due.push(piece);
        }
        self.check();
        due
    }

    /// Notes that the first of the pieces in progress is stored.
    pub(super) fn stored(&mut self) {
        if let Some(left) = self.storing.pop_front() {
            self.stored += 1;
            self.left = left;
        }
        self.check();
    }

    /// Asserts that pieces are stored once each and in order.
    fn check(&self) {
        debug_assert_eq!(
            self.stored as usize + self.storing.len(),
            self.next as usize,
            "every due piece is stored, or being stored"
        );
        debug_assert!(
            self.early.first_key_value().is_none_or(|(number, _)| *number > self.next),
            "what is due does not wait"
        );
        debug_assert!(self.early.len() < COPIED_PIECES_MAX, "early pieces are bounded");
    }

    /// Returns the acknowledgement for the source.
    pub(super) fn said(&self) -> Message {
        Message::Stored { count: self.stored }
    }

    /// Returns whether the source sends.
    pub(super) fn are_begun(&self) -> bool {
        self.next > 0 || !self.early.is_empty()
    }

    /// Returns how much the source has still to send.
    pub(super) fn left(&self) -> Left {
        self.left
    }
}
