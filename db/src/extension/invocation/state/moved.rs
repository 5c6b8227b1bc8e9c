//! Errors of a function that it did not cause: its object is in transit, or has just moved to another server.
//!
//! It has written nothing then, so the same request may be repeated: at the server that now owns the key of the call,
//! or here after objects have arrived. For other keys on another server, the extension's author is responsible.

use sandstorm::Error;
use sandstorm::abi::Code;

use super::{InvocationState, PollOutcome};
use crate::extension::invocation::ending::Ending;
use crate::limits::{RETRY_ARRIVING_US, RETRY_BUSY_US};
use crate::ops::WorkerEnvironment;

impl<O> InvocationState<O> {
    /// Ends the poll of a function that returned an error.
    #[cold]
    pub(super) fn fail(&mut self, code: Code, environment: &WorkerEnvironment<'_>) -> PollOutcome {
        let is_of = |error: Error| code == error.code();
        let ending = if is_of(Error::Unavailable) && self.access.may_come_again() {
            Ending::come_again(RETRY_ARRIVING_US)
        } else if is_of(Error::NotLocal) && self.has_lost_its_key(environment) {
            Ending::come_again(RETRY_BUSY_US)
        } else {
            Ending::failed(code, self.access.version_found())
        };
        self.end_badly(ending)
    }

    /// Returns whether the key of the call, which was here at the start, now belongs to another server.
    fn has_lost_its_key(&self, environment: &WorkerEnvironment<'_>) -> bool {
        let tenant = self.extension.as_ref().map(|extension| extension.tenant);
        let entry = tenant.and_then(|tenant| environment.tables.get(tenant, self.call.table));
        // SAFETY: the key lies in the room from the beginning of the invocation to its end.
        let key = unsafe { self.call.key.as_slice() };
        entry.is_some_and(|entry| entry.parts.find(store::hash(key)).is_none())
    }
}
