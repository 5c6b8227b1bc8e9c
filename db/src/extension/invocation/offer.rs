//! An invocation that has not begun, in transfer from one worker to another.
//!
//! It owns all that it needs: the extension, copies of key and arguments, the origin for its reply. It holds no slot,
//! no stack and no pin, and uses those of the worker that takes it. An invocation that has begun stays on its worker,
//! because its stack belongs to a thread.
//!
//! Arguments larger than [`OFFER_INPUT_BYTES`] are not offered: an offer moves by copying, without an allocation.

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use super::state::InvocationState;
use super::{Invocations, RefusedInvocation};
use crate::extension::Extension;
use crate::limits::OFFER_INPUT_BYTES;
use crate::ops::WorkerEnvironment;

/// An invocation offered to other workers before it began.
pub struct Offer<O> {
    extension: Arc<Extension>,
    function: usize,
    table: u32,
    started_us: u64,
    origin: O,
    key_bytes: usize,
    input_bytes: usize,
    /// The key, followed by the arguments.
    input: [u8; OFFER_INPUT_BYTES],
}

impl<O> Offer<O> {
    /// Creates an offer with copies of key and arguments, which fit together.
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
    /// Returns the origin for its reply.
    #[must_use]
    pub fn origin(&self) -> &O {
        &self.origin
    }

    /// Drops the invocation and returns its origin.
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
    /// Returns the number of invocations that can run now.
    #[inline]
    #[must_use]
    pub fn ready(&self) -> usize {
        self.queue.ready()
    }

    /// Removes an invocation that has not begun: the newest one of the tenant whose turn is farthest. `None` if that
    /// one has begun or cannot be offered.
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

    /// Takes an offered invocation, of another worker or of this one. Its age counts from its arrival at the server.
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
