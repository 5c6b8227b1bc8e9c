//! Tracing of the invocation in a slot: it has the worker's recorder and calls the host through a table that metrics
//! time.

use std::ptr;

use super::InvocationState;
use crate::extension::Extension;
use crate::extension::host::{HOST, TRACED_HOST};
use crate::extension::trace::{PollEnd, Recorder};

impl<O> InvocationState<O> {
    /// Starts to trace the new invocation in the slot.
    #[cold]
    pub(in crate::extension::invocation) fn trace(&mut self, recorder: Box<Recorder>, at_ms: u64) {
        let recorder = self.recorder.insert(recorder);
        if let Some(extension) = &self.extension {
            recorder.begin(&extension.functions()[self.function].name, extension.version, at_ms);
        }
        self.call.host = &raw const TRACED_HOST;
    }

    /// Returns whether it is traced.
    #[inline]
    pub(in crate::extension::invocation) fn is_traced(&self) -> bool {
        self.recorder.is_some()
    }

    /// Returns the recorder, with the extension of the ended invocation.
    #[cold]
    pub(in crate::extension::invocation) fn untrace(
        &mut self,
    ) -> (Option<Box<Recorder>>, Option<&Extension>) {
        self.access.record(ptr::null_mut());
        self.call.host = &raw const HOST;
        (self.recorder.take(), self.extension.as_deref())
    }

    #[cold]
    pub(super) fn record_poll(&mut self, parked: bool, yielded: bool) {
        let end = match (parked, yielded) {
            (true, _) => PollEnd::Parked,
            (_, true) => PollEnd::Yielded,
            _ => PollEnd::Ended,
        };
        if let Some(recorder) = &mut self.recorder {
            recorder.end_poll(end);
        }
    }
}
