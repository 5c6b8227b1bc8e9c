//! What operators and failures do to the simulated cluster, and what clients ask for.

use std::collections::BTreeMap;

use cluster::metadata::{Goal, PlanProgress, PlanRow, ServerRun};
use cluster::migration::MigrationMode;
use control::Durability;
use store::HashRange;
use tests::history::{Action, Condition, Outcome};

use super::log::REPLICAS;
use super::{Event, Place, World, server_address};
use crate::memory_records::Fault;
use crate::node::TENANT;

/// Migrations that an operator lets run at a time: so many, or one for so many servers.
const MIGRATIONS_AT_ONCE: usize = 8;
const SERVERS_OF_A_MIGRATION: usize = 10;

pub fn is_running(plan: &PlanRow) -> bool {
    plan.state == PlanProgress::Running
}

/// A hash at which a tablet can begin.
fn edge_near(hash: u64) -> u64 {
    hash & !(u64::from(u32::MAX))
}

impl World {
    /// An act of an operator, or of bad luck.
    pub fn operate(&mut self) {
        if !self.is_active() {
            return self.stop_plans();
        }
        let next_us = self.now_us + self.random.u64(1..2 * self.plan.act_every_us);
        self.at(next_us, Event::Operator);
        let act = self.random.u8(0..19);
        if self.plan.durability == Durability::Written && matches!(act, 12..=15 | 18) && !self.spare_death() {
            return;
        }
        match act {
            0..=1 => {
                let at = self.hash_to_cut_at();
                self.tally.splits += u64::from(self.metadata.tablet_split(TENANT, self.table, at).is_ok());
            }
            2 => self.merge(),
            3..=9 if self.plan.moves => self.migrate(),
            10..=11 => self.abort(),
            12 if self.plan.crashes => self.crash(),
            13 if self.plan.outages => {
                self.tally.outages += 1;
                self.outage(true);
                let end_us = self.now_us + self.random.u64(50_000..1_500_000);
                self.at(end_us, Event::Outage(false));
            }
            14..=15 if self.plan.cut_offs => self.cut_off(),
            16 if self.plan.plans => self.plan(),
            17 if self.plan.durability.is_on_disk() => self.break_stream(),
            18 if self.plan.durability.is_on_disk() => self.freeze(),
            _ => {}
        }
    }

    /// The records do not answer one server for a while, or several, which may be longer than their leases.
    fn cut_off(&mut self) {
        if self.places.values().any(|place| place.member.is_cut_off()) {
            return;
        }
        let servers: Vec<u32> = self.places.keys().copied().collect();
        let on_the_move: Vec<u32> = self
            .standings()
            .values()
            .filter(|row| !row.is_over())
            .flat_map(|row| [row.source.server, row.target.server])
            .collect();
        let among = if on_the_move.is_empty() { servers } else { on_the_move };
        let mut servers: Vec<u32> = self.places.keys().copied().collect();
        let is_one = self.plan.durability != Durability::Synced || self.random.bool();
        let server = *self.random.choice(&among).expect("there are servers");
        servers.retain(|other| *other == server || !is_one && self.random.u8(0..4) > 0);
        for server in servers {
            self.tally.cut_offs += 1;
            self.places[&server].member.cut_off(true);
            let end_us = self.now_us + self.random.u64(50_000..1_800_000);
            self.at(end_us, Event::CutOff(server, false));
        }
    }

    /// Whether one more server may die, or stand still. As many may as there are replicas; then no more do until all servers are well
    /// again, and what they had written by then is on their disks.
    fn spare_death(&mut self) -> bool {
        if self.deaths_left == 0 {
            match &self.to_be_stable {
                Some(cuts) if self.is_stable(cuts) => self.deaths_left = REPLICAS,
                Some(cuts) if cuts.keys().all(|run| self.is_alive(*run)) => return false,
                _ => {
                    self.to_be_stable = self.cuts_of_all();
                    return false;
                }
            }
        }
        (self.deaths_left, self.to_be_stable) = (self.deaths_left - 1, None);
        true
    }

    fn is_stable(&self, cuts: &BTreeMap<ServerRun, u64>) -> bool {
        cuts.iter().all(|(run, cut)| {
            let node = self.places[&run.server].node.as_ref().filter(|_| self.is_alive(*run));
            node.is_some_and(|node| node.store.stable_cut() >= *cut)
        })
    }

    /// The cuts that servers have yet to write, if all are well.
    fn cuts_of_all(&self) -> Option<BTreeMap<ServerRun, u64>> {
        let cut = |place: &Place| {
            let log = place.durable.as_ref()?.log.as_ref()?;
            let has_all = log.has_settled() && log.record.replicas == REPLICAS && place.is_log_quiet();
            let is_here = !place.member.is_cut_off() && place.frozen_until_us <= self.now_us;
            let node = place.node.as_ref().filter(|_| has_all && is_here)?;
            Some((place.run, node.store.unstable_cut()))
        };
        if self.failing != Fault::None { None } else { self.places.values().map(cut).collect() }
    }

    /// Everything of a server is to go, or all are to own the same; or that is stopped.
    fn plan(&mut self) {
        let Ok(plans) = self.metadata.plans() else { return };
        if let Some(running) = plans.iter().find(|plan| is_running(plan))
            && self.random.u8(0..4) == 0
        {
            // It may not answer.
            let _ = self.metadata.plan_stop(running.id);
            return;
        }
        let owners: Vec<u32> = self.row().tablets.iter().map(|tablet| tablet.server).collect();
        // Who owns more is drained more often; one that was drained owns nothing.
        let server = *self.random.choice(&owners).expect("there are tablets");
        let run = self.places[&server].run;
        let goal = if self.random.bool() { Goal::Drain(run) } else { Goal::Balance };
        let begun = self.metadata.plan_begin(goal, self.wall_ms());
        self.tally.plans += u64::from(begun.is_ok());
    }

    /// In the end nothing new is begun.
    fn stop_plans(&mut self) {
        let plans = self.metadata.plans();
        let running = plans.iter().flatten().filter(|plan| is_running(plan));
        let stopped: Vec<bool> = running.map(|plan| self.metadata.plan_stop(plan.id).is_ok()).collect();
        if plans.is_err() || !stopped.is_empty() {
            self.within(50_000, Event::Operator);
        }
    }

    /// Anywhere, or near a key.
    fn hash_to_cut_at(&mut self) -> u64 {
        let at_key = store::hash(self.random.choice(&self.keys).expect("there are keys"));
        edge_near(if self.random.bool() { at_key } else { self.random.u64(..) })
    }

    fn merge(&mut self) {
        let Ok(rows) = self.metadata.tablets() else { return };
        let edges: Vec<u64> = rows[0].tablets.iter().skip(1).map(|tablet| tablet.hashes.first()).collect();
        if let Some(&at) = self.random.choice(&edges) {
            self.tally.merges += u64::from(self.metadata.tablet_merge(TENANT, self.table, at).is_ok());
        }
    }

    fn migrate(&mut self) {
        let (Ok(rows), Ok(running)) = (self.metadata.tablets(), self.metadata.migrations()) else { return };
        if running.len() >= MIGRATIONS_AT_ONCE.max(self.places.len() / SERVERS_OF_A_MIGRATION) {
            return;
        }
        let tablet = *self.random.choice(&rows[0].tablets).expect("there are tablets");
        let living: Vec<u32> =
            self.places.values().filter(|it| it.node.is_some()).map(|it| it.run.server).collect();
        let Some(&target) = self.random.choice(&living) else { return };
        let (first, last) = (tablet.hashes.first(), tablet.hashes.last());
        let middle = edge_near(first + (last - first) / 2);
        let hashes = match self.random.u8(0..4) {
            0 if middle > first => HashRange::new(first, middle - 1),
            1 => HashRange::new(middle, last),
            _ => Some(tablet.hashes),
        };
        // Wide enough that a range has as many partitions as ever.
        let Some(hashes) = hashes.filter(|hashes| hashes.width() >= 1 << 40) else { return };
        let (of, begun_ms) = ((TENANT, self.table), self.wall_ms());
        let mode = match self.random.u8(0..6) {
            0 => None,
            1 => Some(MigrationMode::PreCopy),
            2 => Some(MigrationMode::Rocksteady),
            _ => Some(MigrationMode::Cooperative),
        };
        // It may not answer.
        let _ = self.metadata.migration_begin(of, hashes, target, mode, begun_ms);
    }

    fn abort(&mut self) {
        let Ok(running) = self.metadata.migrations() else { return };
        if let Some(row) = self.random.choice(&running) {
            self.tally.aborts += u64::from(self.metadata.migration_abort(row.id).is_ok());
        }
    }

    /// A server stands still for a while, which may be longer than its lease.
    fn freeze(&mut self) {
        let servers: Vec<u32> = self.places.keys().copied().collect();
        let server = *self.random.choice(&servers).expect("there are servers");
        let most_us = if self.random.u8(0..4) == 0 { 1_500_000 } else { 100_000 };
        let until_us = self.now_us + self.random.u64(1_000..most_us);
        self.tally.freezes += 1;
        let place = self.places.get_mut(&server).expect("it is there");
        place.frozen_until_us = until_us;
        if self.plan.cut_offs && !place.member.is_cut_off() {
            // It does not hear at once what has become of it.
            place.member.cut_off(true);
            self.at(until_us + 100_000, Event::CutOff(server, false));
        }
    }

    /// A server dies; without a log with all it has.
    fn crash(&mut self) {
        let living: Vec<ServerRun> =
            self.places.values().filter(|it| it.node.is_some()).map(|it| it.run).collect();
        // So that somebody is left.
        let Some(&run) = self.random.choice(&living).filter(|_| living.len() > 1) else { return };
        if !self.plan.durability.is_on_disk() {
            self.lose(run);
            return self.die(run);
        }
        match self.random.u8(0..8) {
            0..=3 => self.die(run),
            // What is written survives the death of as many as have it.
            _ if self.plan.durability == Durability::Written => self.die(run),
            // In the middle of a write.
            4..=6 => {
                let (calls, told) = (self.random.u64(0..6), self.random.bool());
                let fault = if told { disk::Fault::Crash } else { disk::Fault::CrashUntold };
                let durable = self.places[&run.server].durable.as_ref().expect("it has a log");
                durable.disks.log.plan(calls, fault);
            }
            // All at once.
            _ => living.into_iter().for_each(|run| self.die(run)),
        }
    }

    /// Notes which keys may have lost what was written: those of the server's own ranges, and of what it moves.
    fn lose(&mut self, run: ServerRun) {
        let (rows, moving) = self.ask(|metadata| Ok((metadata.tablets()?, metadata.migrations()?)));
        let row = &rows[0];
        let own = row.tablets.iter().filter(|it| it.server == run.server).map(|it| it.hashes);
        let moved = moving.iter().filter(|it| it.side_of(run).is_some()).map(|it| it.hashes);
        let node = self.places[&run.server].node.as_ref().expect("it lives");
        // What it owns by itself, where that is not yet what the records say.
        let held = node.owned();
        let bounds = |range: HashRange| (range.first(), range.last());
        let ranges: Vec<(u64, u64)> = own.chain(moved).map(bounds).chain(held).collect();
        self.lose_keys(&ranges);
    }

    /// A server that died is started again.
    pub fn come_back(&mut self, server: u32) {
        if self.places[&server].node.is_some() {
            return;
        }
        match self.metadata.member_start(server, server_address(server), self.plan.durability.is_on_disk()) {
            Ok(run) => self.boot(run),
            Err(_) => self.within(self.plan.away_us, Event::Return(server)),
        }
    }

    pub fn outage(&mut self, begins: bool) {
        let fault = if self.random.bool() { Fault::Unavailable } else { Fault::Uncertain };
        self.failing = if begins { fault } else { Fault::None };
        self.records.fail(self.failing);
    }

    /// What a client asks for.
    pub fn draw(&mut self, key: u64) -> Action {
        self.next_value += 1;
        let value = self.next_value << 16;
        let newest = self.history.iter().rev().take(30).find_map(|operation| match operation.outcome {
            Outcome::Found(version, _) | Outcome::Done(version) if operation.key == key => Some(version),
            _ => None,
        });
        let condition = match self.random.u8(0..6) {
            0 => Condition::Absent,
            1 => Condition::Present,
            2 => newest.map_or(Condition::Present, Condition::Version),
            _ => Condition::Always,
        };
        let reads = if self.plan.reads { 20 } else { 10 };
        match self.random.u8(0..reads) {
            0..=3 | 10.. => Action::Get,
            4..=5 => Action::Put(value, condition),
            6 => Action::Delete(if self.random.bool() { Condition::Always } else { condition }),
            _ => Action::Add(1),
        }
    }

    /// Whether every hash is owned by whom the records say, and by nobody else.
    pub fn is_owned_as_recorded(&self) -> bool {
        let row = self.row();
        self.places.iter().all(|(&number, place)| {
            let Some(node) = &place.node else { return false };
            let said = row.owned_by(number);
            node.owned().into_iter().eq(said.iter().map(|it| (it.first(), it.last())))
        })
    }
}
