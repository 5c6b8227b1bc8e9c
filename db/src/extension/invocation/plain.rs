//! Invocations without isolation: each polled in order of arrival until it ends or yields.
//!
//! It has no slices, no shares and no time accounting. `scripts/isolation` metrics the cost of preemption, fairness
//! and accounting against this on one commit. A function that loops here occupies the worker for good, so this mode is
//! not for serving tenants; the server warns when it is chosen. Stacks, arenas, commits and the memory limits of one
//! invocation are the same; memory held by waiting invocations is not counted.

use std::collections::VecDeque;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use wire::Status;

use super::budget::LimitOverrides;
use super::fair::PlaceId;
use super::state::{InvocationState, PollOutcome};
use super::{Invocations, RefusedInvocation};
use crate::extension::Extension;
use crate::limits::{INVOCATIONS_PER_WORKER_MAX, WARM_BYTES_PER_WORKER};
use crate::ops::WorkerEnvironment;

/// Limits without any bound on time.
const ENDLESS: LimitOverrides = LimitOverrides {
    slice_us: u64::MAX,
    cpu_us: u64::MAX,
    wall_us: u64::MAX,
    yields: u32::MAX,
    parked: 0,
    held_bytes: usize::MAX,
    warm_bytes: WARM_BYTES_PER_WORKER,
};

impl<O> Invocations<O> {
    /// Like [`Invocations::new`], without preemption, shares and time accounting.
    ///
    /// # Errors
    /// As [`Invocations::new`].
    pub fn without_isolation() -> io::Result<Self> {
        let mut invocations = Self::new()?;
        invocations.plain = Some(VecDeque::with_capacity(INVOCATIONS_PER_WORKER_MAX));
        Ok(invocations)
    }

    /// Queues an invocation whose sizes have been checked.
    pub(super) fn start_plain(
        &mut self,
        environment: &WorkerEnvironment<'_>,
        extension: &Arc<Extension>,
        (function, table): (usize, u32),
        (key, arguments): (&[u8], &[u8]),
        origin: O,
    ) -> Result<(), RefusedInvocation<O>> {
        let Ok(mut slot) = self.slots.take() else {
            return Err(RefusedInvocation { status: Status::Unavailable, limit: None, origin });
        };
        // SAFETY: slots in hand are ours alone and stay where they are.
        let fresh = unsafe { slot.as_mut() };
        fresh.begin(extension, function, origin, environment.now_us, PlaceId::NONE, Some(&ENDLESS));
        fresh.bring_in(table, key, arguments);
        if let Some(queue) = &mut self.plain {
            queue.push_back(slot);
        }
        Ok(())
    }

    /// Polls each waiting invocation once.
    pub(super) fn run_plain(
        &mut self,
        environment: &WorkerEnvironment<'_>,
        on_done: &mut (impl FnMut(O, Status, &[u8]) + ?Sized),
    ) {
        for _ in 0..self.live() {
            let Some(mut slot) = self.take_plain() else { return };
            // SAFETY: a slot from the queue is begun, and ours alone until it is put back.
            match unsafe { InvocationState::poll(slot, environment, &mut self.stacks, u64::MAX) } {
                PollOutcome::Ended(ending) => self.finish(slot, environment, ending, on_done),
                PollOutcome::Pending | PollOutcome::Lacks(_) | PollOutcome::Parked => {
                    // SAFETY: as above.
                    unsafe { slot.as_mut() }.keep_lent(environment);
                    self.note_asking(slot);
                    if let Some(queue) = &mut self.plain {
                        queue.push_back(slot);
                    }
                }
            }
        }
    }

    /// Takes the oldest queued invocation.
    pub(super) fn take_plain(&mut self) -> Option<NonNull<InvocationState<O>>> {
        self.plain.as_mut().and_then(VecDeque::pop_front)
    }
}
