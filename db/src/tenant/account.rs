//! The account of a tenant: its current limits, and the ledger of its usage.
//!
//! A server has one per tenant, shared by its sessions, tables and extensions, by control threads that change a limit
//! and by workers that read it. Reading a limit is a relaxed load; the next request sees a change. The store counts and
//! limits the memory of its objects, in the quota shared by its tables.

use std::collections::HashMap;
use std::mem::offset_of;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use store::{Quota, prefetch_value};
use wire::TenantId;

use super::compile_time::CompileTime;
use super::ledger::Ledger;
use super::limit::{TenantLimit, UNLIMITED};
use super::rate::{Admission, Rate};
use crate::limits::{TENANT_REMOTE_BYTES_MAX, TENANT_REMOTE_READS_MAX};

/// A tenant's reads in flight at other servers: their number, the bytes of their keys, and the bytes of received values
/// that were not taken yet.
///
/// Bounded per tenant, whatever the fate of the invocations: each share is returned when its holder is dropped, at
/// either end of the path.
#[derive(Debug, Default)]
pub struct RemoteUse {
    reads: AtomicUsize,
    bytes: AtomicUsize,
}

/// The limits and usage of one tenant. The first cache line holds the fields that every request reads.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Account {
    /// The tenant of the account.
    pub tenant: TenantId,
    home_core: AtomicU16,
    /// Whether a client reads traces of the tenant's invocations.
    traced: AtomicBool,
    /// Whether any limit differs from its default.
    has_own_limits: AtomicBool,
    changes: AtomicU64,
    limits: [AtomicU64; TenantLimit::ALL.len()],
    /// The counters of its requests.
    pub ledger: Ledger,
    operations: Rate,
    /// The compile time of its installations.
    pub compile_time: CompileTime,
    /// The reads of its invocations in flight at other servers.
    remote: RemoteUse,
    /// The memory quota, created with the first table.
    quota: OnceLock<Arc<Quota>>,
    /// The limits of [`TenantLimit::SHARED`] as they were set.
    whole: [AtomicU64; TenantLimit::SHARED.len()],
}

impl Account {
    /// Creates the account of a tenant with the default limits, with the first worker as its home.
    #[must_use]
    pub fn new(tenant: TenantId) -> Self {
        let limits = std::array::from_fn(|index| AtomicU64::new(TenantLimit::ALL[index].default_value()));
        let (ledger, operations) = (Ledger::new(), Rate::default());
        let [traced, has_own_limits] = [(); 2].map(|()| AtomicBool::new(false));
        let home_core = AtomicU16::new(0);
        let (changes, compile_time, quota) = (AtomicU64::new(0), CompileTime::default(), OnceLock::new());
        let remote = RemoteUse::default();
        let whole = TenantLimit::SHARED.map(|limit| AtomicU64::new(limit.default_value()));
        Self {
            tenant,
            home_core,
            traced,
            has_own_limits,
            changes,
            limits,
            ledger,
            operations,
            compile_time,
            remote,
            quota,
            whole,
        }
    }

    /// Creates the account of a tenant whose functions have no modules, since the tests themselves contain them.
    #[cfg(test)]
    #[must_use]
    pub fn native(tenant: TenantId) -> Arc<Self> {
        let account = Self::new(tenant);
        account.set_limit(TenantLimit::Sandbox, 0);
        Arc::new(account)
    }

    /// Returns the worker that the tenant's clients should send to.
    #[inline]
    #[must_use]
    pub fn home_core(&self) -> u16 {
        self.home_core.load(Ordering::Relaxed)
    }

    /// Moves the tenant's home. Replies name the new one from now on.
    pub fn move_home(&self, core: u16) {
        self.home_core.store(core, Ordering::Relaxed);
    }

    /// Prefetches the fields that a worker reads for each request.
    #[inline]
    pub fn prefetch(&self, worker: usize) {
        prefetch_value(&self.changes);
        self.ledger.prefetch_place(worker);
    }

    /// Returns the value of a limit that is in force here: of one that a cluster's servers share, this server's share.
    #[inline]
    #[must_use]
    pub fn limit(&self, limit: TenantLimit) -> u64 {
        self.limits[limit as usize].load(Ordering::Relaxed)
    }

    /// Returns the value of a limit as it was set.
    #[must_use]
    pub fn whole(&self, limit: TenantLimit) -> u64 {
        let shared = TenantLimit::SHARED.iter().position(|shared| *shared == limit);
        shared.map_or_else(|| self.limit(limit), |index| self.whole[index].load(Ordering::Relaxed))
    }

    /// Returns whether any limit but the form of invocations was set to something other than its default.
    #[inline]
    #[must_use]
    pub fn has_own_limits(&self) -> bool {
        self.has_own_limits.load(Ordering::Relaxed)
    }

    /// Charges native operations and invocations to the tenant's rate per second, over all cores.
    #[inline]
    #[must_use]
    pub fn admit(&self, now_us: u64, operations: u64) -> Admission {
        match self.limit(TenantLimit::OperationsPerSecond) {
            UNLIMITED => Admission::ALL,
            per_second => self.operations.take(per_second, now_us, operations),
        }
    }

    /// Charges operations that come with an admitted one, such as the writes of a commit beyond its first.
    #[inline]
    pub fn charge(&self, now_us: u64, operations: u64) {
        match self.limit(TenantLimit::OperationsPerSecond) {
            UNLIMITED => {}
            per_second => self.operations.charge(per_second, now_us, operations),
        }
    }

    /// Returns the number of limit changes, which invalidate cached limits.
    #[inline]
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Returns whether a client reads traces of the tenant's invocations.
    #[inline]
    #[must_use]
    pub fn is_traced(&self) -> bool {
        self.traced.load(Ordering::Relaxed)
    }

    /// Sets whether a client reads traces of the tenant's invocations.
    pub fn set_traced(&self, traced: bool) {
        self.traced.store(traced, Ordering::Relaxed);
    }

    /// Sets a limit at a server that is alone. The caller has checked [`TenantLimit::allows`], and no table is created meanwhile.
    pub fn set_limit(&self, limit: TenantLimit, value: u64) {
        self.set_limit_among(limit, value, 1);
    }

    /// Sets a limit, as [`Account::set_limit`], among so many servers. Of one that they share, this server has what it had until it
    /// knows its new share, and at most an even part.
    pub fn set_limit_among(&self, limit: TenantLimit, value: u64, servers: u64) {
        let mut share = value;
        if let Some(index) = TenantLimit::SHARED.iter().position(|shared| *shared == limit) {
            self.whole[index].store(value, Ordering::Relaxed);
            if servers > 1 && value != UNLIMITED {
                share = self.limit(limit).min((value / servers).max(limit.bounds().0));
            }
        }
        self.set_share(limit, share);
        let is_own = |limit: &TenantLimit| {
            *limit != TenantLimit::Sandbox && self.whole(*limit) != limit.default_value()
        };
        self.has_own_limits.store(TenantLimit::ALL.iter().any(is_own), Ordering::Relaxed);
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// Puts this server's share of a limit in force.
    pub fn set_share(&self, limit: TenantLimit, value: u64) {
        self.limits[limit as usize].store(value, Ordering::Relaxed);
        if limit == TenantLimit::MemoryBytes
            && let Some(quota) = self.quota.get()
        {
            quota.set_limit(value);
        }
    }

    /// Returns the bytes of its objects in the log.
    pub fn object_bytes(&self) -> u64 {
        self.quota.get().map_or(0, |quota| quota.bytes())
    }

    /// Returns the quota of its tables, in a store with `cores` cores.
    pub fn quota(&self, cores: usize) -> &Arc<Quota> {
        self.quota.get_or_init(|| Arc::new(Quota::new(cores, self.limit(TenantLimit::MemoryBytes))))
    }
}

const _: () = assert!(offset_of!(Account, limits) + (TenantLimit::Invocations as usize + 1) * 8 <= 64);

/// The accounts of all tenants of a server. Only control threads use it.
#[derive(Clone, Debug, Default)]
pub struct Accounts {
    by_tenant: Arc<Mutex<HashMap<TenantId, Arc<Account>>>>,
    /// The number of workers among which tenants are distributed.
    workers: u16,
}

impl Accounts {
    /// Creates an empty set for a server with `workers` workers.
    #[must_use]
    pub fn over(workers: usize) -> Self {
        Self { by_tenant: Arc::default(), workers: u16::try_from(workers).unwrap_or(u16::MAX) }
    }

    /// Returns the account of a tenant, creating it on first use. The homes of new tenants rotate over the workers.
    #[must_use]
    pub fn of(&self, tenant: TenantId) -> Arc<Account> {
        let mut accounts = self.by_tenant.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = || {
            let account = Account::new(tenant);
            account.move_home((tenant.0 % u32::from(self.workers.max(1))) as u16);
            Arc::new(account)
        };
        Arc::clone(accounts.entry(tenant).or_insert_with(fresh))
    }

    /// Returns all accounts, in the order of their tenants.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<Account>> {
        let accounts = self.by_tenant.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<_> = accounts.values().cloned().collect();
        all.sort_by_key(|account| account.tenant);
        all
    }

    /// Forgets a removed tenant.
    pub fn forget(&self, tenant: TenantId) {
        self.by_tenant.lock().unwrap_or_else(PoisonError::into_inner).remove(&tenant);
    }
}

/// One read in flight.
#[derive(Debug)]
pub struct RemotePlace {
    key_bytes: usize,
    account: Arc<Account>,
}

impl RemotePlace {
    /// Reserves another read with a key of `key_bytes` bytes; `None` if the tenant has its maximum.
    #[must_use]
    pub fn take(account: &Arc<Account>, key_bytes: usize) -> Option<Self> {
        if !take(&account.remote.reads, 1, TENANT_REMOTE_READS_MAX) {
            return None;
        }
        if !take(&account.remote.bytes, key_bytes, TENANT_REMOTE_BYTES_MAX) {
            account.remote.reads.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        Some(Self { key_bytes, account: Arc::clone(account) })
    }

    /// Returns the tenant's account.
    #[must_use]
    pub fn account(&self) -> &Arc<Account> {
        &self.account
    }
}

impl Drop for RemotePlace {
    fn drop(&mut self) {
        self.account.remote.reads.fetch_sub(1, Ordering::Relaxed);
        self.account.remote.bytes.fetch_sub(self.key_bytes, Ordering::Relaxed);
    }
}

/// A received value.
#[derive(Debug)]
pub struct RemoteValue {
    bytes: Box<[u8]>,
    account: Arc<Account>,
}

impl RemoteValue {
    /// Keeps a copy; `None` if the tenant has its maximum of bytes.
    #[must_use]
    pub fn keep(account: &Arc<Account>, bytes: &[u8]) -> Option<Self> {
        let has_room = take(&account.remote.bytes, bytes.len(), TENANT_REMOTE_BYTES_MAX);
        has_room.then(|| Self { bytes: bytes.into(), account: Arc::clone(account) })
    }

    /// Returns the value.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for RemoteValue {
    fn drop(&mut self) {
        self.account.remote.bytes.fetch_sub(self.bytes.len(), Ordering::Relaxed);
    }
}

fn take(from: &AtomicUsize, amount: usize, most: usize) -> bool {
    let more = |used: usize| Some(used + amount).filter(|used| *used <= most);
    from.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use wire::TenantId;

    use super::{Account, Accounts, RemotePlace, RemoteValue};
    use crate::limits::{TENANT_REMOTE_BYTES_MAX, TENANT_REMOTE_READS_MAX};
    use crate::tenant::limit::{TenantLimit, UNLIMITED};

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
    fn of_a_new_limit_that_servers_share_each_has_an_even_part_at_first_and_no_more_than_before() {
        let (account, rate) = (Account::new(TenantId(3)), TenantLimit::OperationsPerSecond);
        account.set_limit_among(rate, 900, 3);
        assert_eq!((account.limit(rate), account.whole(rate)), (300, 900));
        account.set_share(rate, 50);
        account.set_limit_among(rate, 600, 3);
        assert_eq!((account.limit(rate), account.whole(rate)), (50, 600));
        account.set_limit_among(rate, 2, 3);
        assert_eq!(account.limit(rate), 1, "nobody is refused everything");
        account.set_limit_among(rate, UNLIMITED, 3);
        assert_eq!(account.limit(rate), UNLIMITED);
        account.set_limit_among(TenantLimit::MemoryBytes, 0, 3);
        assert_eq!(account.limit(TenantLimit::MemoryBytes), 0);
        account.set_limit_among(TenantLimit::Weight, 30, 3);
        assert_eq!(account.limit(TenantLimit::Weight), 30, "each server has all of it");
    }

    #[test]
    fn tenants_begin_at_home_one_by_one_at_each_worker() {
        let accounts = Accounts::over(3);
        let homes: Vec<u16> = (1..5).map(|tenant| accounts.of(TenantId(tenant)).home_core()).collect();
        assert_eq!(homes, [1, 2, 0, 1]);
        accounts.of(TenantId(1)).move_home(2);
        assert_eq!(accounts.of(TenantId(1)).home_core(), 2);
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

    #[test]
    fn a_tenant_has_so_many_reads_and_bytes_under_way_and_no_more_until_some_are_given_back() {
        let account = Arc::new(Account::new(TenantId(1)));
        let mut places: Vec<_> =
            (0..TENANT_REMOTE_READS_MAX).map(|_| RemotePlace::take(&account, 8)).collect();
        assert!(places.iter().all(Option::is_some) && RemotePlace::take(&account, 8).is_none());
        places.pop();
        assert!(RemotePlace::take(&account, TENANT_REMOTE_BYTES_MAX).is_none());
        assert!(RemotePlace::take(&account, 8).is_some());
        places.clear();
        let value = vec![1; 1 << 20];
        let kept = || RemoteValue::keep(&account, &value);
        let mut values: Vec<_> = (0..TENANT_REMOTE_BYTES_MAX >> 20).map(|_| kept()).collect();
        assert!(values.iter().all(Option::is_some) && kept().is_none());
        values.pop();
        assert_eq!(kept().expect("room again").bytes(), value);
    }
}
