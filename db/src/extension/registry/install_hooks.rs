//! The hooks of an installation: admit it, receive its cost, record it.
//!
//! A tenant's installation is checked against the tenant's limits; one restored at start is not, because its cost was
//! charged before.

/// The caller's hooks in an installation. They are called in this order; after a refusal only `spent` is still called.
pub trait InstallHooks {
    /// The reason for a refusal.
    type Refusal;

    /// Decides, at this installation's turn, whether the source may be built now.
    ///
    /// # Errors
    /// The refusal, when it may not.
    fn admit(&mut self) -> Result<(), Self::Refusal> {
        Ok(())
    }

    /// Returns whether the source was installed before, here or at another server. If so, it is built despite compiler
    /// warnings for which a new installation would be refused.
    fn was_installed(&self) -> bool {
        false
    }

    /// Reports the processor time of a finished build, successful or not.
    fn spent(&mut self, processor_ms: u64) {
        let _ = processor_ms;
    }

    /// Stores the installation after everything else has succeeded; returns number and version.
    ///
    /// # Errors
    /// The refusal, when it is not stored.
    fn record(&mut self, artefact_bytes: u64) -> Result<(u32, u32), Self::Refusal>;
}

/// Hooks without limits that only record an earlier installation.
pub(super) struct Unlimited<R>(pub(super) Option<R>);

impl<E, R: FnOnce() -> Result<(u32, u32), E>> InstallHooks for Unlimited<R> {
    type Refusal = E;

    fn was_installed(&self) -> bool {
        true
    }

    fn record(&mut self, _: u64) -> Result<(u32, u32), E> {
        let record = self.0.take().expect("an installation is recorded once");
        record()
    }
}
