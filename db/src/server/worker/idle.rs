//! The idle part of a worker: it looks for work at loaded siblings, then rests.
//!
//! A worker with work publishes its load and wakes a sibling if it needs help. A worker without work looks at a loaded
//! sibling, at most as often as its outlook allows. If it finds none it spins, yields, then sleeps in its port until
//! its own frames, changes or a sibling that needs help wake it.

use std::io;
use std::time::Duration;

use net::{Batch, IdleAction, SharedPort};

use super::Worker;
use crate::limits::{SLEEP_BESIDE_LOADED_US, SLEEP_MS_MAX, STEAL_MESSAGES};
use crate::metrics::Counter;

/// Work found at another worker.
#[derive(Clone, Copy)]
pub(super) struct FoundWork {
    /// Index of the worker at whose port the batch arrived.
    pub(super) arrived_at: u16,
    /// A worker that offers invocations.
    pub(super) offering: Option<usize>,
}

impl<P: SharedPort> Worker<P> {
    /// Publishes this worker's load; without work, takes some from a loaded sibling.
    pub(super) fn look_around(&mut self, batch: &mut Batch, now_us: u64) -> io::Result<FoundWork> {
        let own = self.core.index();
        let (frames, cut) = (!batch.is_empty(), batch.is_cut());
        let mut found = FoundWork { arrived_at: self.ports.own_index(), offering: None };
        if frames || self.has_work(now_us) {
            self.siblings.load(own).work(now_us, cut);
            if self.outlook.needs_help(now_us, frames, cut) {
                self.siblings.wake_one(own);
            }
            return Ok(found);
        }
        if self.outlook.is_due(now_us) {
            if let Some(loaded) = self.siblings.loaded(own, now_us) {
                let taken = self.ports.take_from(loaded, batch, STEAL_MESSAGES)?;
                self.metrics.add(Counter::FramesStolen, taken as u64);
                found.arrived_at = loaded as u16;
            }
            if batch.is_empty() {
                found.offering = self.siblings.offering(own);
            }
        }
        if batch.is_empty() && found.offering.is_none() {
            self.siblings.load(own).rest();
        } else {
            self.siblings.load(own).work(now_us, false);
        }
        Ok(found)
    }

    /// Returns true if there is work besides frames.
    pub(super) fn has_work(&self, now_us: u64) -> bool {
        let offers = self.siblings.offers(self.core.index());
        let is_handed = !self.requests.is_empty() || !self.reads.is_empty();
        let is_live = is_handed || self.invocations.can_run(now_us) || !offers.is_empty();
        is_live || self.pending.is_due(now_us) || (self.stopping && self.pending.requests() > 0)
    }

    /// Waits for work; returns true if the worker spun and so kept its CPU. If a thread that yields to workers wants
    /// the CPU, the worker sleeps at once: a sleeping worker returns as soon as there is work, a spinning one waits
    /// until the other's time slice ends.
    pub(super) fn rest(&mut self, now_us: u64, idle_us: u64) -> io::Result<bool> {
        let is_crowded = now_us < self.crowded_until_us && self.siblings.has_background_load();
        let action = if is_crowded { IdleAction::Sleep } else { self.idle.next(idle_us) };
        match action {
            IdleAction::Spin => std::hint::spin_loop(),
            IdleAction::Yield => std::thread::yield_now(),
            IdleAction::Sleep => {
                // A sleep is long, and this round may have skipped background work because it followed the previous
                // one closely.
                if self.background_us != now_us && self.core.step() {
                    return Ok(false);
                }
                self.metrics.count(Counter::Sleeps);
                let own = self.core.index();
                let timeout = match self.siblings.loaded(own, self.clock.now_us()) {
                    Some(_) => Duration::from_micros(SLEEP_BESIDE_LOADED_US),
                    None => Duration::from_millis(SLEEP_MS_MAX),
                };
                let load = self.siblings.load(own);
                load.set_asleep(true);
                let slept = self.ports.wait(timeout);
                load.set_asleep(false);
                slept?;
            }
        }
        Ok(action == IdleAction::Spin)
    }
}
