//! This server's shares of the limits that hold over a cluster (see [`cluster::shares`]).

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use cluster::metadata::{MetadataError, UsageRow};
use cluster::moment::Moment;
use cluster::shares::Shared;
use wire::TenantId;

use crate::control_plane::Control;
use crate::limits::{SHARES_LOOK_MS, SHARES_TENANTS_MAX, SHARES_TOLD_DIVISOR};
use crate::tenant::account::Account;
use crate::tenant::ledger::Entry;
use crate::tenant::limit::{TenantLimit, UNLIMITED};

/// Keeps this server's shares of limits until it stops. While the metadata does not answer they stay as they are.
///
/// # Errors
/// If the thread cannot be started.
pub fn share(control: &Arc<Control>, stopping: &Arc<AtomicBool>) -> io::Result<JoinHandle<()>> {
    let (control, stopping) = (Arc::clone(control), Arc::clone(stopping));
    thread::Builder::new().name("shares".to_owned()).spawn(move || {
        let mut sharing =
            LimitSharing { at: Instant::now(), requests: HashMap::new(), told: UsageRow::default() };
        while !stopping.load(Ordering::Relaxed) {
            // Others say that the metadata does not answer.
            if let Err(error) = sharing.step(&control) {
                tracing::debug!(%error, "cannot share the limits of tenants");
            }
            thread::park_timeout(Duration::from_millis(SHARES_LOOK_MS));
        }
    })
}

/// What a server remembers from one look to the next.
struct LimitSharing {
    at: Instant,
    /// Requests of each tenant so far.
    requests: HashMap<TenantId, u64>,
    /// What the others know.
    told: UsageRow,
}

/// Returns whether a limit of a tenant holds over the cluster.
fn is_limited(account: &Account) -> bool {
    TenantLimit::SHARED.iter().any(|limit| account.whole(*limit) != UNLIMITED)
}

impl LimitSharing {
    fn step(&mut self, control: &Control) -> Result<(), MetadataError> {
        let (Some(run), Some(lease)) = (control.lease_cache.run(), control.lease_cache.lease(Moment::now()))
        else {
            return Ok(());
        };
        let mut accounts = control.accounts.all();
        accounts.retain(|account| is_limited(account));
        if accounts.is_empty() && self.told.tenants.is_empty() {
            return Ok(());
        }
        let now = self.used(&accounts, control.workers.len());
        let row = UsageRow { server: run.server, tenants: now };
        if self.is_news(&row, &accounts) {
            control.metadata.usage_report(&row, lease)?;
            self.told = row;
        }
        let mut reports = control.metadata.usage_reports()?;
        let silent = control.metadata.servers()?.len().saturating_sub(reports.len());
        // Those that have reported nothing use nothing.
        reports.extend(std::iter::repeat_n(UsageRow::default(), silent));
        for account in &accounts {
            put_in_force(account, run.server, &reports);
        }
        Ok(())
    }

    /// Returns what these tenants use, those that use most if they are too many.
    fn used(&mut self, accounts: &[Arc<Account>], cores: usize) -> Vec<(u32, u64, u64)> {
        let elapsed_ms = self.at.elapsed().as_millis().max(1) as u64;
        self.at = Instant::now();
        let mut requests = HashMap::new();
        let mut used: Vec<(u32, u64, u64)> = accounts
            .iter()
            .map(|account| {
                let tenant = account.tenant;
                let now = account.ledger.sums().of(Entry::Requests);
                let before = self.requests.get(&tenant).copied().unwrap_or(now);
                requests.insert(tenant, now);
                (tenant.0, account.quota(cores).bytes(), now.saturating_sub(before) * 1_000 / elapsed_ms)
            })
            .collect();
        self.requests = requests;
        if used.len() > SHARES_TENANTS_MAX {
            used.sort_unstable_by_key(|(_, bytes, requests)| {
                std::cmp::Reverse(bytes.saturating_add(*requests))
            });
            used.truncate(SHARES_TENANTS_MAX);
        }
        used.sort_unstable();
        used
    }

    /// Returns whether others should know: a tenant came or went, or what one uses has changed by a part of its limit.
    fn is_news(&self, row: &UsageRow, accounts: &[Arc<Account>]) -> bool {
        let limits: BTreeMap<u32, &Arc<Account>> =
            accounts.iter().map(|account| (account.tenant.0, account)).collect();
        let differs = |limit: u64, now: u64, before: u64| {
            limit != UNLIMITED
                && (now.abs_diff(before) > limit / SHARES_TOLD_DIVISOR || (now == 0) != (before == 0))
        };
        let (told, now) = (&self.told.tenants, &row.tenants);
        told.len() != now.len()
            || told.iter().zip(now).any(|(before, now)| {
                let Some(account) = limits.get(&now.0) else { return true };
                let [rate, bytes] = TenantLimit::SHARED.map(|limit| account.whole(limit));
                before.0 != now.0 || differs(bytes, now.1, before.1) || differs(rate, now.2, before.2)
            })
    }
}

/// Puts this server's shares of a tenant's limits in force.
fn put_in_force(account: &Account, server: u32, reports: &[UsageRow]) {
    let of = |row: &UsageRow| {
        let index = row.tenants.binary_search_by_key(&account.tenant.0, |used| used.0);
        index.map_or((0, 0), |index| (row.tenants[index].1, row.tenants[index].2))
    };
    let own = reports.iter().find(|row| row.server == server).map_or((0, 0), of);
    let (bytes, requests): (Vec<u64>, Vec<u64>) = reports.iter().map(of).unzip();
    let rate = account.whole(TenantLimit::OperationsPerSecond);
    if rate != UNLIMITED {
        account.set_share(TenantLimit::OperationsPerSecond, Shared::of(rate, &requests).rate(own.1));
    }
    let quota = account.whole(TenantLimit::MemoryBytes);
    if quota != UNLIMITED {
        account.set_share(TenantLimit::MemoryBytes, Shared::of(quota, &bytes).quota(own.0));
    }
}
