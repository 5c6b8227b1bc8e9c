//! Extensions: functions of tenants, compiled from source and run inside the server beside the data.
//!
//! ```text
//!   registry            package -> artefact (crate builder) -> library (native) -> Extension   control threads
//!   invocation          start, poll on a stack of its own, commit or discard, reply            workers
//!     access            the reach of a running invocation: tables, write set, usage
//!     allowance         its limits, taken from its tenant's account
//!     host              the calls from a native extension into the server, its allocator, the exit from a panic
//!                       (those of a module: crate guest's border, over the same access)
//!     module_call       an instance of a module for an invocation; instances: those that a worker keeps
//!     invocation_memory its memory
//!   pushback            which of them run at their clients                                    workers
//!   version_metrics     outcomes and run times of a version's invocations                      both
//!   trace               events of single invocations, recorded while a client reads them       both
//! ```
//!
//! An [`Extension`] is immutable and shared. A new version is another value; running invocations keep theirs, and
//! earlier versions stay as long as they are kept; [`ActiveVersions`] chooses one for each invocation. The library is
//! unloaded after the last reference is dropped, which [`registry`] ensures.

pub mod access;
pub mod allowance;
pub mod host;
mod instances;
pub mod invocation;
pub mod invocation_memory;
pub mod log;
mod module_call;
pub mod native;
pub mod pushback;
pub mod registry;
pub mod trace;
pub mod version_metrics;

#[cfg(test)]
pub(crate) mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use guest::preemption_backoff::PreemptionBackoff;
use log::ExtensionLog;
use native::Library;
use pushback::FunctionCost;
use store::{prefetch_lines, prefetch_value};
use version_metrics::VersionMetrics;
use wire::TenantId;

use crate::limits::STEADY_SLICES;
use crate::tenant::account::Account;

/// The access that a function declares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallMode {
    /// Only reads; is not recorded for exactly-once.
    Read,
    /// Reads and writes; the writes are applied together when the function succeeds.
    Write,
}

/// What the builder knows of a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provenance {
    /// It made the module of a source that passed its checks: safe code, which leaves nothing behind but in memory that
    /// it was lent.
    CheckedSource,
    /// It checked the finished module alone, whose code may leave its words anywhere.
    Unknown,
}

/// A function that can be invoked.
#[derive(Clone, Debug)]
pub struct Function {
    /// The function's name in the source.
    pub name: Box<str>,
    /// [`wire::function_hash`] of the name.
    pub hash: u32,
    /// The access that it declares.
    pub mode: CallMode,
    /// The function's entry point in the library; `None` if there is only a module.
    pub(crate) run: Option<native::Run>,
    /// The number of the function's entry point in the module, if there is one.
    pub(crate) export: usize,
}

/// One loaded version of an extension. The first cache line holds the fields that every invocation reads.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Extension {
    /// The tenant's account, which is charged.
    pub account: Arc<Account>,
    /// The metrics of this version's invocations.
    pub metrics: Arc<VersionMetrics>,
    functions: Arc<[Function]>,
    backoff: PreemptionBackoff,
    /// The tenant that may invoke it and whose tables it reaches: the owner, or a tenant with a grant.
    pub tenant: TenantId,
    /// The number of (tenant, name); all versions share it.
    pub id: u32,
    /// The installation count, from 1.
    pub version: u32,
    retired: AtomicBool,
    /// The tenant's log, which receives its log lines.
    pub log: Arc<ExtensionLog>,
    /// The name, unique among the tenant's extensions; `owner/name` for a granted one.
    pub name: Box<str>,
    /// What each function costs.
    costs: Box<[FunctionCost]>,
    library: Arc<Library>,
}

const _: () = assert!(std::mem::offset_of!(Extension, log) <= 64);

/// Cache lines of a function's code to prefetch; the processor prefetches the rest.
const CODE_LINES_AHEAD: usize = 8;

/// The reason why an extension has no module, for a tenant that does not own it.
pub const NO_MODULE_OF_ANOTHER: &str = "wasm unavailable: its owner sees why";

/// Counts retirements of all extensions; a worker that sees a change checks the extensions that it keeps.
static RETIREMENTS: AtomicU64 = AtomicU64::new(0);

impl Extension {
    /// Creates a version of an extension over a loaded library.
    #[must_use]
    pub fn new(
        id: u32,
        account: Arc<Account>,
        name: &str,
        version: u32,
        library: Arc<Library>,
        log: Arc<ExtensionLog>,
    ) -> Self {
        let (metrics, retired) = (Arc::new(VersionMetrics::new()), AtomicBool::new(false));
        let (tenant, backoff) = (account.tenant, PreemptionBackoff::new());
        let (name, functions) = (name.into(), library.functions());
        let costs = functions.iter().map(|_| FunctionCost::default()).collect();
        Self { account, metrics, functions, backoff, tenant, id, version, retired, log, name, costs, library }
    }

    /// Returns the same version for another tenant that has a grant. It reaches that tenant's tables and writes to that
    /// tenant's log, under its own number and name. The metrics count both tenants together.
    #[must_use]
    pub fn granted(&self, id: u32, account: Arc<Account>, name: &str, log: Arc<ExtensionLog>) -> Self {
        let metrics = Arc::clone(&self.metrics);
        Self { metrics, ..Self::new(id, account, name, self.version, Arc::clone(&self.library), log) }
    }

    /// Returns the functions in the order of the source.
    #[inline]
    #[must_use]
    pub fn functions(&self) -> &[Function] {
        &self.functions
    }

    /// Returns what a function costs.
    #[inline]
    #[must_use]
    pub fn cost(&self, function: usize) -> &FunctionCost {
        &self.costs[function]
    }

    /// Returns the `Arguments: ..` line of the function's doc comment, or "" if there is none.
    #[must_use]
    pub fn arguments(&self, function: usize) -> &str {
        self.library.arguments(function)
    }

    /// Returns the module.
    ///
    /// # Errors
    /// The reason why there is none.
    #[inline]
    pub fn module(&self) -> Result<&Arc<guest::wasm::Code>, &str> {
        self.library.module()
    }

    /// Returns the reason why there is no module, as the tenant may know it; empty if there is one. What the compiler
    /// said about the source is for the owner.
    #[must_use]
    pub fn no_module(&self) -> &str {
        match self.module() {
            Ok(_) => "",
            Err(_) if self.is_granted() => NO_MODULE_OF_ANOTHER,
            Err(why) => why,
        }
    }

    /// Returns whether it is another tenant's, by a grant.
    #[must_use]
    pub fn is_granted(&self) -> bool {
        self.name.contains('/')
    }

    /// Returns whether it has a shared object; otherwise there is only a module.
    #[must_use]
    pub fn is_native(&self) -> bool {
        self.functions.iter().all(|function| function.run.is_some())
    }

    /// Returns what the builder knows of the module.
    #[must_use]
    pub fn provenance(&self) -> Provenance {
        self.library.provenance()
    }

    /// Returns the reason why there is no module in one line, without the lines of the source that a compiler shows.
    #[must_use]
    pub fn no_module_line(&self) -> String {
        let mut lines = self.no_module().lines();
        let first = lines.next().unwrap_or_default();
        let second = lines.next().filter(|_| first.ends_with(':'));
        second.map_or_else(|| first.to_owned(), |second| format!("{first} {second}"))
    }

    /// Returns the index of the function with this [`wire::function_hash`].
    #[inline]
    #[must_use]
    pub fn function(&self, hash: u32) -> Option<usize> {
        self.functions().iter().position(|function| function.hash == hash)
    }

    /// Prefetches the fields that every invocation reads.
    #[inline]
    pub fn prefetch(&self) {
        prefetch_value(&self.account);
    }

    /// Prefetches the targets of its pointers; expects the extension itself in the cache.
    #[inline]
    pub fn prefetch_behind(&self, worker: usize) {
        if let Some(function) = self.functions.first() {
            prefetch_value(function);
        }
        self.metrics.prefetch_place(worker);
    }

    /// Prefetches the next level of pointers and a function's code.
    #[inline]
    pub fn prefetch_last(&self, worker: usize, function: u32) {
        self.metrics.prefetch(worker);
        if let Some(index) = self.function(function) {
            let run = self.functions[index].run.map_or(std::ptr::null(), |run| run as *const u8);
            prefetch_lines(run, CODE_LINES_AHEAD);
        }
    }

    /// Returns how many slices ahead of its polls to keep the preemption timer: few until its polls have proved short.
    #[inline]
    #[must_use]
    pub fn slices_ahead(&self) -> u64 {
        if self.backoff.is_steady() { STEADY_SLICES } else { 1 }
    }

    /// Records a poll that ended within its slice.
    #[inline]
    pub fn note_short_poll(&self, now_us: u64) {
        self.backoff.note_short_poll(now_us);
    }

    /// Records a poll that used up its slice and ran `slices` slices before detection; watches the next polls closely.
    pub fn note_overrun(&self, now_us: u64, slices: u64) {
        self.backoff.note_overrun(now_us, slices);
    }

    /// Marks this version as no longer kept, so that workers drop their references to it.
    pub fn retire(&self) {
        self.retired.store(true, Ordering::Release);
        RETIREMENTS.fetch_add(1, Ordering::Release);
    }

    /// Returns whether this version was retired.
    #[must_use]
    pub fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Acquire)
    }
}

/// Returns the number of retirements in this process.
#[inline]
#[must_use]
pub fn retirements() -> u64 {
    RETIREMENTS.load(Ordering::Acquire)
}

/// The invocable versions of one extension, and the choice of one for each invocation.
///
/// A request that names a version gets it. Any other request gets the current version or, for a fixed percentage of
/// requests, the canary if one exists. A hash of client and sequence makes this choice; both are equal in every copy of
/// a request, so a retry uses the same version as the first copy.
///
/// An `ActiveVersions` is immutable. The registry creates a new one for every change, and each worker replaces the old
/// one between two batches. Running invocations keep their version.
#[derive(Clone, Debug)]
pub struct ActiveVersions {
    /// The number by which invocations name the extension.
    pub id: u32,
    /// The tenant that may invoke it.
    pub tenant: TenantId,
    current: Arc<Extension>,
    /// `None` for most extensions, which keeps the values in the workers' maps small.
    more: Option<Box<More>>,
}

/// The versions other than the current one.
#[derive(Clone, Debug, Default)]
struct More {
    canary: Option<(Arc<Extension>, u8)>,
    others: Vec<Arc<Extension>>,
}

impl ActiveVersions {
    /// Creates a set with one version only.
    #[must_use]
    pub fn of(current: Arc<Extension>) -> Self {
        Self { id: current.id, tenant: current.tenant, current, more: None }
    }

    /// Creates a set of a current version, an optional canary with its percentage, and versions invoked only by number.
    #[must_use]
    pub fn new(
        current: Arc<Extension>,
        canary: Option<(Arc<Extension>, u8)>,
        others: Vec<Arc<Extension>>,
    ) -> Self {
        let is_alone = canary.is_none() && others.is_empty();
        let more = (!is_alone).then(|| Box::new(More { canary, others }));
        Self { more, ..Self::of(current) }
    }

    /// Returns the version for a request: `version` if it is kept; for 0, the choice by the request's identity.
    #[inline]
    #[must_use]
    pub fn choose(&self, version: u32, client_id: u64, sequence: u64) -> Option<&Arc<Extension>> {
        if version != 0 {
            return self.named(version);
        }
        match self.more.as_ref().and_then(|more| more.canary.as_ref()) {
            Some((canary, percent)) if share_of(client_id, sequence) < *percent => Some(canary),
            _ => Some(&self.current),
        }
    }

    /// Returns the version for requests that name none and do not go to the canary.
    #[must_use]
    pub fn current(&self) -> &Arc<Extension> {
        &self.current
    }

    fn named(&self, version: u32) -> Option<&Arc<Extension>> {
        let canary = self.more.iter().flat_map(|more| &more.canary).map(|(canary, _)| canary);
        let others = self.more.iter().flat_map(|more| &more.others);
        let mut all = [&self.current].into_iter().chain(canary).chain(others);
        all.find(|extension| extension.version == version)
    }
}

/// Returns a number below 100 that is equal for every copy of a request.
#[inline]
fn share_of(client_id: u64, sequence: u64) -> u8 {
    let identity = sequence.wrapping_add(client_id.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    ((identity.wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32) % 100) as u8
}
