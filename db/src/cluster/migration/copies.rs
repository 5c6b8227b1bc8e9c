//! The target's half of copying: pieces that came, stored in their order, each once.

use std::collections::BTreeMap;

use crate::cluster::migration::message::{Copied, Left, Message};
use crate::limits::COPIED_PIECES_MAX;

/// See the file's head.
#[derive(Debug)]
pub(super) struct Copies {
    /// Pieces that came before those in front of them.
    early: BTreeMap<u32, Copied>,
    /// The number that is stored next, and the one behind those that are.
    next: u32,
    stored: u32,
    /// What comes behind what is stored, and what is being stored.
    left: Left,
    storing: std::collections::VecDeque<Left>,
}

impl Copies {
    pub(super) fn new() -> Self {
        let (early, storing) = (BTreeMap::new(), std::collections::VecDeque::new());
        Copies { early, next: 0, stored: 0, left: Left::Much, storing }
    }

    /// A piece has come: those that are to be stored now.
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

    /// The first of those that are being stored is here.
    pub(super) fn stored(&mut self) {
        if let Some(left) = self.storing.pop_front() {
            self.stored += 1;
            self.left = left;
        }
    }

    /// What the source is to know.
    pub(super) fn said(&self) -> Message {
        Message::Stored { count: self.stored }
    }

    /// Whether the source sends.
    pub(super) fn are_begun(&self) -> bool {
        self.next > 0 || !self.early.is_empty()
    }

    /// What the source has still to send.
    pub(super) fn left(&self) -> Left {
        self.left
    }
}
