//! Tracing of single invocations on a worker: which one gets the recorder, and how its recording is published.

use std::ptr::NonNull;
use std::sync::Arc;

use wire::Status;

use super::Invocations;
use super::state::InvocationState;
use crate::extension::Extension;
use crate::ops::WorkerEnvironment;

impl<O> Invocations<O> {
    /// Traces a new invocation if a reader wants it and no other one is traced.
    #[cold]
    pub(super) fn trace(
        &mut self,
        mut slot: NonNull<InvocationState<O>>,
        extension: &Arc<Extension>,
        function: usize,
        environment: &WorkerEnvironment<'_>,
    ) {
        let (account, hash) = (&extension.account, extension.functions()[function].hash);
        let is_free = self.recorder.as_ref().is_some_and(|recorder| !recorder.rests(environment.now_us));
        if !is_free || !extension.log.traces.wants(account, extension.id, hash, environment.now_us) {
            return;
        }
        if let Some(recorder) = self.recorder.take() {
            // SAFETY: a slot in hand is ours alone.
            unsafe { slot.as_mut() }.trace(recorder, environment.wall_ms);
        }
    }

    /// Publishes the recording of a finished traced invocation to its readers.
    #[cold]
    pub(super) fn publish(
        &mut self,
        mut slot: NonNull<InvocationState<O>>,
        environment: &WorkerEnvironment<'_>,
        status: Status,
    ) {
        // SAFETY: a slot in hand is ours alone.
        let (recorder, extension) = unsafe { slot.as_mut() }.untrace();
        if let (Some(mut recorder), Some(extension)) = (recorder, extension) {
            if !extension.log.traces.publish(recorder.end(status, environment.now_us)) {
                recorder.rest_no_more();
            }
            self.recorder = Some(recorder);
        }
    }
}
