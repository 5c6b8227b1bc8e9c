//! The transfer of an invocation out of its slot before it has begun.
//!
//! The slot is then as after an ended invocation: it keeps its memory and, for the next one, its extension.

use std::slice;
use std::sync::Arc;

use sandstorm::abi::RawSlice;

use super::InvocationState;
use crate::extension::invocation::offer::Offer;
use crate::limits::OFFER_INPUT_BYTES;

impl<O> InvocationState<O> {
    /// Returns whether the invocation has not been polled yet and is small enough to move.
    #[inline]
    pub(in crate::extension::invocation) fn may_be_offered(&self) -> bool {
        let begun = self.parked.is_some()
            || self.held.is_some()
            || (self.cycles, self.slices, self.yields, self.tries) != (0, 0, 0, 0);
        !begun
            && !self.is_traced()
            && self.input_bytes <= OFFER_INPUT_BYTES
            && self.origin.is_some()
            && self.extension.is_some()
    }

    /// Takes the invocation out of the slot, which must then be ended. `None` unless
    /// [`InvocationState::may_be_offered`].
    pub(in crate::extension::invocation) fn offer(&mut self) -> Option<Offer<O>> {
        if !self.may_be_offered() {
            return None;
        }
        let (extension, origin) = (Arc::clone(self.extension.as_ref()?), self.origin.take()?);
        let (key, arguments) = (&self.call.key, &self.call.arguments);
        // SAFETY: both were set by `bring_in` when the invocation was started, and lie in the slot's own room,
        // which nobody has written to since: the extension has not run.
        let input = unsafe { (bytes_of(key), bytes_of(arguments)) };
        let called = (self.function, self.call.table);
        Some(Offer::new(extension, called, self.started_us, input, origin))
    }
}

/// # Safety
/// The slice was made of bytes that live, unchanged, for as long as the returned ones.
unsafe fn bytes_of(slice: &RawSlice) -> &[u8] {
    // SAFETY: the caller's contract.
    unsafe { slice::from_raw_parts(slice.address, slice.bytes) }
}
