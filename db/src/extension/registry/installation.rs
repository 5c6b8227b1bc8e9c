//! The parts of an installation: its hooks, which admit it, receive its cost and record it; the reasons why it failed;
//! and the toolchain, prepared once on first use.
//!
//! A tenant's installation is checked against the tenant's limits; one restored at start is not, because its cost was
//! charged before.

use std::fmt;
use std::sync::{Arc, Mutex};

use builder::{BuildError, Toolchain};
use guest::wasm;
use wire::Status;

use crate::extension::native::LoadError;
use crate::sync::lock;

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

    /// Stores the installation after everything else has succeeded; returns number and version. `no_module` is the
    /// reason why there is no module; empty if there is one.
    ///
    /// # Errors
    /// The refusal, when it is not stored.
    fn record(&mut self, artefact_bytes: u64, no_module: &str) -> Result<(u32, u32), Self::Refusal>;
}

/// Hooks without limits that only record an earlier installation.
pub(super) struct Unlimited<R>(pub(super) Option<R>);

impl<E, R: FnOnce() -> Result<(u32, u32), E>> InstallHooks for Unlimited<R> {
    type Refusal = E;

    fn was_installed(&self) -> bool {
        true
    }

    fn record(&mut self, _: u64, _: &str) -> Result<(u32, u32), E> {
        let record = self.0.take().expect("an installation is recorded once");
        record()
    }
}

/// The reason why an installation failed; nothing has changed. `E` is the refusal of its `InstallHooks`.
#[derive(Debug)]
pub enum InstallError<E> {
    /// The build failed.
    Build(BuildError),
    /// The artefact was built and cannot be loaded.
    Load(LoadError),
    /// Too many installations wait already.
    Busy,
    /// The hooks refused the start or could not record the installation.
    Customer(E),
}

impl<E> InstallError<E> {
    /// Returns the status on the wire; `None` if the hooks refused, because their owner knows the status.
    #[must_use]
    pub fn status(&self) -> Option<Status> {
        match self {
            Self::Build(BuildError::Refused(_) | BuildError::ImportRefused { .. }) => {
                Some(Status::SourceRefused)
            }
            Self::Build(
                BuildError::CompileFailed { .. }
                | BuildError::CompilerCrashed { .. }
                | BuildError::TimedOut { .. }
                | BuildError::Killed { .. },
            ) => Some(Status::CompileFailed),
            Self::Build(
                BuildError::SandboxMissing { .. }
                | BuildError::ToolchainMissing { .. }
                | BuildError::ModuleUnavailable { .. },
            )
            | Self::Load(LoadError::Unavailable(_)) => Some(Status::Unavailable),
            Self::Build(BuildError::DiskFull) => Some(Status::StorageFull),
            Self::Build(BuildError::Io { .. }) | Self::Load(_) => Some(Status::Internal),
            Self::Busy => Some(Status::LimitExceeded),
            Self::Customer(_) => None,
        }
    }
}

impl<E: fmt::Display> fmt::Display for InstallError<E> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Build(error) => error.fmt(out),
            Self::Load(error) => error.fmt(out),
            Self::Busy => out.write_str("too many installations are waiting; try again later"),
            Self::Customer(error) => error.fmt(out),
        }
    }
}

impl<E: fmt::Debug + fmt::Display> std::error::Error for InstallError<E> {}

/// Tests that a module of this toolchain's compiler runs in this process as it must.
fn start_modules(toolchain: &Toolchain) -> Result<(), NoModules> {
    let compiled = toolchain.compile_module(wasm::SELF_TEST_MODULE, &wasm::SELF_TEST_FUNCTIONS);
    let compiled = compiled.map_err(|error| NoModules {
        why: error.to_string(),
        // A machine that is busy or full for a while; the tools are looked for once.
        may_pass: !matches!(error, BuildError::ModuleUnavailable { .. }),
    })?;
    // SAFETY: the builder of this process has checked and compiled it.
    unsafe { wasm::start(&compiled) }.map_err(|error| NoModules { why: error.to_string(), may_pass: false })
}

/// The reason why this process runs no modules.
struct NoModules {
    why: String,
    /// Whether another attempt may find otherwise.
    may_pass: bool,
}

/// Prepares the toolchain: called until it has succeeded once.
pub type Prepare = Box<dyn Fn() -> Result<Toolchain, BuildError> + Send + Sync>;

/// The toolchain, prepared on first use.
pub(super) struct LazyToolchain {
    prepare: Prepare,
    toolchain: Mutex<Option<Arc<Toolchain>>>,
    /// Whether this process runs modules, or the reason why not; found out with the toolchain, and again with every
    /// use of it while the reason may pass.
    modules: Mutex<Result<(), NoModules>>,
}

impl LazyToolchain {
    /// Creates it without a prepared toolchain.
    pub(super) fn new(prepare: Prepare) -> Self {
        let modules = Err(NoModules { why: "there is no toolchain yet".to_owned(), may_pass: true });
        Self { prepare, toolchain: Mutex::default(), modules: Mutex::new(modules) }
    }

    /// Returns the toolchain; waits while it is being prepared.
    pub(super) fn get(&self) -> Result<Arc<Toolchain>, BuildError> {
        let mut slot = lock(&self.toolchain);
        let toolchain = match &*slot {
            Some(toolchain) => Arc::clone(toolchain),
            None => Arc::new((self.prepare)()?),
        };
        let mut modules = lock(&self.modules);
        if matches!(&*modules, Err(NoModules { may_pass: true, .. })) {
            *modules = start_modules(&toolchain);
            if let Err(NoModules { why, .. }) = &*modules {
                tracing::warn!(%why, "extensions of tenants with `sandbox=wasm` cannot run");
            }
        }
        *slot = Some(Arc::clone(&toolchain));
        Ok(toolchain)
    }

    /// Returns whether this process runs modules.
    ///
    /// # Errors
    /// The reason, if it does not.
    pub(super) fn modules(&self) -> Result<(), String> {
        lock(&self.modules).as_ref().map(|_| ()).map_err(|missing| missing.why.clone())
    }
}
