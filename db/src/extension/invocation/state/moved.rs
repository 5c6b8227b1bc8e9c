//! Errors of a function that are none of its doing: what it asked for is on its way, or has just gone to another server.
//!
//! It has written nothing then, so the same request may be made again: where the key went that it was called with, or here
//! when objects have arrived. A key of its choice that another server has is its author's to answer for.

use sandstorm::Error;
use sandstorm::abi::Code;

use super::{InvocationState, PollOutcome};
use crate::extension::invocation::ending::Ending;
use crate::limits::{RETRY_ARRIVING_US, RETRY_BUSY_US};
use crate::ops::WorkerEnvironment;

impl<O> InvocationState<O> {
    /// The function returned an error.
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

    /// Whether the key that it was called with, and that was here when it began, is another server's by now.
    fn has_lost_its_key(&self, environment: &WorkerEnvironment<'_>) -> bool {
        let tenant = self.extension.as_ref().map(|extension| extension.tenant);
        let entry = tenant.and_then(|tenant| environment.tables.get(tenant, self.call.table));
        // SAFETY: the key lies in the room from the beginning of the invocation to its end.
        let key = unsafe { self.call.key.as_slice() };
        entry.is_some_and(|entry| entry.parts.find(store::hash(key)).is_none())
    }
}
