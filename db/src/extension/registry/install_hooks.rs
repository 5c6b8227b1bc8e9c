//! Who has something installed: lets it begin, hears what it took, and records it.
//!
//! A tenant's installation is held against the tenant's limits; one that is brought back at start is not, since it
//! was paid for before.

/// See the file's head. The calls come in this order; after a refusal there is no further one but `spent`.
pub trait InstallHooks {
    /// Why it does not go on.
    type Refusal;

    /// The turn has come: whether the source may be built now.
    ///
    /// # Errors
    /// The refusal, when it may not.
    fn admit(&mut self) -> Result<(), Self::Refusal> {
        Ok(())
    }

    /// Whether the source was installed before, here or at another server: then it is built although an installation
    /// would be refused for what the compiler warns of.
    fn was_installed(&self) -> bool {
        false
    }

    /// The build has ended, well or not, and used so much time on the processor.
    fn spent(&mut self, processor_ms: u64) {
        let _ = processor_ms;
    }

    /// Everything else has succeeded: stores the installation, and gives number and version.
    ///
    /// # Errors
    /// The refusal, when it is not stored.
    fn record(&mut self, artefact_bytes: u64) -> Result<(u32, u32), Self::Refusal>;
}

/// Whoever only records what was installed before.
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
