//! Where tenants are at home, and when one moves: from a worker that is full to one with room.
//!
//! ```text
//!   every look:  time that each worker was busy, work that each tenant gave ─▶ work of the tenants at home there
//!   the fullest is nearly always busy, and another has less than half of its work: lopsided
//!   lopsided for some looks in a row ─▶ the tenant whose move evens it out best
//! ```
//! A move is one store to the tenant's account. Answers then name the new home, clients send there from the next
//! frame on, and what is on its way to the old home is served there: any worker serves any request.
//!
//! Nothing flaps: a move has to lower the fullest worker's work by a tenth at least, and a tenant that moved
//! stays for a while. A tenant that fills a worker by itself stays; others help that one by stealing, which is
//! the quick answer to a lopsided load, as a move is the lasting one. Called by the housekeeping thread alone.

use std::collections::HashMap;
use std::sync::Arc;

use crate::limits::{
    HOME_GAIN_PERCENT, HOME_STAYS_US, HOMES_LOPSIDED_LOOKS, NATIVE_REQUEST_CYCLES, WORKER_FULL_PERCENT,
};
use crate::metrics::{Counter, WorkerMetrics};
use crate::tenant::TenantId;
use crate::tenant::account::Account;
use crate::tenant::ledger::Entry;

/// What a tenant gave its workers to do.
#[derive(Clone, Copy, Debug)]
pub struct TenantWork {
    /// The tenant.
    pub tenant: TenantId,
    /// Its home.
    pub home: u16,
    /// Cycles since the server started, roughly.
    pub cycles: u64,
}

/// What is looked at. All amounts count from the start of the server.
#[derive(Clone, Debug, Default)]
pub struct Look {
    /// When, in microseconds.
    pub at_us: u64,
    /// How long each worker was busy, in microseconds.
    pub busy_us: Vec<u64>,
    /// All tenants.
    pub tenants: Vec<TenantWork>,
}

impl Look {
    /// What counters and ledgers say now.
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

/// A tenant is to have another home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// Which.
    pub tenant: TenantId,
    /// Where it was.
    pub from: u16,
    /// Where it will be.
    pub to: u16,
}

/// What is remembered from look to look.
#[derive(Debug, Default)]
pub struct HomeBalancer {
    before: Look,
    cycles_before: HashMap<TenantId, u64>,
    moved_us: HashMap<TenantId, u64>,
    /// Looks in a row that found the load lopsided.
    lopsided: u32,
}

impl HomeBalancer {
    /// Looks, and says who is to move. At most one at a time, so that the next look sees what it brought.
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

/// What is lopsided, if anything is.
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

/// The tenant whose move leaves the fuller of the two with the least work. What moves leaves a warm cache behind: a
/// part of its work counts against it, so that of two moves that bring about the same the smaller one is made.
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
