//! A tenant's reads in flight at other servers: their number, the bytes of their keys, and the bytes of received values
//! that were not taken yet. Bounded per tenant, whatever the fate of the invocations: each share is returned when its
//! holder is dropped, at either end of the path.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::account::Account;
use crate::limits::{TENANT_REMOTE_BYTES_MAX, TENANT_REMOTE_READS_MAX};

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

    use super::{RemotePlace, RemoteValue};
    use crate::limits::{TENANT_REMOTE_BYTES_MAX, TENANT_REMOTE_READS_MAX};
    use crate::tenant::account::Account;

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
