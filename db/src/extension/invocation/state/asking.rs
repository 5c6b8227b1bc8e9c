//! The remote reads of a slot, for the delivery of replies.

use super::InvocationState;
use crate::ops::remote::RemoteAnswer;

impl<O> InvocationState<O> {
    /// Returns the number by which replies find it, if it has remote reads.
    #[inline]
    pub(in crate::extension::invocation) fn asks_as(&self) -> Option<u64> {
        self.access.asks_as()
    }

    /// Ends the remote reads of an ended invocation; returns its number if it had any.
    #[inline]
    pub(in crate::extension::invocation) fn ask_no_more(&mut self) -> Option<u64> {
        self.access.ask_no_more()
    }

    /// Takes a reply, between two polls. Returns true when every read is answered.
    pub(in crate::extension::invocation) fn answered(&mut self, answer: &RemoteAnswer) -> bool {
        self.access.answered(answer)
    }

    /// Fails the unanswered reads.
    pub(in crate::extension::invocation) fn not_answered(&mut self) {
        self.access.not_answered();
    }
}
