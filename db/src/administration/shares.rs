//! This server's shares of the limits that hold over a cluster (see [`cluster::shares`]).

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use cluster::metadata::{MetadataError, UsageRow};
use cluster::moment::Moment;
use cluster::shares::{self, Shared};
use wire::TenantId;

use crate::control_plane::Control;
use crate::limits::{SHARES_LOOK_MS, SHARES_START_MS, SHARES_TENANTS_MAX, SHARES_TOLD_DIVISOR};
use crate::sync::lock;
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
        let mut sharing = LimitSharing::new();
        while !stopping.load(Ordering::Relaxed) {
            let is_held = control.lease_cache.is_held(Moment::now());
            // Others say that the metadata does not answer.
            if let Err(error) = sharing.step(&control) {
                tracing::debug!(%error, "cannot share the limits of tenants");
            }
            thread::park_timeout(Duration::from_millis(if is_held {
                SHARES_LOOK_MS
            } else {
                SHARES_START_MS
            }));
        }
    })
}

/// What a server remembers from one look to the next.
struct LimitSharing {
    /// The last look but those that a changed limit caused in between.
    at: Instant,
    /// Requests of each tenant until that look.
    requests: HashMap<TenantId, u64>,
    /// What the others know.
    told: UsageRow,
    /// What the last look came to.
    computed: HashMap<TenantId, ComputedShares>,
}

/// Shares that were computed of limits.
#[derive(Clone, Copy)]
struct ComputedShares {
    /// The limits, in the order of [`TenantLimit::SHARED`].
    limits: [u64; TenantLimit::SHARED.len()],
    /// The shares, in the same order.
    shares: [u64; TenantLimit::SHARED.len()],
}

/// Returns whether a limit of a tenant holds over the cluster.
fn is_limited(account: &Account) -> bool {
    TenantLimit::SHARED.iter().any(|limit| account.whole(*limit) != UNLIMITED)
}

impl LimitSharing {
    fn new() -> Self {
        let (requests, computed) = (HashMap::new(), HashMap::new());
        Self { at: Instant::now(), requests, told: UsageRow::default(), computed }
    }

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
        let elapsed = self.at.elapsed();
        // Too soon to measure a rate, and for others to have looked.
        let is_early = elapsed < Duration::from_millis(SHARES_LOOK_MS) * 3 / 4;
        let row = UsageRow { server: run.server, tenants: self.used(&accounts, elapsed, is_early) };
        let mut reports = control.metadata.usage_reports()?;
        // It ends with the lease under which it was made.
        let is_told = reports.iter().any(|report| report.server == run.server);
        if !is_told || self.is_news(&row, &accounts) {
            control.metadata.usage_report(&row, lease)?;
            reports.retain(|report| report.server != run.server);
            reports.push(row.clone());
            self.told = row;
        }
        let silent = control.metadata.servers()?.len().saturating_sub(reports.len());
        // Those that have reported nothing use nothing.
        reports.extend(std::iter::repeat_n(UsageRow::default(), silent));
        // Nobody changes limits meanwhile.
        let _changing = lock(&control.changing);
        let before = std::mem::take(&mut self.computed);
        for account in &accounts {
            let before = before.get(&account.tenant).copied();
            let computed = put_in_force(account, run.server, &reports, before, is_early);
            self.computed.insert(account.tenant, computed);
        }
        Ok(())
    }

    /// Returns what these tenants use, those that use most if they are too many; early the rates of the last look.
    fn used(&mut self, accounts: &[Arc<Account>], elapsed: Duration, is_early: bool) -> Vec<(u32, u64, u64)> {
        let elapsed_ms = elapsed.as_millis().max(1) as u64;
        let mut requests = HashMap::new();
        let mut used: Vec<(u32, u64, u64)> = accounts
            .iter()
            .map(|account| {
                let tenant = account.tenant;
                let now = account.ledger.sums().of(Entry::Requests);
                let before = self.requests.get(&tenant).copied().unwrap_or(now);
                requests.insert(tenant, if is_early { before } else { now });
                let rate = if is_early {
                    of_tenant(&self.told, tenant).1
                } else {
                    now.saturating_sub(before) * 1_000 / elapsed_ms
                };
                (tenant.0, account.object_bytes(), rate)
            })
            .collect();
        self.requests = requests;
        if !is_early {
            self.at = Instant::now();
        }
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

/// Returns what a report says of a tenant: bytes, and requests per second.
fn of_tenant(row: &UsageRow, tenant: TenantId) -> (u64, u64) {
    let index = row.tenants.binary_search_by_key(&tenant.0, |used| used.0);
    index.map_or((0, 0), |index| (row.tenants[index].1, row.tenants[index].2))
}

/// Puts this server's shares of a tenant's limits in force: smaller ones at once, larger ones as far as the look before came to them
/// as well, unless this look is early. Returns what the next look needs of it.
fn put_in_force(
    account: &Account,
    server: u32,
    reports: &[UsageRow],
    before: Option<ComputedShares>,
    is_early: bool,
) -> ComputedShares {
    let of = |row: &UsageRow| of_tenant(row, account.tenant);
    let own = reports.iter().find(|row| row.server == server).map_or((0, 0), of);
    let (bytes, requests): (Vec<u64>, Vec<u64>) = reports.iter().map(of).unzip();
    let limits = TenantLimit::SHARED.map(|limit| account.whole(limit));
    let [rate, quota] = limits;
    let mut shares = [Shared::of(rate, &requests).rate(own.1), Shared::of(quota, &bytes).quota(own.0)];
    let before = before.filter(|before| before.limits == limits);
    for (index, limit) in
        TenantLimit::SHARED.into_iter().enumerate().filter(|(index, _)| limits[*index] != UNLIMITED)
    {
        let before = before.map(|before| before.shares[index]);
        let share = shares::next(account.limit(limit), shares[index], before.filter(|_| !is_early));
        account.set_share(limit, share);
        if is_early {
            shares[index] = shares[index].min(before.unwrap_or(u64::MAX));
        }
    }
    ComputedShares { limits, shares }
}
