//! An invocation in a module of an extension: the instance ([`ModuleInvocation`]), and the version that it belongs to.

use std::sync::Arc;

use guest::border::{LentPart, ModuleInvocation};
use guest::running::ModuleEntry;
use guest::stack::{Cause, StackOutcome};
use guest::wasm::{Code as ModuleCode, InstanceError};
use sandstorm::abi::{Call, Code};

use super::access::Access;
use super::{Extension, Provenance};

/// An instance of an extension's module, for one invocation at a time.
#[derive(Debug)]
pub(super) struct ModuleCall {
    invocation: ModuleInvocation,
    /// The version whose module it is; keeps the code.
    extension: Arc<Extension>,
}

impl ModuleCall {
    /// Makes an instance. Costs some 25 us.
    ///
    /// # Errors
    /// If there is no memory.
    pub(super) fn new(extension: &Arc<Extension>, code: &Arc<ModuleCode>) -> Result<Self, InstanceError> {
        let is_strict = extension.provenance() != Provenance::CheckedSource;
        Ok(Self { invocation: ModuleInvocation::new(code, is_strict)?, extension: Arc::clone(extension) })
    }

    /// Returns the version whose module it is.
    #[inline]
    pub(super) fn extension(&self) -> &Arc<Extension> {
        &self.extension
    }

    /// Returns whether an invocation has begun in it.
    #[inline]
    pub(super) fn is_begun(&self) -> bool {
        self.invocation.is_begun()
    }

    /// Returns whether another invocation may run in it.
    #[inline]
    pub(super) fn is_usable(&self) -> bool {
        self.invocation.is_usable()
    }

    /// Writes the input of a new invocation, and tells its access where to lend.
    ///
    /// # Safety
    /// As for [`ModuleInvocation::begin`].
    #[inline]
    pub(super) unsafe fn begin(&mut self, call: &mut Call, arena_bytes: usize, access: &mut Access) {
        // SAFETY: as the caller promises.
        access.lend_in(unsafe { self.invocation.begin(call, arena_bytes) });
    }

    /// Returns what to run on an extension's stack for a poll of the function `export`.
    #[inline]
    pub(super) fn entry(&mut self, export: usize) -> ModuleEntry {
        self.invocation.entry(export)
    }

    /// Takes the result of a poll that was not parked, and what it says of the reply.
    #[inline]
    pub(super) fn polled(&mut self, outcome: StackOutcome, call: &mut Call) -> Result<Code, Cause> {
        self.invocation.polled(outcome, call)
    }

    /// Returns the bytes of the arena that an allocation needed, or that are in use.
    pub(super) fn arena_asked_bytes(&self) -> usize {
        self.invocation.arena_asked_bytes()
    }

    /// Returns the bytes of linear memory that the invocation holds.
    pub(super) fn held_bytes(&self, call: &Call, access: &Access) -> usize {
        self.invocation.held_bytes(call, access.lent())
    }

    /// Clears what the invocation used, for the next one or for a repetition.
    #[inline]
    pub(super) fn reset(&mut self, call: &Call, access: &mut Access) {
        if self.is_begun() {
            self.invocation.reset(call, access.lent());
            access.lend_in(LentPart::default());
        }
    }

    /// Gives up the parked run of an invocation.
    pub(super) fn abandon(&mut self) {
        self.invocation.abandon();
    }
}
