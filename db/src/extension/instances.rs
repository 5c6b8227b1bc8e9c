//! The instances of modules on one worker.
//!
//! Making an instance costs some 25 us, so an instance serves one invocation after another: always of the same version
//! of the same tenant's extension, so that what an instance keeps never crosses from one tenant to another, nor through
//! a grant. A worker keeps idle instances up to a number; beyond it those that have rested longest are dropped.

use std::collections::HashMap;
use std::sync::Arc;

use super::Extension;
use super::module_call::ModuleCall;
use crate::limits::{INSTANCES_KEPT_PER_WORKER, INSTANCES_PER_WORKER_MAX};
use crate::metrics::{Counter, WorkerMetrics};

/// The reason why an invocation gets no instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoInstance {
    /// The worker has its maximum in use, or the system no memory for another one.
    NoRoom,
    /// The extension has no module.
    NoModule,
}

/// The instances of one worker, idle or in use.
#[derive(Debug)]
pub(super) struct Instances {
    /// The instance that was returned last; most invocations take this one.
    last: Option<Box<ModuleCall>>,
    /// The other idle ones, by the address of their extension, with the time of their return.
    idle: HashMap<*const Extension, Vec<(u64, Box<ModuleCall>)>>,
    idle_count: usize,
    in_use: usize,
    /// Counts returns.
    returns: u64,
}

impl Instances {
    /// Creates an empty pool.
    pub(super) fn new() -> Self {
        Self { last: None, idle: HashMap::new(), idle_count: 0, in_use: 0, returns: 0 }
    }

    /// Returns an instance of the extension's module that only the caller uses.
    ///
    /// # Errors
    /// See [`NoInstance`].
    #[inline]
    pub(super) fn take(
        &mut self,
        extension: &Arc<Extension>,
        metrics: &WorkerMetrics,
    ) -> Result<Box<ModuleCall>, NoInstance> {
        if let Some(last) = self.last.take_if(|last| serves(last.extension(), extension)) {
            self.in_use += 1;
            return Ok(last);
        }
        self.take_other(extension, metrics)
    }

    #[cold]
    fn take_other(
        &mut self,
        extension: &Arc<Extension>,
        metrics: &WorkerMetrics,
    ) -> Result<Box<ModuleCall>, NoInstance> {
        let found = self.idle.get_mut(&Arc::as_ptr(extension)).and_then(Vec::pop);
        if let Some((_, found)) = found {
            self.idle_count -= 1;
            self.in_use += 1;
            return Ok(found);
        }
        if self.in_use + self.idle_count >= INSTANCES_PER_WORKER_MAX {
            self.retain(|_, _| false, metrics);
            if self.in_use >= INSTANCES_PER_WORKER_MAX {
                return Err(NoInstance::NoRoom);
            }
        }
        let code = extension.module().map_err(|_| NoInstance::NoModule)?;
        let mut made = ModuleCall::new(extension, code);
        if made.is_err() && self.idle_count > 0 {
            self.retain(|_, _| false, metrics);
            made = ModuleCall::new(extension, code);
        }
        let made = made.map_err(|_| NoInstance::NoRoom)?;
        metrics.count(Counter::InstancesMade);
        self.in_use += 1;
        Ok(Box::new(made))
    }

    /// Returns an instance that was reset; drops it if it cannot be used again.
    #[inline]
    pub(super) fn give(&mut self, call: Box<ModuleCall>, metrics: &WorkerMetrics) {
        debug_assert!(!call.is_begun(), "an instance is reset before it is returned");
        debug_assert!(self.in_use > 0, "only instances in use are returned");
        self.in_use -= 1;
        if !call.is_usable() {
            metrics.count(Counter::InstancesDropped);
            return;
        }
        if let Some(before) = self.last.replace(call) {
            self.keep(before, metrics);
        }
    }

    #[cold]
    fn keep(&mut self, call: Box<ModuleCall>, metrics: &WorkerMetrics) {
        self.returns += 1;
        self.idle.entry(Arc::as_ptr(call.extension())).or_default().push((self.returns, call));
        self.idle_count += 1;
        if self.idle_count > INSTANCES_KEPT_PER_WORKER {
            self.drop_oldest(metrics);
        }
    }

    /// Drops the eighth of the idle instances that has rested longest.
    fn drop_oldest(&mut self, metrics: &WorkerMetrics) {
        let mut times: Vec<u64> = self.idle.values().flatten().map(|(time, _)| *time).collect();
        let (_, &mut oldest, _) = times.select_nth_unstable(INSTANCES_KEPT_PER_WORKER / 8);
        self.retain(|time, _| time > oldest, metrics);
    }

    fn retain(&mut self, keeps: impl Fn(u64, &ModuleCall) -> bool, metrics: &WorkerMetrics) {
        let before = self.idle_count;
        for idle in self.idle.values_mut() {
            idle.retain(|(time, call)| keeps(*time, call));
        }
        self.idle.retain(|_, idle| !idle.is_empty());
        self.idle_count = self.idle.values().map(Vec::len).sum();
        metrics.add(Counter::InstancesDropped, (before - self.idle_count) as u64);
    }

    /// Drops idle instances of retired versions.
    #[cold]
    pub(super) fn let_go_of_retired(&mut self, metrics: &WorkerMetrics) {
        if self.last.take_if(|last| last.extension().is_retired()).is_some() {
            metrics.count(Counter::InstancesDropped);
        }
        self.retain(|_, call| !call.extension().is_retired(), metrics);
    }
}

/// Returns whether an instance that has served `before` may serve `next`.
#[inline]
fn serves(before: &Arc<Extension>, next: &Arc<Extension>) -> bool {
    if cfg!(weakened = "key") {
        return matches!((before.module(), next.module()), (Ok(before), Ok(next)) if Arc::ptr_eq(before, next));
    }
    Arc::ptr_eq(before, next)
}
