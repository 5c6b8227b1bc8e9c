//! Invocations between two polls: the events that they wait for, and the memory that they hold meanwhile.
//!
//! Those that wait for objects in transit, or for reads at other servers, are not polled until these arrive. They keep
//! their pins and count as live, like those that have yielded. After a long wait an invocation is polled again in any
//! case: it requests objects in transit again, and an unanswered remote read fails; its own limits end it.
//!
//! ```text
//!   arguments beyond a frame ── counted from the start; no room: Throttled, nothing was copied
//!   yielded, parked, conflict ─ touched memory is counted; no room: ended with a text that says so
//!   ended ───────────────────── all of it is released
//! ```
//! An invocation that ends in its first poll is never counted: a worker runs one of those at a time, and its memory is
//! released or kept warm within a separate bound ([`super::table`]). An invocation that waits for its first poll
//! without large arguments holds two pages at most. The count covers whole pages of the memory, the lists of the
//! transaction, and the stack of a parked invocation.
//!
//! A tenant may hold as much as it leaves free, which is half of what the others do not hold. So the next tenant always
//! finds room, and a single tenant gets half of all. (Dynamic thresholds: Choudhury and Hahne, "Dynamic Queue Length
//! Thresholds for Shared-Memory Packet Switches", 1998.)

use std::ptr::NonNull;

use cluster::limits::REMOTE_READ_US_MAX;
use guest::region::PAGE_BYTES;

use super::Invocations;
use super::fair::PlaceId;
use super::state::InvocationState;
use crate::extension::access::Awaited;
use crate::extension::allowance::{Exceeded, Limit, Overdrawn};
use crate::extension::invocation_memory::ROOM_BYTES;
use crate::limits::{
    HELD_BYTES_PER_WORKER, INVOCATION_BYTES_PER_WORKER, INVOCATIONS_PER_WORKER_MAX, PENDING_US_MAX,
    REMOTE_READ_SLACK_US, SLOTS_KEPT_PER_WORKER, UNCOUNTED_INPUT_BYTES, WARM_BYTES_PER_WORKER,
};
use crate::metrics::{Counter, Waits};
use crate::ops::WorkerEnvironment;
use crate::ops::remote::RemoteAnswer;

/// A waiting invocation.
pub(super) struct Awaiting<O> {
    awaited: Awaited,
    since_us: u64,
    slot: NonNull<InvocationState<O>>,
}

impl<O> Awaiting<O> {
    /// Returns whether it has waited too long at `now_us`.
    fn is_overdue(&self, now_us: u64) -> bool {
        let patience_us = match self.awaited {
            Awaited::Arrival(..) => PENDING_US_MAX,
            Awaited::Answers(_) => REMOTE_READ_US_MAX + REMOTE_READ_SLACK_US,
        };
        self.since_us + patience_us <= now_us
    }
}

/// The bytes held on one worker, and their limit. Each tenant's share is counted in its place.
#[derive(Debug)]
pub(super) struct Holding {
    most: usize,
    held: usize,
}

impl Holding {
    /// Creates a count of zero with a limit of `most` bytes.
    pub(super) const fn new(most: usize) -> Self {
        Self { most, held: 0 }
    }

    /// Returns the bytes that a tenant may hold if it holds `own` now.
    fn share(&self, own: usize) -> usize {
        debug_assert!(own <= self.held && self.held <= self.most, "{own} of {} of {}", self.held, self.most);
        (self.most - (self.held - own)) / 2
    }

    /// Adds bytes to a tenant that holds `own`, if its share allows.
    ///
    /// # Errors
    /// The tenant's share, and what it would hold.
    fn grow(&mut self, own: &mut usize, bytes: usize) -> Result<(), Exceeded> {
        let (share, wanted) = (self.share(*own), *own + bytes);
        if wanted > share {
            return Err(Exceeded { limit: Limit::HeldBytes, value: share as u64, used: wanted as u64 });
        }
        *own = wanted;
        self.held += bytes;
        Ok(())
    }

    /// Subtracts released bytes from a tenant that holds `own`.
    fn shrink(&mut self, own: &mut usize, bytes: usize) {
        debug_assert!(bytes <= *own && *own <= self.held, "only what is held is given back");
        *own -= bytes;
        self.held -= bytes;
    }
}

impl<O> Invocations<O> {
    /// Wakes invocations that wait for one of these hashes of a part, or for any hash of it if `hashes` is `None`;
    /// records how long they waited.
    pub fn wake(&mut self, part: u32, hashes: Option<&[u64]>, (waits, now_us): (&Waits, u64)) {
        self.go_on_where(|awaiting| {
            let Awaited::Arrival(of, hash) = awaiting.awaited else { return false };
            let goes_on = of == part && hashes.is_none_or(|hashes| hashes.contains(&hash));
            if goes_on {
                waits.note(now_us.saturating_sub(awaiting.since_us));
            }
            goes_on
        });
    }

    /// Delivers replies to the invocations that asked, and wakes those without unanswered reads. Replies to ended
    /// invocations are dropped.
    pub fn answer(&mut self, answers: &[RemoteAnswer]) {
        let mut served: Vec<u64> = Vec::with_capacity(answers.len());
        for answer in answers {
            let number = answer.asker.invocation;
            let Some(slot) = self.asking.get_mut(&number) else { continue };
            // SAFETY: those that ask are in the queue, or wait here: ours alone, and not in a poll.
            if unsafe { slot.as_mut() }.answered(answer) {
                served.push(number);
            }
        }
        served.sort_unstable();
        self.go_on_where(|awaiting| match awaiting.awaited {
            Awaited::Answers(number) => served.binary_search(&number).is_ok(),
            Awaited::Arrival(..) => false,
        });
    }

    /// Wakes all waiting invocations.
    pub fn go_on_all(&mut self) {
        self.go_on_where(|_| true);
    }

    pub(super) fn is_overdue(&self, now_us: u64) -> bool {
        self.awaiting.iter().any(|awaiting| awaiting.is_overdue(now_us))
    }

    pub(super) fn wait_for(
        &mut self,
        awaited: Awaited,
        slot: NonNull<InvocationState<O>>,
        environment: &WorkerEnvironment<'_>,
    ) {
        environment.metrics.count(match awaited {
            Awaited::Arrival(..) => Counter::InvocationsLacking,
            Awaited::Answers(_) => Counter::InvocationsAsking,
        });
        self.awaiting.push(Awaiting { awaited, since_us: environment.now_us, slot });
    }

    /// Registers an invocation with remote reads for replies. Called after each poll that did not end it.
    #[cold]
    pub(super) fn note_asking(&mut self, slot: NonNull<InvocationState<O>>) {
        // SAFETY: a slot in hand is ours alone.
        if let Some(number) = unsafe { slot.as_ref() }.asks_as() {
            self.asking.insert(number, slot);
        }
    }

    /// Wakes invocations that have waited too long.
    pub(super) fn go_on_overdue(&mut self, now_us: u64) {
        self.go_on_where(|awaiting| {
            let is_overdue = awaiting.is_overdue(now_us);
            if is_overdue && matches!(awaiting.awaited, Awaited::Answers(_)) {
                let mut slot = awaiting.slot;
                // SAFETY: what waits here is ours alone.
                unsafe { slot.as_mut() }.not_answered();
            }
            is_overdue
        });
    }

    fn go_on_where(&mut self, holds: impl Fn(&Awaiting<O>) -> bool) {
        for Awaiting { slot, .. } in self.awaiting.extract_if(.., |awaiting| holds(awaiting)) {
            // SAFETY: what waits here is ours alone.
            self.queue.push(unsafe { slot.as_ref() }.place(), slot);
        }
    }

    /// Returns whether a tenant may hold this many more bytes of key and arguments.
    #[cold]
    pub(super) fn has_room_for(&mut self, place: PlaceId, input_bytes: usize) -> bool {
        let own = *self.queue.held_bytes(place);
        own + input_bytes + 2 * PAGE_BYTES <= self.holding.share(own)
    }

    /// Counts the input of an invocation for which [`has_room_for`](Self::has_room_for) returned true.
    #[cold]
    pub(super) fn hold_input(&mut self, slot: NonNull<InvocationState<O>>) {
        // SAFETY: a slot in hand is ours alone.
        let bytes = unsafe { slot.as_ref() }.input_bytes_backed();
        // If this fails, the bytes are counted when the invocation outlives a poll.
        let _ = self.count(slot, bytes);
    }

    /// Counts the memory of an invocation that outlives its poll; returns the reached limit if it holds too much.
    #[inline]
    pub(super) fn hold(
        &mut self,
        mut slot: NonNull<InvocationState<O>>,
        worked_us: u64,
    ) -> Option<Overdrawn> {
        // SAFETY: a slot in hand is ours alone.
        let bytes = unsafe { slot.as_mut() }.footprint_bytes();
        let exceeded = self.count(slot, bytes).err()?;
        // SAFETY: as above.
        Some(Overdrawn { exceeded, usage: Some(unsafe { slot.as_ref() }.usage(worked_us)) })
    }

    /// Removes an ended invocation from the count.
    #[cold]
    pub(super) fn release(&mut self, mut slot: NonNull<InvocationState<O>>) {
        // SAFETY: a slot in hand is ours alone.
        let ended = unsafe { slot.as_mut() };
        let bytes = std::mem::take(ended.counted_bytes());
        self.holding.shrink(self.queue.held_bytes(ended.place()), bytes);
    }

    /// Counts the bytes of an invocation, which releases none while it lives.
    #[inline]
    fn count(&mut self, mut slot: NonNull<InvocationState<O>>, bytes: usize) -> Result<(), Exceeded> {
        // SAFETY: a slot in hand is ours alone.
        let holder = unsafe { slot.as_mut() };
        let place = holder.place();
        let counted = holder.counted_bytes();
        if bytes > *counted {
            self.holding.grow(self.queue.held_bytes(place), bytes - *counted)?;
            *counted = bytes;
        }
        Ok(())
    }
}

// The largest invocation of all may stay while several tenants hold what they may.
const _: () = assert!(ROOM_BYTES * 8 <= HELD_BYTES_PER_WORKER);
// Held, warm and running memory, invocations before their first poll, and the kept lists and stacks.
const _: () = assert!(
    HELD_BYTES_PER_WORKER
        + WARM_BYTES_PER_WORKER
        + ROOM_BYTES
        + INVOCATIONS_PER_WORKER_MAX * (UNCOUNTED_INPUT_BYTES + PAGE_BYTES).next_multiple_of(PAGE_BYTES)
        + SLOTS_KEPT_PER_WORKER * (40 << 10)
        + (16 << 20)
        <= INVOCATION_BYTES_PER_WORKER
);

#[cfg(test)]
mod tests {
    use super::Holding;
    use crate::extension::allowance::Limit;

    const MOST: usize = 1 << 20;

    #[test]
    fn one_tenant_alone_holds_half_and_is_told_how_much_that_is() {
        let (mut holding, mut own) = (Holding::new(MOST), 0);
        assert_eq!(holding.grow(&mut own, MOST / 2), Ok(()));
        let exceeded = holding.grow(&mut own, 1).expect_err("no more");
        assert_eq!((exceeded.limit, exceeded.value), (Limit::HeldBytes, MOST as u64 / 2));
        assert_eq!((exceeded.used, own), (MOST as u64 / 2 + 1, MOST / 2));
        holding.shrink(&mut own, MOST / 2);
        assert_eq!((own, holding.held), (0, 0));
        assert_eq!(holding.grow(&mut own, MOST / 2), Ok(()));
    }

    #[test]
    fn tenants_that_take_all_they_get_end_up_with_the_same_and_leave_as_much_free() {
        let (mut holding, mut owned) = (Holding::new(MOST), [0; 7]);
        for _ in 0..100 {
            for own in &mut owned {
                // Each gives back what it has, as invocations do that end, and takes again all that it gets.
                let had = *own;
                holding.shrink(own, had);
                while holding.grow(own, 64).is_ok() {}
            }
        }
        let even = MOST / (owned.len() + 1);
        for own in owned {
            assert!(own.abs_diff(even) <= 1024, "{own} of {even}");
        }
        assert!((MOST - holding.held).abs_diff(even) <= 8 * 1024);
    }

    #[test]
    fn whatever_tenants_do_no_more_is_held_than_may_be_and_the_next_one_finds_room() {
        let mut random = fastrand::Rng::with_seed(11);
        let (mut holding, mut owned) = (Holding::new(MOST), [0; 9]);
        for _ in 0..10_000 {
            let own = &mut owned[random.usize(0..9)];
            let bytes = random.usize(1..MOST / 8);
            if random.bool() {
                let _ = holding.grow(own, bytes);
            } else {
                let bytes = bytes.min(*own);
                holding.shrink(own, bytes);
            }
            assert_eq!(holding.held, owned.iter().sum::<usize>());
            assert!(holding.held < MOST && holding.share(0) > 0);
        }
    }
}
