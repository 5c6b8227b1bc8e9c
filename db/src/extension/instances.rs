//! The instances of modules on one worker.
//!
//! Making an instance costs some 25 us, so an instance serves one invocation after another: always of the same version
//! of the same tenant's extension, so that what an instance keeps never crosses from one tenant to another, nor through
//! a grant. A worker keeps idle instances up to a number; beyond it those that have rested longest are dropped. One
//! tenant has at most half of the instances that the others leave, so that the next tenant finds room.

use std::collections::HashMap;
use std::sync::Arc;

use store::NumberHash;

use super::Extension;
use super::module_call::ModuleCall;
use crate::limits::{INSTANCES_KEPT_PER_WORKER, INSTANCES_PER_WORKER_MAX};
use crate::metrics::{Counter, WorkerMetrics};
use crate::weakened;
use wire::TenantId;

/// The reason why an invocation gets no instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoInstance {
    /// The worker or the tenant has its maximum in use, or the system no memory for another one.
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
    idle: HashMap<*const Extension, Vec<(u64, Box<ModuleCall>)>, NumberHash>,
    idle_count: usize,
    in_use: usize,
    /// The instances of each tenant, idle or in use.
    by_tenant: HashMap<TenantId, usize>,
    /// Counts returns.
    returns: u64,
}

impl Instances {
    /// Creates an empty pool.
    pub(super) fn new() -> Self {
        Self {
            last: None,
            idle: HashMap::default(),
            idle_count: 0,
            in_use: 0,
            by_tenant: HashMap::new(),
            returns: 0,
        }
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
        let code = extension.module().map_err(|_| NoInstance::NoModule)?;
        if !self.has_room_for(extension.tenant) {
            self.retain(|_, idle| idle.extension().tenant != extension.tenant, metrics);
            if !self.has_room_for(extension.tenant) {
                return Err(NoInstance::NoRoom);
            }
        }
        let mut made = ModuleCall::new(extension, code);
        if made.is_err() && self.idle_count > 0 {
            self.retain(|_, _| false, metrics);
            made = ModuleCall::new(extension, code);
        }
        let made = made.map_err(|_| NoInstance::NoRoom)?;
        metrics.count(Counter::InstancesMade);
        *self.by_tenant.entry(extension.tenant).or_default() += 1;
        self.in_use += 1;
        Ok(Box::new(made))
    }

    /// Returns an instance that was reset; drops it if it cannot be used again, or will not be.
    #[inline]
    pub(super) fn give(&mut self, call: Box<ModuleCall>, metrics: &WorkerMetrics) {
        debug_assert!(!call.is_begun(), "an instance is reset before it is returned");
        debug_assert!(self.in_use > 0, "only instances in use are returned");
        self.in_use -= 1;
        if !call.is_usable() || call.extension().is_retired() {
            return self.drop_one(&call, metrics);
        }
        if let Some(before) = self.last.replace(call) {
            self.keep(before, metrics);
        }
    }

    /// Returns whether a tenant may have another instance.
    fn has_room_for(&self, tenant: TenantId) -> bool {
        let all = self.in_use + self.idle_count + usize::from(self.last.is_some());
        let own = self.by_tenant.get(&tenant).copied().unwrap_or_default();
        debug_assert!(own <= all, "a tenant's instances are among all");
        2 * own < INSTANCES_PER_WORKER_MAX - (all - own).min(INSTANCES_PER_WORKER_MAX)
    }

    /// Counts an instance that is dropped.
    #[cold]
    fn drop_one(&mut self, call: &ModuleCall, metrics: &WorkerMetrics) {
        metrics.count(Counter::InstancesDropped);
        let tenant = call.extension().tenant;
        if let Some(own) = self.by_tenant.get_mut(&tenant) {
            *own -= 1;
            if *own == 0 {
                self.by_tenant.remove(&tenant);
            }
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
        let mut dropped = Vec::new();
        for idle in self.idle.values_mut() {
            dropped.extend(idle.extract_if(.., |(time, call)| !keeps(*time, call)));
        }
        self.idle.retain(|_, idle| !idle.is_empty());
        self.idle_count -= dropped.len();
        for (_, call) in dropped {
            self.drop_one(&call, metrics);
        }
    }

    /// Drops idle instances of retired versions.
    #[cold]
    pub(super) fn let_go_of_retired(&mut self, metrics: &WorkerMetrics) {
        if let Some(retired) = self.last.take_if(|last| last.extension().is_retired()) {
            self.drop_one(&retired, metrics);
        }
        self.retain(|_, call| !call.extension().is_retired(), metrics);
    }
}

/// Returns whether an instance that has served `before` may serve `next`.
#[inline]
fn serves(before: &Arc<Extension>, next: &Arc<Extension>) -> bool {
    if weakened::by("key") {
        return matches!((before.module(), next.module()), (Ok(before), Ok(next)) if Arc::ptr_eq(before, next));
    }
    Arc::ptr_eq(before, next)
}
