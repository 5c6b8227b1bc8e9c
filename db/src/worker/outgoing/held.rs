//! Answers that wait until what they show is stable on the disk, or backups have received it.
//!
//! ```text
//!   request executes ── the core has seen a cut that is not stable, or received ──► held, with a copy of the answer
//!   log thread: cut is stable, or received ──► next round: into the outgoing frame, in the order of the cuts
//! ```
//! Nothing else waits: not the worker, no epoch pin, no lock; the request is not executed again. An answer that needs an
//! earlier cut than one before it waits for that one's, so that the queue stays in order. If the disk has failed, what
//! is held and what would be held becomes `StorageFailed`: nobody knows whether it is on the disk.
//!
//! A request may ask for another durability than its table's: then its answer alone does not wait for the disk, or waits for what
//! it shows of tables that promise less ([`store::Core::ask_for_disk`]).
//!
//! Each cut costs a sync of the disk and some 40 us of a core. So the log's thread is not woken for the first answer that
//! is held, but for as many as left together last: clients that wait for their answers send again when they have them.
//! One client alone never waits for others.

use std::collections::VecDeque;

use store::{Admission, AwaitedCuts};
use wire::Status;
use wire::limits::{ASKS_SYNCED, ASKS_WRITTEN};

use super::{Addressee, Outgoing, no_body};
use crate::limits::{HELD_BYTES_MAX, RELEASED_ANSWERS, RELEASED_FRAMES};
use crate::metrics::{Counter, WorkerMetrics};
use crate::ops::WorkerEnvironment;
use crate::session::StreamAnswer;
use crate::sync::oneshot::Sender;
use crate::worker::ports::Exits;

/// Bytes of a body that need no allocation: those of every answer to a write of one object.
const INLINE_BYTES: usize = 16;

/// The body of a held answer.
#[derive(Debug)]
enum HeldBody {
    Inline(u8, [u8; INLINE_BYTES]),
    Boxed(Box<[u8]>),
}

/// The destination of a held answer.
#[derive(Debug)]
pub(super) enum HeldRoute {
    /// Into a frame, with the low half of the request's sequence.
    Frame(Addressee, u32),
    /// To a stream's thread.
    Stream(Sender<StreamAnswer>),
}

/// An answer that waits.
#[derive(Debug)]
pub(super) struct HeldAnswer {
    cut: u64,
    pub(super) route: HeldRoute,
    pub(super) status: Status,
    body: HeldBody,
}

impl HeldAnswer {
    /// Returns the body.
    pub(super) fn body(&self) -> &[u8] {
        match &self.body {
            HeldBody::Inline(bytes, body) => &body[..usize::from(*bytes)],
            HeldBody::Boxed(body) => body,
        }
    }
}

/// The held answers of a worker.
#[derive(Debug, Default)]
pub(super) struct HeldAnswers {
    queue: VecDeque<HeldAnswer>,
    /// Bytes of all of them.
    bytes: usize,
    /// Those at the end for which the log's thread was not woken yet.
    gathered: usize,
    /// When there was none of these last.
    gathered_since_us: u64,
    /// Those taken of a group of which others can be taken now.
    leaving: usize,
    /// Those of the last group.
    last_group: usize,
}

impl HeldAnswers {
    /// Holds an answer until this cut is stable; `fill` writes the body.
    pub(super) fn hold(
        &mut self,
        cut: u64,
        route: HeldRoute,
        status: Status,
        body_bytes: usize,
        fill: impl FnOnce(&mut [u8]),
    ) {
        let cut = self.queue.back().map_or(cut, |last| last.cut.max(cut));
        let body = if body_bytes <= INLINE_BYTES {
            let mut body = [0; INLINE_BYTES];
            fill(&mut body[..body_bytes]);
            HeldBody::Inline(body_bytes as u8, body)
        } else {
            let mut body = vec![0; body_bytes].into_boxed_slice();
            fill(&mut body);
            HeldBody::Boxed(body)
        };
        self.bytes += bytes_of(body_bytes);
        self.queue.push_back(HeldAnswer { cut, route, status, body });
        self.gathered += 1;
    }

    /// Takes the next answer for which this cut suffices.
    #[inline]
    pub(super) fn take(&mut self, stable: u64) -> Option<HeldAnswer> {
        let next = self.queue.pop_front_if(|answer| answer.cut <= stable)?;
        self.bytes -= bytes_of(next.body().len());
        Some(next)
    }

    /// Returns whether an answer can be taken once this cut is stable.
    #[inline]
    pub(super) fn is_due(&self, stable: u64) -> bool {
        self.queue.front().is_some_and(|answer| answer.cut <= stable)
    }

    /// Returns whether none is held.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Returns whether there is room for one with such a body.
    #[inline]
    pub(super) fn has_room(&self, body_bytes: usize) -> bool {
        self.bytes + bytes_of(body_bytes) <= HELD_BYTES_MAX
    }

    /// Notes that so many were taken of those for which this cut suffices.
    fn note_taken(&mut self, taken: usize, stable: u64) {
        self.leaving += taken;
        self.gathered = self.gathered.min(self.queue.len());
        if self.leaving > 0 && !self.is_due(stable) {
            self.last_group = std::mem::take(&mut self.leaving);
        }
    }

    /// Returns whether the log's thread is to be woken, once for those gathered: when they are as many as left together
    /// last, or there was none `wait_us` ago.
    #[inline]
    pub(super) fn take_group(&mut self, now_us: u64, wait_us: u64) -> bool {
        if self.gathered == 0 {
            self.gathered_since_us = now_us;
            return false;
        }
        if self.gathered < self.last_group && now_us.saturating_sub(self.gathered_since_us) < wait_us {
            return false;
        }
        (self.gathered, self.gathered_since_us) = (0, now_us);
        true
    }
}

/// The places of the answers that wait for receipts, and of those that wait for the disk.
const OF_RECEIPTS: usize = 0;
const OF_DISK: usize = 1;

/// Returns the latest cuts for which the one and the other need not wait.
#[inline]
fn limits_of(reached: AwaitedCuts) -> [u64; 2] {
    [reached.received.max(reached.stable), reached.stable]
}

/// Returns the bytes of an answer.
#[inline]
fn bytes_of(body_bytes: usize) -> usize {
    size_of::<HeldAnswer>() + if body_bytes > INLINE_BYTES { body_bytes } else { 0 }
}

/// Returns the cuts that must be reached before a reply leaves, and forgets what the core has seen.
#[inline]
fn cuts_before(environment: &WorkerEnvironment<'_>, flags: u8) -> AwaitedCuts {
    let seen = environment.core.take_seen();
    if flags & (ASKS_WRITTEN | ASKS_SYNCED) != ASKS_WRITTEN {
        return seen;
    }
    let received =
        if environment.core.store().awaits_receipts() { seen.received.max(seen.stable) } else { 0 };
    AwaitedCuts { received, stable: 0 }
}

impl Outgoing {
    /// Writes a reply if what it shows is stable or received, as far as the core has noted that it is to be; otherwise holds it
    /// until then.
    #[inline]
    pub fn reply_when_stable<P: Exits>(
        &mut self,
        port: &mut P,
        environment: &WorkerEnvironment<'_>,
        to: &Addressee,
        head: (u32, Status),
        body_bytes: usize,
        fill: impl FnOnce(&mut [u8]),
    ) {
        let cuts = cuts_before(environment, to.flags);
        if cuts != AwaitedCuts::default() && !cuts.are_reached(environment.core.store().reached_cuts()) {
            return self.hold(port, environment, (to, cuts), head, body_bytes, fill);
        }
        self.reply(port, environment.metrics, to, head, body_bytes, fill);
    }

    #[inline(never)]
    fn hold<P: Exits>(
        &mut self,
        port: &mut P,
        environment: &WorkerEnvironment<'_>,
        (to, cuts): (&Addressee, AwaitedCuts),
        (sequence_low, status): (u32, Status),
        body_bytes: usize,
        fill: impl FnOnce(&mut [u8]),
    ) {
        let metrics = environment.metrics;
        if environment.core.store().admission() == Admission::Failed {
            return self.reply(port, metrics, to, (sequence_low, Status::StorageFailed), 0, no_body);
        }
        let (kind, cut) = kind_of(environment, cuts);
        if !self.held[kind].has_room(body_bytes) {
            // It may have been executed, so that nobody may be told to try again; over the stream its reply waits by itself. A
            // short one has come many times if there are so many: its next copy is answered.
            return match body_bytes > INLINE_BYTES {
                true => self.reply(port, metrics, to, (sequence_low, Status::UseStream), 0, no_body),
                false => metrics.count(Counter::AnswersDropped),
            };
        }
        metrics.count(Counter::AnswersHeld);
        self.held[kind].hold(cut, HeldRoute::Frame(*to, sequence_low), status, body_bytes, fill);
    }

    /// Answers a stream as [`Outgoing::reply_when_stable`] does a frame.
    pub fn answer_when_stable(
        &mut self,
        environment: &WorkerEnvironment<'_>,
        (to, flags): (&Sender<StreamAnswer>, u8),
        answer: StreamAnswer,
    ) {
        let (store, cuts) = (environment.core.store(), cuts_before(environment, flags));
        if cuts.are_reached(store.reached_cuts()) {
            // The stream may be gone; then nobody waits.
            to.send(answer);
            return;
        }
        if store.admission() == Admission::Failed {
            to.send(StreamAnswer { status: Status::StorageFailed, body: Vec::new() });
            return;
        }
        environment.metrics.count(Counter::AnswersHeld);
        let StreamAnswer { status, body } = answer;
        let (kind, cut) = kind_of(environment, cuts);
        self.held[kind].hold(cut, HeldRoute::Stream(to.clone()), status, body.len(), |held| {
            held.copy_from_slice(&body);
        });
    }

    /// Returns whether an answer waits for no other cuts than these, which are reached.
    #[inline]
    #[must_use]
    pub fn has_due(&self, reached: AwaitedCuts) -> bool {
        self.held.iter().zip(limits_of(reached)).any(|(held, limit)| held.is_due(limit))
    }

    /// Writes held answers for which these cuts suffice; with `has_failed`, refusals in place of any. At most
    /// [`RELEASED_ANSWERS`] of them, in [`RELEASED_FRAMES`]: later rounds write the rest, and serve requests in between.
    pub fn release_held<P: Exits>(
        &mut self,
        port: &mut P,
        metrics: &WorkerMetrics,
        reached: AwaitedCuts,
        has_failed: bool,
    ) {
        let mut left = RELEASED_ANSWERS;
        for (kind, limit) in limits_of(reached).into_iter().enumerate() {
            let (limit, before) = (if has_failed { u64::MAX } else { limit }, left);
            while left > 0 && self.outbox.len() < RELEASED_FRAMES {
                let Some(answer) = self.held[kind].take(limit) else { break };
                left -= 1;
                self.release(port, metrics, &answer, has_failed);
            }
            self.held[kind].note_taken(before - left, limit);
        }
    }

    fn release<P: Exits>(
        &mut self,
        port: &mut P,
        metrics: &WorkerMetrics,
        answer: &HeldAnswer,
        has_failed: bool,
    ) {
        let (status, body) =
            if has_failed { (Status::StorageFailed, &[][..]) } else { (answer.status, answer.body()) };
        match &answer.route {
            HeldRoute::Frame(to, sequence_low) => {
                self.hurry();
                self.reply(port, metrics, to, (*sequence_low, status), body.len(), |into| {
                    into.copy_from_slice(body);
                });
            }
            HeldRoute::Stream(to) => {
                to.send(StreamAnswer { status, body: body.to_vec() });
            }
        }
    }

    /// Returns whether no answer is held.
    #[inline]
    #[must_use]
    pub fn holds_nothing(&self) -> bool {
        self.held.iter().all(HeldAnswers::is_empty)
    }

    /// Returns whether the log's thread is to be woken for answers that wait for receipts, and for those that wait for the disk: once
    /// for each of them. They are gathered for these times at most, in microseconds.
    #[inline]
    #[must_use]
    pub fn take_groups_of_held(&mut self, now_us: u64, waits_us: [u64; 2]) -> [bool; 2] {
        let [of_receipts, of_disk] = &mut self.held;
        [of_receipts.take_group(now_us, waits_us[OF_RECEIPTS]), of_disk.take_group(now_us, waits_us[OF_DISK])]
    }
}

/// Returns where an answer waits that waits for these cuts, one of which is not reached, and for which cut: what is stable was
/// received.
fn kind_of(environment: &WorkerEnvironment<'_>, cuts: AwaitedCuts) -> (usize, u64) {
    if cuts.stable > environment.core.store().stable_cut() {
        (OF_DISK, cuts.stable.max(cuts.received))
    } else {
        (OF_RECEIPTS, cuts.received)
    }
}

#[cfg(test)]
mod tests {
    use wire::Status;

    use super::{HeldAnswer, HeldAnswers, HeldRoute};
    use crate::limits::HELD_BYTES_MAX;
    use crate::worker::outgoing::Addressee;

    /// Holds one more answer that waits for this cut, and consists of bytes that say so.
    fn hold(held: &mut HeldAnswers, cut: u64, bytes: usize) {
        let to = Addressee { port: 0, peer: ([127, 0, 0, 1], 1).into(), token: 1, home_core: 0, flags: 0 };
        held.hold(cut, HeldRoute::Frame(to, 1), Status::Ok, bytes, |body| body.fill(cut as u8));
    }

    /// Takes all that this cut suffices for.
    fn release(held: &mut HeldAnswers, stable: u64) {
        let taken = std::iter::from_fn(|| held.take(stable)).count();
        held.note_taken(taken, stable);
    }

    #[test]
    fn the_log_is_woken_for_as_many_as_left_together() {
        let (mut held, wait_us) = (HeldAnswers::default(), 100);
        hold(&mut held, 1, 0);
        assert!(held.take_group(5, wait_us), "nobody knows of others yet");
        (0..2).for_each(|_| hold(&mut held, 2, 0));
        assert!(held.take_group(6, wait_us), "one left alone before");
        release(&mut held, 2);
        assert!(!held.take_group(20, wait_us));
        hold(&mut held, 3, 0);
        assert!(!held.take_group(21, wait_us), "three left together");
        hold(&mut held, 3, 0);
        assert!(!held.take_group(119, wait_us));
        hold(&mut held, 3, 0);
        assert!(held.take_group(119, wait_us), "three came back");
        release(&mut held, 3);
        assert!(!held.take_group(200, wait_us));
        hold(&mut held, 4, 0);
        assert!(!held.take_group(299, wait_us));
        assert!(held.take_group(300, wait_us), "the others may stay away");
        release(&mut held, 4);
        hold(&mut held, 5, 0);
        assert!(held.take_group(301, wait_us), "one left alone");
    }

    #[test]
    fn a_cut_of_somebody_else_takes_those_along_that_gather() {
        let mut held = HeldAnswers::default();
        (0..4).for_each(|_| hold(&mut held, 1, 0));
        assert!(held.take_group(0, 100));
        release(&mut held, 1);
        (0..2).for_each(|_| hold(&mut held, 2, 0));
        assert!(!held.take_group(10, 100));
        release(&mut held, 2);
        assert!(!held.take_group(20, 0), "nothing is held");
    }

    #[test]
    fn answers_leave_in_order_once_their_cut_is_stable() {
        let mut held = HeldAnswers::default();
        for (cut, bytes) in [(5, 8), (7, 100), (6, 0)] {
            hold(&mut held, cut, bytes);
        }
        assert!(held.take_group(0, 0) && !held.take_group(0, 0), "woken once for all of them");
        assert_eq!(held.bytes, 3 * size_of::<HeldAnswer>() + 100);
        assert!(!held.is_due(4) && held.take(4).is_none());
        let bodies = |held: &mut HeldAnswers, stable| {
            std::iter::from_fn(|| held.take(stable).map(|answer| answer.body().to_vec())).collect::<Vec<_>>()
        };
        assert_eq!(bodies(&mut held, 6), [vec![5; 8]], "the third one waits behind the second");
        assert_eq!(bodies(&mut held, 7), [vec![7; 100], vec![]]);
        assert!(held.is_empty() && held.bytes == 0);
    }

    #[test]
    fn short_answers_are_held_within_bounds_too() {
        let (mut held, mut answers) = (HeldAnswers::default(), 0);
        while held.has_room(8) {
            hold(&mut held, 5, 8);
            answers += 1;
        }
        assert!(held.queue.capacity() * size_of::<HeldAnswer>() <= 2 * HELD_BYTES_MAX);
        assert!(answers > 256 * 1_024, "of {answers} sessions' calls");
        while held.take(5).is_some() {}
        assert!(held.has_room(HELD_BYTES_MAX / 2));
    }
}
