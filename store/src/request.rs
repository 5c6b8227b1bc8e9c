//! Writes that belong to requests: each appends its completion record to the durable head, under the same cut.

use crate::completion::{KEY_BYTES, NUMBER_BYTES, RequestId};
use crate::cut::Wait;
use crate::error::WriteError;
use crate::log::{NoSegment, Staged};
use crate::object::NEVER_MS;
use crate::store::Store;
use crate::store::core::{Core, Pinned};
use crate::table::Table;
use crate::weakened;

impl Core {
    /// Names the request to which the writes from now on belong, until [`Core::end_request`]; `reply` is what a commit
    /// records as its reply, or its version if that is empty. Writes of one object record their own.
    #[inline]
    pub fn begin_request(&self, request: RequestId, reply: &[u8]) {
        self.request.set(Some(request));
        if !reply.is_empty() {
            self.reply.borrow_mut().extend_from_slice(reply);
        }
    }

    /// Ends [`Core::begin_request`].
    #[inline]
    pub fn end_request(&self) {
        self.request.set(None);
        self.reply.borrow_mut().clear();
    }
}

impl Pinned<'_> {
    /// Copies the completion record of a write of one object to the durable head, if the write belongs to a request and
    /// its table is durable; with room for a number if the reply has one.
    #[inline]
    pub(crate) fn stage_completion(
        &self,
        table: &Table,
        staged: Option<&Staged>,
        has_number: bool,
    ) -> Result<(), WriteError> {
        let Some(request) = self.core.request.get().filter(|_| table.is_durable()) else { return Ok(()) };
        if weakened::by("record") {
            return Ok(());
        }
        let value: &[u8] = if has_number { &[0; NUMBER_BYTES] } else { &[] };
        let completion = self.append_completion(table, request, value);
        if completion.is_err()
            && let Some(staged) = staged
        {
            self.unstage(table, staged);
        }
        completion
    }

    /// Appends a completion record of a request that has written to tables in memory, of which a durable one has come to
    /// hold the effect. `reply` is as for [`Core::begin_request`].
    ///
    /// # Errors
    /// As of a write to this durable table.
    pub fn record_reply(&self, table: &Table, request: RequestId, reply: &[u8]) -> Result<(), WriteError> {
        self.refuse_without_disk(table, false)?;
        self.append_completion(table, request, &[&[3], reply].concat())?;
        if let Some(writing) = self.begin_durable(table) {
            self.seal_completion(1, None);
            self.advance(&writing, Wait::Nothing);
        }
        Ok(())
    }

    /// Copies the completion record of a commit to the durable head.
    pub(crate) fn stage_completion_of_commit(&self, table: &Table) -> Result<(), WriteError> {
        let Some(request) = self.core.request.get() else { return Ok(()) };
        let reply = self.core.reply.borrow();
        // Without a reply of its own it is the version, as of a write of one object.
        let value = if reply.is_empty() { Vec::new() } else { [&[3], &reply[..]].concat() };
        self.append_completion(table, request, &value)
    }

    #[inline]
    fn append_completion(&self, table: &Table, request: RequestId, value: &[u8]) -> Result<(), WriteError> {
        let (store, key) = (&self.core.store, request.key());
        let claim = |bytes| store.log.claim_of_writer(bytes, 0);
        let mut head = self.core.durable_head.borrow_mut();
        let staged = store.log.stage_completion(&mut head, claim, request.table(), (&key, value));
        let staged = staged.map_err(|NoSegment| self.no_room(table, KEY_BYTES + value.len()))?;
        self.core.completion.set(Some(staged));
        Ok(())
    }

    /// Seals the staged completion record, if there is one, with the version of its write.
    #[inline]
    pub(crate) fn seal_completion(&self, version: u64, number: Option<[u8; 8]>) {
        let Some(mut staged) = self.core.completion.take() else { return };
        let log = &self.core.store.log;
        if let (Some(request), Some(number)) = (self.core.request.get(), number) {
            let mut value = [2; NUMBER_BYTES];
            value[1..].copy_from_slice(&number);
            log.restage(&mut staged, &request.key(), &value, NEVER_MS);
        }
        log.seal(&staged, version, 0);
        log.bury(self.core.index, staged.location, staged.bytes());
    }

    /// Takes the staged completion record back, which is the last entry of the head.
    #[inline]
    pub(crate) fn unstage_completion(&self) {
        if let Some(staged) = self.core.completion.take() {
            let mut head = self.core.durable_head.borrow_mut();
            self.core.store.log.unstage(self.core.index, &mut head, &staged);
        }
    }
}

impl Store {
    /// Sets which completion records the cleaner keeps. Called by the cleaner, so it must not wait. Without a call, it
    /// keeps none.
    pub fn keep_completions(&self, is_needed: impl Fn(RequestId) -> bool + Send + Sync + 'static) {
        if let Some(durable) = &self.log.durable {
            let _ = durable.needs.set(Box::new(is_needed));
        }
    }
}
