//! What a slot has asked of other servers, for who brings the answers.

use super::InvocationState;
use crate::ops::remote::RemoteAnswer;

impl<O> InvocationState<O> {
    /// The number by which answers find it, if it asks for any.
    #[inline]
    pub(in crate::extension::invocation) fn asks_as(&self) -> Option<u64> {
        self.access.asks_as()
    }

    /// It has ended: the number, if it has asked.
    #[inline]
    pub(in crate::extension::invocation) fn ask_no_more(&mut self) -> Option<u64> {
        self.access.ask_no_more()
    }

    /// Takes an answer, between two polls. True when all that it asked for is answered.
    pub(in crate::extension::invocation) fn answered(&mut self, answer: &RemoteAnswer) -> bool {
        self.access.answered(answer)
    }

    /// Nobody answers any more.
    pub(in crate::extension::invocation) fn not_answered(&mut self) {
        self.access.not_answered();
    }
}
