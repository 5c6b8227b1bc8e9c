//! Extensions: functions of tenants, compiled from their source, loaded into the server, run beside the data.
//!
//! ```text
//!   registry    source -> artefact (crate builder) -> library (native) -> Extension     control threads
//!   lineup      the versions of an extension, and which of them a request gets          workers
//!   invocation  start, poll on a stack of its own, commit or forget, answer             workers
//!     access      what a running invocation may reach: tables, write set, spending
//!     allowance   what it may use, by the limits of its tenant
//!     host        the calls that an extension makes into the server
//!     services    its allocator, and the way out of a panic
//!     room        its memory
//!   steadiness  how closely the polls of a version are watched
//!   measures    how invocations of a version ended, and how long they ran               both
//!   trace       what happened to single invocations, while somebody reads it             both
//! ```
//!
//! An [`Extension`] is immutable and shared. A new version is another one; invocations that run keep theirs, and
//! earlier versions stay for as long as they are kept.
//! The library is unloaded when the last reference goes, which the registry sees to (see [`registry`]).

pub mod access;
pub mod active_versions;
pub mod allowance;
pub mod host;
pub mod invocation;
pub mod invocation_memory;
pub mod log;
pub mod native;
mod preemption_backoff;
pub mod registry;
pub mod services;
pub mod trace;
pub mod version_metrics;

#[cfg(test)]
pub(crate) mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use store::{prefetch_lines, prefetch_value};

use crate::limits::STEADY_SLICES;
use crate::tenant::TenantId;
use crate::tenant::account::Account;
use log::ExtensionLog;
use native::Library;
use preemption_backoff::PreemptionBackoff;
use version_metrics::VersionMetrics;

/// What a function may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallMode {
    /// Reads alone; is not recorded for exactly-once.
    Read,
    /// Reads and writes; its writes are applied together when it ends well.
    Write,
}

/// A function that can be invoked.
#[derive(Clone, Debug)]
pub struct Function {
    /// Its name in the source.
    pub name: Box<str>,
    /// [`wire::function_hash`] of the name.
    pub hash: u32,
    /// What it may do.
    pub mode: CallMode,
    /// Its entry in the library.
    pub(crate) run: native::Run,
}

/// One version of an extension, loaded. What every invocation reads lies on the first cache line.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Extension {
    /// Who pays: the account of the tenant.
    pub account: Arc<Account>,
    /// What its invocations came to.
    pub measures: Arc<VersionMetrics>,
    functions: Arc<[Function]>,
    steadiness: PreemptionBackoff,
    /// Who may invoke it, and whose tables it reaches: the owner, or a tenant to whom it is granted.
    pub tenant: TenantId,
    /// Number of (tenant, name); all versions share it.
    pub id: u32,
    /// Counts the installations, from 1.
    pub version: u32,
    retired: AtomicBool,
    /// Where its log lines go: the tenant's.
    pub log: Arc<ExtensionLog>,
    /// Unique among the extensions of the tenant; of a granted one `owner/name`.
    pub name: Box<str>,
    library: Arc<Library>,
}

const _: () = assert!(std::mem::offset_of!(Extension, log) <= 64);

/// Lines of a function's code that are asked for ahead; the processor goes on by itself.
const CODE_LINES_AHEAD: usize = 8;

/// How often any extension was retired: a worker that sees it change looks through what it keeps.
static RETIREMENTS: AtomicU64 = AtomicU64::new(0);

impl Extension {
    /// A version of an extension over a loaded library.
    #[must_use]
    pub fn new(
        id: u32,
        account: Arc<Account>,
        name: &str,
        version: u32,
        library: Arc<Library>,
        log: Arc<ExtensionLog>,
    ) -> Self {
        let (measures, retired) = (Arc::new(VersionMetrics::new()), AtomicBool::new(false));
        let (tenant, steadiness) = (account.tenant, PreemptionBackoff::new());
        let (name, functions) = (name.into(), library.functions());
        Self { account, measures, functions, steadiness, tenant, id, version, retired, log, name, library }
    }

    /// The same version for another tenant, to whom it is granted: it reaches that tenant's tables and logs to
    /// it, under a number and a name of its own. What its invocations come to is counted for both together.
    #[must_use]
    pub fn granted(&self, id: u32, account: Arc<Account>, name: &str, log: Arc<ExtensionLog>) -> Self {
        let measures = Arc::clone(&self.measures);
        Self { measures, ..Self::new(id, account, name, self.version, Arc::clone(&self.library), log) }
    }

    /// The functions in the order of the source.
    #[inline]
    #[must_use]
    pub fn functions(&self) -> &[Function] {
        &self.functions
    }

    /// The line of the function's doc comment that says what it takes, `Arguments: ..`; empty when there is none.
    #[must_use]
    pub fn arguments(&self, function: usize) -> &str {
        self.library.arguments(function)
    }

    /// The index of the function of this [`wire::function_hash`].
    #[inline]
    #[must_use]
    pub fn function(&self, hash: u32) -> Option<usize> {
        self.functions().iter().position(|function| function.hash == hash)
    }

    /// Asks for what every invocation reads of it.
    #[inline]
    pub fn prefetch(&self) {
        prefetch_value(&self.account);
    }

    /// Asks for what its pointers lead to; wants itself in the cache.
    #[inline]
    pub fn prefetch_behind(&self, worker: usize) {
        if let Some(function) = self.functions.first() {
            prefetch_value(function);
        }
        self.measures.prefetch_place(worker);
    }

    /// Asks for what those lead to, and for the code of a function.
    #[inline]
    pub fn prefetch_last(&self, worker: usize, function: u32) {
        self.measures.prefetch(worker);
        if let Some(index) = self.function(function) {
            prefetch_lines(self.functions[index].run as *const u8, CODE_LINES_AHEAD);
        }
    }

    /// How many slices ahead of its polls the preemption timer is to be kept: few until it has shown that they
    /// are short.
    #[inline]
    #[must_use]
    pub fn slices_ahead(&self) -> u64 {
        if self.steadiness.is_steady() { STEADY_SLICES } else { 1 }
    }

    /// A poll ended within its slice.
    #[inline]
    pub fn note_short_poll(&self, now_us: u64) {
        self.steadiness.note_short_poll(now_us);
    }

    /// A poll used up its slice, and so many in all before it was noticed: the next ones are watched closely.
    pub fn note_overrun(&self, now_us: u64, slices: u64) {
        self.steadiness.note_overrun(now_us, slices);
    }

    /// Marks this version as kept no longer: workers let go of what they keep of it.
    pub fn retire(&self) {
        self.retired.store(true, Ordering::Release);
        RETIREMENTS.fetch_add(1, Ordering::Release);
    }

    /// Whether it is kept no longer.
    #[must_use]
    pub fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Acquire)
    }
}

/// How often any extension of the process was retired.
#[inline]
#[must_use]
pub fn retirements() -> u64 {
    RETIREMENTS.load(Ordering::Acquire)
}
