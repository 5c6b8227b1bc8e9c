//! The hashes that requests wait for at the target: each is pulled once, in batches of which one is in flight. The
//! source answers as many of a batch as fit a pull; the rest leads the next batch.

use std::collections::{HashSet, VecDeque};

use crate::limits::{MIGRATION_RETRY_US, PRIORITY_HASHES_MAX, PRIORITY_PULL_HASHES};
use crate::migration::message::Message;

/// A batch in flight.
#[derive(Debug)]
struct Asked {
    hashes: Vec<u64>,
    due_us: u64,
    is_here: bool,
}

/// The priority pulls of a target.
#[derive(Debug, Default)]
pub(super) struct Priority {
    waiting: VecDeque<u64>,
    known: HashSet<u64>,
    asked: Option<Asked>,
    number: u32,
}

impl Priority {
    /// Adds a hash that a request waits for. Returns false if too many wait already.
    pub(super) fn want(&mut self, hash: u64) -> bool {
        if self.known.contains(&hash) {
            return true;
        }
        if self.known.len() >= PRIORITY_HASHES_MAX {
            return false;
        }
        self.known.insert(hash);
        self.waiting.push_back(hash);
        self.check();
        true
    }

    /// Returns the message to send now.
    pub(super) fn poll(&mut self, now_us: u64) -> Option<Message> {
        if self.asked.is_none() && !self.waiting.is_empty() {
            let count = self.waiting.len().min(PRIORITY_PULL_HASHES);
            let hashes = self.waiting.drain(..count).collect();
            self.asked = Some(Asked { hashes, due_us: now_us, is_here: false });
        }
        let asked = self.asked.as_mut().filter(|asked| !asked.is_here && asked.due_us <= now_us)?;
        asked.due_us = now_us + MIGRATION_RETRY_US;
        Some(Message::PriorityPull { number: self.number, hashes: asked.hashes.clone() })
    }

    /// Takes the reply to the first `count` hashes of a batch; returns these if it is the expected reply, received for
    /// the first time. An empty reply is ignored.
    pub(super) fn answered(&mut self, number: u32, count: usize) -> Option<Vec<u64>> {
        let is_awaited = |asked: &&mut Asked| number == self.number && !asked.is_here && count > 0;
        let asked = self.asked.as_mut().filter(is_awaited)?;
        asked.is_here = true;
        let rest = asked.hashes.split_off(count.min(asked.hashes.len()));
        rest.into_iter().rev().for_each(|hash| self.waiting.push_front(hash));
        let answered = asked.hashes.clone();
        self.check();
        Some(answered)
    }

    /// Returns how many more hashes may wait.
    pub(super) fn free(&self) -> usize {
        PRIORITY_HASHES_MAX.saturating_sub(self.known.len())
    }

    /// Notes that the batch's objects are stored; returns their hashes.
    pub(super) fn replayed(&mut self) -> Vec<u64> {
        let hashes = self.asked.take().map(|asked| asked.hashes).unwrap_or_default();
        self.number = self.number.wrapping_add(1);
        self.forget(&hashes);
        self.check();
        hashes
    }

    /// Removes and returns the waiting, unrequested hashes for which `holds` is true.
    pub(super) fn take(&mut self, holds: impl Fn(u64) -> bool) -> Vec<u64> {
        let (taken, waiting) = self.waiting.drain(..).partition(|&hash| holds(hash));
        let taken: VecDeque<u64> = taken;
        self.waiting = waiting;
        let taken = Vec::from(taken);
        self.forget(&taken);
        self.check();
        taken
    }

    /// Asserts that each hash waits or is asked for, once.
    fn check(&self) {
        let asked = self.asked.as_ref().map_or(0, |asked| asked.hashes.len());
        debug_assert_eq!(self.known.len(), self.waiting.len() + asked, "each hash is known once");
        debug_assert!(self.known.len() <= PRIORITY_HASHES_MAX, "the hashes are bounded");
    }

    fn forget(&mut self, hashes: &[u64]) {
        for hash in hashes {
            self.known.remove(hash);
        }
    }

    /// Removes and returns all hashes, because nothing waits any more.
    pub(super) fn take_all(&mut self) -> Vec<u64> {
        self.waiting.clear();
        self.asked = None;
        self.number = self.number.wrapping_add(1);
        self.known.drain().collect()
    }
}
