//! Balances home cores: moves a tenant's home from a full worker to one with room.
//!
//! ```text
//!   every sample:  busy time of each worker, work of each tenant ─▶ work of the tenants at home on each worker
//!   the fullest is nearly always busy, and another has less than half of its work: uneven
//!   uneven in some consecutive samples ─▶ move the tenant that balances best
//! ```
//! A move is one store to the tenant's account. Answers then name the new home, clients send there from the next frame
//! on, and frames already under way to the old home are served there, because any worker serves any request.
//!
//! To avoid oscillation, a move must lower the fullest worker's work by at least a tenth, and a tenant that moved
//! stays for a while. A tenant that fills a worker alone stays; others help that worker by stealing, which reacts
//! quickly to uneven load, whereas a move has a lasting effect. Only the housekeeping thread calls this.

use std::collections::HashMap;
use std::sync::Arc;

use wire::TenantId;

use crate::limits::{
    HOME_GAIN_PERCENT, HOME_STAYS_US, HOMES_LOPSIDED_LOOKS, NATIVE_REQUEST_CYCLES, WORKER_FULL_PERCENT,
};
use crate::metrics::{Counter, WorkerMetrics};
use crate::tenant::account::Account;
use crate::tenant::ledger::Entry;

/// The work that a tenant caused.
#[derive(Clone, Copy, Debug)]
pub struct TenantWork {
    /// The tenant.
    pub tenant: TenantId,
    /// Its home core.
    pub home: u16,
    /// Cycles since the server started, approximately.
    pub cycles: u64,
}

/// A sample of the load. All amounts count from the start of the server.
#[derive(Clone, Debug, Default)]
pub struct Look {
    /// Time of the sample, in microseconds.
    pub at_us: u64,
    /// Busy time of each worker, in microseconds.
    pub busy_us: Vec<u64>,
    /// All tenants.
    pub tenants: Vec<TenantWork>,
}

impl Look {
    /// Takes a sample from counters and ledgers.
    #[must_use]
    pub fn of(now_us: u64, workers: &[Arc<WorkerMetrics>], accounts: &[Arc<Account>]) -> Self {
        let busy_us = workers.iter().map(|worker| worker.value(Counter::BusyUs)).collect();
        let work = |account: &Arc<Account>| {
            let sums = account.ledger.sums();
            let native = sums.of(Entry::Requests).saturating_mul(NATIVE_REQUEST_CYCLES);
            let cycles = native.saturating_add(sums.of(Entry::InvocationCycles));
            TenantWork { tenant: account.tenant, home: account.home_core(), cycles }
        };
        Self { at_us: now_us, busy_us, tenants: accounts.iter().map(work).collect() }
    }
}

/// A decision to change a tenant's home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// The tenant.
    pub tenant: TenantId,
    /// Its present home.
    pub from: u16,
    /// Its new home.
    pub to: u16,
}

/// The balancer's memory between samples.
#[derive(Debug, Default)]
pub struct HomeBalancer {
    before: Look,
    cycles_before: HashMap<TenantId, u64>,
    moved_us: HashMap<TenantId, u64>,
    /// Consecutive samples that found the load uneven.
    lopsided: u32,
}

impl HomeBalancer {
    /// Evaluates a sample and returns the tenant to move. It moves at most one, so that the next sample shows the
    /// effect.
    pub fn look(&mut self, look: Look) -> Option<Move> {
        let work: Vec<(TenantWork, u64)> = look
            .tenants
            .iter()
            .map(|tenant| {
                let before = self.cycles_before.get(&tenant.tenant).copied().unwrap_or(tenant.cycles);
                (*tenant, tenant.cycles.saturating_sub(before))
            })
            .collect();
        self.cycles_before = look.tenants.iter().map(|tenant| (tenant.tenant, tenant.cycles)).collect();
        self.moved_us.retain(|_, moved_us| look.at_us.saturating_sub(*moved_us) < HOME_STAYS_US);
        let before = std::mem::replace(&mut self.before, look);
        let Some(imbalance) = imbalance(&before, &self.before, &work) else {
            self.lopsided = 0;
            return None;
        };
        self.lopsided += 1;
        if self.lopsided < HOMES_LOPSIDED_LOOKS {
            return None;
        }
        let may_move = |tenant: TenantId| !self.moved_us.contains_key(&tenant);
        let chosen = choose(&imbalance, &work, may_move)?;
        self.moved_us.insert(chosen.tenant, self.before.at_us);
        self.lopsided = 0;
        Some(chosen)
    }
}

/// The fullest worker and the emptiest one, each with the work of the tenants at home there.
struct Imbalance {
    from: (u16, u64),
    to: (u16, u64),
}

/// Returns the imbalance, if there is one.
fn imbalance(before: &Look, now: &Look, work: &[(TenantWork, u64)]) -> Option<Imbalance> {
    let mut at_home = vec![0_u64; now.busy_us.len()];
    for (tenant, cycles) in work {
        *at_home.get_mut(usize::from(tenant.home))? += cycles;
    }
    let homes = || at_home.iter().enumerate().map(|(index, cycles)| (index as u16, *cycles));
    let from = homes().max_by_key(|(_, cycles)| *cycles)?;
    let to = homes().min_by_key(|(_, cycles)| *cycles)?;
    let index = usize::from(from.0);
    let busy_us = now.busy_us[index].saturating_sub(before.busy_us.get(index).copied()?);
    let is_full = busy_us * 100 >= now.at_us.saturating_sub(before.at_us) * WORKER_FULL_PERCENT;
    (is_full && to.1 * 2 < from.1).then_some(Imbalance { from, to })
}

/// Chooses the tenant whose move leaves the fuller of the two workers with the least work. A move leaves a warm cache
/// behind, so a part of the tenant's work counts against it: of two moves with the same effect the smaller one is
/// chosen.
fn choose(
    imbalance: &Imbalance,
    work: &[(TenantWork, u64)],
    may_move: impl Fn(TenantId) -> bool,
) -> Option<Move> {
    let (from, to) = (imbalance.from, imbalance.to);
    let fuller_after = |cycles: u64| (from.1 - cycles).max(to.1 + cycles);
    let candidates = work.iter().filter(|(tenant, _)| tenant.home == from.0 && may_move(tenant.tenant));
    let (tenant, cycles) = candidates
        .min_by_key(|(_, cycles)| fuller_after(*cycles).saturating_add(cycles * HOME_GAIN_PERCENT / 100))?;
    let gain = from.1.saturating_sub(fuller_after(*cycles));
    (gain * 100 >= from.1 * HOME_GAIN_PERCENT && gain > 0).then_some(Move {
        tenant: tenant.tenant,
        from: from.0,
        to: to.0,
    })
}

#[cfg(test)]
mod tests;
