//! The target's half of copying: received pieces, each stored once and in order.

use std::collections::BTreeMap;

use crate::limits::COPIED_PIECES_MAX;
use crate::migration::message::{Copied, Left, Message};

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
    storing: std::collections::VecDeque<Left>,
}

impl Copies {
    pub(super) fn new() -> Self {
        let (early, storing) = (BTreeMap::new(), std::collections::VecDeque::new());
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
        due
    }

    /// Notes that the first of the pieces in progress is stored.
    pub(super) fn stored(&mut self) {
        if let Some(left) = self.storing.pop_front() {
            self.stored += 1;
            self.left = left;
        }
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
