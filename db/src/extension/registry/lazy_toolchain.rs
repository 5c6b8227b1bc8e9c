//! The toolchain, prepared once on first use.

use std::sync::{Arc, Mutex, PoisonError};

use builder::{BuildError, Toolchain};

/// Prepares the toolchain: called until it has succeeded once.
pub type Prepare = Box<dyn Fn() -> Result<Toolchain, BuildError> + Send + Sync>;

/// The toolchain, prepared on first use.
pub(super) struct LazyToolchain {
    prepare: Prepare,
    toolchain: Mutex<Option<Arc<Toolchain>>>,
}

impl LazyToolchain {
    /// Creates it without a prepared toolchain.
    pub(super) fn new(prepare: Prepare) -> Self {
        Self { prepare, toolchain: Mutex::default() }
    }

    /// Returns the toolchain; waits while it is being prepared.
    pub(super) fn get(&self) -> Result<Arc<Toolchain>, BuildError> {
        let mut slot = self.toolchain.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(toolchain) = &*slot {
            return Ok(Arc::clone(toolchain));
        }
        let toolchain = Arc::new((self.prepare)()?);
        *slot = Some(Arc::clone(&toolchain));
        Ok(toolchain)
    }
}
