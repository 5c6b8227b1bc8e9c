//! An invocation that has not begun, as one worker gives it away and another takes it.
//!
//! It owns all it needs: the extension, copies of key and arguments, the way back of its answer. It holds no
//! slot, no stack and no pin; those of the worker that takes it are used. What began stays where it is, since its
//! stack belongs to a thread.
//!
//! Larger arguments than [`OFFER_INPUT_BYTES`] are not given away: an offer moves by copying, without an
//! allocation.

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use super::state::InvocationState;
use super::{Invocations, RefusedInvocation};
use crate::extension::Extension;
use crate::limits::OFFER_INPUT_BYTES;
use crate::ops::WorkerEnvironment;

/// See the file's head.
pub struct Offer<O> {
    extension: Arc<Extension>,
    function: usize,
    table: u32,
    started_us: u64,
    origin: O,
    key_bytes: usize,
    input_bytes: usize,
    /// The key and behind it the arguments.
    input: [u8; OFFER_INPUT_BYTES],
}

impl<O> Offer<O> {
    /// An invocation with copies of key and arguments, which together fit.
    pub(super) fn new(
        extension: Arc<Extension>,
        (function, table): (usize, u32),
        started_us: u64,
        (key, arguments): (&[u8], &[u8]),
        origin: O,
    ) -> Self {
        let (key_bytes, input_bytes) = (key.len(), key.len() + arguments.len());
        let mut input = [0; OFFER_INPUT_BYTES];
        input[..key_bytes].copy_from_slice(key);
        input[key_bytes..input_bytes].copy_from_slice(arguments);
        Self { extension, function, table, started_us, origin, key_bytes, input_bytes, input }
    }
}

impl<O> Offer<O> {
    /// Where its answer goes.
    #[must_use]
    pub fn origin(&self) -> &O {
        &self.origin
    }

    /// Gives up the invocation.
    #[must_use]
    pub fn into_origin(self) -> O {
        self.origin
    }
}

impl<O> fmt::Debug for Offer<O> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Offer")
            .field("extension", &self.extension.name)
            .field("function", &self.function)
            .finish_non_exhaustive()
    }
}

impl<O> Invocations<O> {
    /// How many can run now.
    #[inline]
    #[must_use]
    pub fn ready(&self) -> usize {
        self.queue.ready()
    }

    /// Takes out an invocation that has not begun: the newest of the tenant whose turn is farthest. `None` when
    /// that one has begun, or cannot be given away.
    pub fn give(&mut self, environment: &WorkerEnvironment<'_>) -> Option<Offer<O>> {
        // SAFETY: slots in the queue are ours alone.
        let may_go = |slot: &NonNull<InvocationState<O>>| unsafe { slot.as_ref() }.may_be_offered();
        let mut slot = self.queue.take_farthest(may_go)?;
        // SAFETY: a slot in hand is ours alone.
        let given = unsafe { slot.as_mut() };
        let place = given.place();
        let offer = given.offer();
        self.queue.leave(place);
        let warmer = given.end(environment);
        self.slots.give(slot, warmer);
        offer
    }

    /// Takes an invocation that another worker gave away, or that this one did and nobody took. Its age counts
    /// from when it came to the server.
    ///
    /// # Errors
    /// As [`Invocations::start`].
    pub fn take(
        &mut self,
        environment: &WorkerEnvironment<'_>,
        offer: Offer<O>,
    ) -> Result<(), RefusedInvocation<O>> {
        let Offer { extension, function, table, started_us, origin, key_bytes, input_bytes, input } = offer;
        let (key, arguments) = input[..input_bytes].split_at(key_bytes);
        let came = WorkerEnvironment { now_us: started_us, ..*environment };
        self.start(&came, &extension, function, table, key, arguments, origin)
    }
}
