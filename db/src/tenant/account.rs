//! The account of a tenant: the limits that hold for it now, and the ledger of what it did.
//!
//! One for each tenant of a server, shared by its sessions, tables and extensions, by control threads that
//! change a limit and by workers that read it. Reading a limit is a relaxed load; a change is seen by the next
//! request. The memory of its objects is counted and limited by the store, in the quota that its tables share.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use store::Quota;

use super::TenantId;
use super::compile_time::CompileTime;
use super::ledger::Ledger;
use super::limit::{TenantLimit, UNLIMITED};
use super::rate::{Admission, Rate};

/// See the file's head.
#[derive(Debug)]
pub struct Account {
    /// Whose it is.
    pub tenant: TenantId,
    /// What its requests came to.
    pub ledger: Ledger,
    /// Whether somebody reads traces of the tenant's invocations.
    traced: AtomicBool,
    limits: [AtomicU64; TenantLimit::ALL.len()],
    operations: Rate,
    changes: AtomicU64,
    /// What its installations used.
    pub compile_time: CompileTime,
    /// Made with the first table.
    quota: OnceLock<Arc<Quota>>,
}

impl Account {
    /// The account of a tenant with the default limits.
    #[must_use]
    pub fn new(tenant: TenantId) -> Self {
        let limits = std::array::from_fn(|index| AtomicU64::new(TenantLimit::ALL[index].default_value()));
        let (ledger, operations) = (Ledger::new(), Rate::default());
        let traced = AtomicBool::new(false);
        let (changes, compile_time, quota) = (AtomicU64::new(0), CompileTime::default(), OnceLock::new());
        Self { tenant, ledger, traced, limits, operations, changes, compile_time, quota }
    }

    /// What holds now.
    #[inline]
    #[must_use]
    pub fn limit(&self, limit: TenantLimit) -> u64 {
        self.limits[limit as usize].load(Ordering::Relaxed)
    }

    /// Takes so many native operations and invocations from what the tenant may make a second, over all cores.
    #[inline]
    #[must_use]
    pub fn admit(&self, now_us: u64, operations: u64) -> Admission {
        match self.limit(TenantLimit::OperationsPerSecond) {
            UNLIMITED => Admission::ALL,
            per_second => self.operations.take(per_second, now_us, operations),
        }
    }

    /// How often a limit was set: whoever keeps what it read looks here whether it still holds.
    #[inline]
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Whether somebody reads traces of the tenant's invocations.
    #[inline]
    #[must_use]
    pub fn is_traced(&self) -> bool {
        self.traced.load(Ordering::Relaxed)
    }

    /// Says whether somebody reads traces of the tenant's invocations.
    pub fn set_traced(&self, traced: bool) {
        self.traced.store(traced, Ordering::Relaxed);
    }

    /// Sets a limit. The caller has looked at [`TenantLimit::allows`], and no table is made meanwhile.
    pub fn set_limit(&self, limit: TenantLimit, value: u64) {
        self.limits[limit as usize].store(value, Ordering::Relaxed);
        self.changes.fetch_add(1, Ordering::Release);
        if limit == TenantLimit::MemoryBytes
            && let Some(quota) = self.quota.get()
        {
            quota.set_limit(value);
        }
    }

    /// What its tables are made within, in a store of so many cores.
    pub fn quota(&self, cores: usize) -> &Arc<Quota> {
        self.quota.get_or_init(|| Arc::new(Quota::new(cores, self.limit(TenantLimit::MemoryBytes))))
    }
}

/// The accounts of all tenants of a server. Control threads come here; workers never do.
#[derive(Clone, Debug, Default)]
pub struct Accounts {
    by_tenant: Arc<Mutex<HashMap<TenantId, Arc<Account>>>>,
}

impl Accounts {
    /// The account of a tenant; a fresh one at the first time.
    #[must_use]
    pub fn of(&self, tenant: TenantId) -> Arc<Account> {
        let mut accounts = self.by_tenant.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(accounts.entry(tenant).or_insert_with(|| Arc::new(Account::new(tenant))))
    }

    /// All accounts, in the order of their tenants.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<Account>> {
        let accounts = self.by_tenant.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<_> = accounts.values().cloned().collect();
        all.sort_by_key(|account| account.tenant);
        all
    }

    /// Forgets a tenant that was dropped.
    pub fn forget(&self, tenant: TenantId) {
        self.by_tenant.lock().unwrap_or_else(PoisonError::into_inner).remove(&tenant);
    }
}

#[cfg(test)]
mod tests {
    use super::{Account, Accounts};
    use crate::tenant::TenantId;
    use crate::tenant::limit::TenantLimit;

    #[test]
    fn a_limit_is_the_default_until_it_is_set() {
        let account = Account::new(TenantId(3));
        let limit = TenantLimit::InvocationCpuUs;
        assert_eq!(account.limit(limit), limit.default_value());
        account.set_limit(limit, 500);
        assert_eq!(account.limit(limit), 500);
        assert_eq!(account.limit(TenantLimit::Weight), TenantLimit::Weight.default_value());
    }

    #[test]
    fn a_tenant_has_one_account_until_it_is_forgotten() {
        let accounts = Accounts::default();
        accounts.of(TenantId(2)).set_limit(TenantLimit::Weight, 7);
        assert_eq!(accounts.clone().of(TenantId(2)).limit(TenantLimit::Weight), 7);
        let _ = accounts.of(TenantId(1));
        let tenants: Vec<u32> = accounts.all().iter().map(|account| account.tenant.0).collect();
        assert_eq!(tenants, [1, 2]);
        accounts.forget(TenantId(2));
        assert_ne!(accounts.of(TenantId(2)).limit(TenantLimit::Weight), 7);
    }
}
