//! How servers of the simulated cluster begin, follow the records, and own by them.

use std::collections::BTreeMap;

use cluster::metadata::{Metadata, MigrationRow, ServerRow, ServerRun, Side, TabletsRow};
use cluster::migration::{SlotAdmission, Source, SourceInput, Target, TargetInput};
use cluster::records::{KeySpan, Query, Revision};
use cluster::secret::SecretHash;
use control::MigrationMode;
use db::control_plane::ownership::{Due, due, map_of};
use db::limits::{CLUSTER_RETRY_MS, REGISTRATION_KEEP_MS};
use db::tablet::{PartsChange, Range, overlap, subtract, unite};
use db::tenant::account::Accounts;
use store::{HashRange, Table};
use wire::TabletMap;

use super::log::Durable;
use super::starting::first_view;
use super::{Event, LEASES_PACE, Member, Place, World, server_address};
use crate::mover::{Machine, Moving};
use crate::node::{Node, Owning, TABLE, TENANT, new_store};

/// How often a server says that it is there, and after what it tries again.
const KEEP_US: u64 = REGISTRATION_KEEP_MS * 1_000 / LEASES_PACE;
const KEEP_AGAIN_US: u64 = CLUSTER_RETRY_MS * 1_000 / LEASES_PACE;
/// How often the coordinator looks who is there, and what is to be done.
const COORDINATE_US: u64 = 20_000;
/// How often the others do, times the servers that there are.
const LOOK_US: u64 = 6_000;
/// How often the records are looked at.
const FOLLOW_US: u64 = 60_000;
/// Migrations that a server is the source of at a time, and as many that it is the target of.
const SLOTS: usize = 1;
/// How often an object beside those of the clients is written again.
const FILL_US: u64 = 10_000;
/// How often a target is told that time has passed.
const TICK_US: u64 = 12_000;

/// How the table's tablets move where nobody asks for another way.
const MODES: [MigrationMode; 2] = [MigrationMode::Rocksteady, MigrationMode::Cooperative];

impl World {
    /// The table with its tablets, and all servers.
    pub fn boot_cluster(&mut self) {
        let servers = self.plan.servers;
        for server in 1..=servers {
            self.metadata
                .member_start(server, server_address(server), self.plan.durability.is_on_disk())
                .expect("room");
        }
        let secret = SecretHash { salt: [1; 16], digest: [2; 32] };
        let tenant = self.metadata.tenant_create("ann", secret).expect("room");
        assert_eq!(tenant, TENANT);
        let owners = self.plan.owners;
        let owners: Vec<u32> = (0..self.plan.tablets).map(|_| self.random.u32(1..=owners)).collect();
        let migration = *self.random.choice(&MODES).expect("there are two");
        let durability = Some(self.plan.durability).filter(|durability| durability.is_on_disk());
        let options = control::TableOptions { migration, durability, ..control::TableOptions::default() };
        self.table = self.metadata.table_create_at(tenant, "t", options, &owners).expect("room");
        assert_eq!(self.table, TABLE);
        for server in 1..=servers {
            self.boot(ServerRun { server, start: 1 });
        }
        self.fill();
        let act_us = self.plan.act_every_us;
        self.within(act_us, Event::Operator);
    }

    /// Objects beside those of the clients.
    fn fill(&mut self) {
        for number in 0..self.plan.fill_objects {
            for node in self.places.values().filter_map(|place| place.node.as_ref()) {
                node.fill(number, &vec![number as u8; 3_000]);
            }
        }
    }

    /// Writes some of these again, so that logs go on and are cleaned.
    pub fn fill_again(&mut self, run: ServerRun) {
        if !self.is_alive(run) || self.plan.fill_objects == 0 {
            return;
        }
        let (number, bytes) = (self.random.u64(0..self.plan.fill_objects), self.random.usize(500..3_000));
        self.places[&run.server].node.as_ref().expect("it lives").fill(number, &vec![number as u8; bytes]);
        if self.is_active() {
            self.within(FILL_US, Event::FillAgain(run));
        }
    }

    /// A server begins, with what the records say is its own.
    pub fn boot(&mut self, run: ServerRun) {
        if self.plan.durability.is_on_disk() {
            return self.start(run);
        }
        let map = map_now(&self.metadata).expect("records answer");
        let ServerRun { server: id, start } = run;
        let registered = ServerRow {
            id,
            start,
            tcp: server_address(id),
            frame_ports: Vec::new(),
            view: first_view(run),
            started_ms: 0,
            version: "simulated".to_owned(),
            backup_host: None,
        };
        let member = Member::new(&self.records, registered, run);
        let (store, accounts) = (new_store(self.plan.workers, false), Accounts::over(self.plan.workers));
        let node = Node::new((store, &accounts), (first_view(run), self.plan.workers), map, None);
        self.place(run, Some(node), member, None);
        self.take_part(run);
        let (row, migrations) = (self.row(), self.metadata.migrations().expect("records answer"));
        self.own_by_rows(run, &row, &migrations);
    }

    /// Notes a server that was started.
    pub fn place(&mut self, run: ServerRun, node: Option<Node>, member: Member, durable: Option<Durable>) {
        let place = Place {
            run,
            node,
            movings: BTreeMap::new(),
            admissions: [(); 2].map(|()| SlotAdmission::new(0..SLOTS)),
            member,
            followed: Revision(0),
            settled: Revision(0),
            durable,
            is_refusing: false,
            frozen_until_us: 0,
        };
        self.places.insert(run.server, place);
    }

    /// A server takes part in the cluster from now on.
    pub fn take_part(&mut self, run: ServerRun) {
        self.within(5_000, Event::Keep(run));
        self.within(5_000, Event::Look(run));
        self.within(FOLLOW_US, Event::Follow(run));
        self.within(TICK_US, Event::Tick(run));
    }

    pub fn row(&self) -> TabletsRow {
        let rows = self.metadata.tablets().expect("records answer");
        rows.into_iter().next().expect("the table's tablets")
    }

    pub fn is_alive(&self, run: ServerRun) -> bool {
        self.places.get(&run.server).is_some_and(|place| place.run == run && place.node.is_some())
    }

    /// A server says that it is there.
    pub fn keep(&mut self, run: ServerRun) {
        if self.is_alive(run) {
            let place = self.places.get_mut(&run.server).expect("it is there");
            let view = place.node.as_ref().expect("it lives").view();
            let kept = place.member.keep(view);
            let again_us = if kept.is_ok() { KEEP_US } else { KEEP_AGAIN_US };
            self.within(again_us, Event::Keep(run));
            self.note_lease(run, kept);
        }
    }

    /// A server looks who is there, and does what a coordinator has to if it is that.
    pub fn look(&mut self, run: ServerRun) {
        if !self.is_alive(run) {
            return;
        }
        let (now, wall_ms) = ((self.presence_now(), self.lease_now()), self.wall_ms());
        let before = self.standings();
        let place = self.places.get_mut(&run.server).expect("it is there");
        // What goes wrong is tried again at the next look.
        let mut steps = 0;
        match place.member.coordinate(now, wall_ms, &mut steps) {
            Ok(true) => {
                self.tally.elections += u64::from(self.coordinator != Some(run));
                self.coordinator = Some(run);
            }
            Ok(false) if self.coordinator == Some(run) => self.coordinator = None,
            Ok(false) | Err(_) => {}
        }
        self.tally.steps += steps;
        let others_us = LOOK_US * u64::from(self.plan.servers);
        self.within(if self.coordinator == Some(run) { COORDINATE_US } else { others_us }, Event::Look(run));
        self.note_what_was_taken(&before);
    }

    /// Owns what the records say and no migration moves; what has never been here without objects.
    ///
    /// Whether it does by now.
    fn own_by_rows(&mut self, run: ServerRun, row: &TabletsRow, migrations: &[MigrationRow]) -> bool {
        let place = self.places.get_mut(&run.server).expect("it is there");
        let node = place.node.as_mut().expect("it lives");
        if node.is_changing() {
            // What is about to be owned is not known to be: the next look will do.
            return false;
        }
        // A source that has not begun has cut nothing yet.
        let has_begun = |row: &&MigrationRow| {
            row.side_of(run) != Some(Side::Source) || place.movings.contains_key(&row.id)
        };
        let kept = |part: &Table| node.kept(part);
        let begun = migrations.iter().filter(has_begun);
        let Due { leave, take, mut missing, mut go } = due((&node.parts, &kept), row, begun, run);
        // What a machine moves of which there is no record any more.
        let is_forgotten =
            |moving: &&Moving| !moving.is_over() && migrations.iter().all(|row| row.id != moving.id);
        let forgotten = place.movings.values().filter(is_forgotten).map(|moving| bounds(moving.range));
        let forgotten = forgotten.fold(Vec::new(), |all, range| unite(&all, &[range]));
        let (leave, take) = (subtract(&leave, &forgotten), subtract(&take, &forgotten));
        missing.retain(|hashes| !overlap(&[bounds(*hashes)], &forgotten));
        go.retain(|part| !overlap(&[bounds(part.hashes())], &forgotten));
        let made: Option<_> = missing.into_iter().map(|hashes| node.make_part(hashes)).collect();
        let Some(come) = made else { return false };
        let change = PartsChange { leave, take, come, go, moving: Vec::new() };
        let is_done = change.is_empty();
        if !is_done && node.own(Owning { change, then: None }) {
            self.pass_soon(run);
        }
        is_done
    }

    /// Lets each worker of a server pass at some moment.
    pub fn pass_soon(&mut self, run: ServerRun) {
        for worker in 0..self.plan.workers {
            let most_us = if self.random.u8(0..10) == 0 { 40_000 } else { 1_500 };
            self.within(most_us, Event::Pass { run, worker });
        }
    }

    /// A worker passes.
    pub fn pass(&mut self, run: ServerRun, worker: usize) {
        if !self.is_alive(run) {
            return;
        }
        let place = self.places.get_mut(&run.server).expect("it is there");
        let Some(node) = place.node.as_mut() else { return };
        let Some((then, begins)) = node.pass(worker) else { return };
        if begins {
            self.pass_soon(run);
        }
        if let Some(id) = then {
            self.owned(run, id);
        }
    }

    /// A server looks at the records.
    pub fn follow(&mut self, run: ServerRun) {
        if !self.is_alive(run) {
            return;
        }
        self.within(FOLLOW_US, Event::Follow(run));
        let held = self.places[&run.server].member.lease(self.lease_now());
        let place = &self.places[&run.server];
        let log = place.durable.as_ref().and_then(|durable| durable.log.as_ref());
        let is_unverified = log.is_some_and(|log| log.guard.is_unverified(held));
        let (metadata, followed) = (&place.member.metadata, place.followed);
        let revision = Revision(revision(metadata));
        if revision == place.settled && !is_unverified {
            return;
        }
        let map = if followed < revision { map_now(metadata) } else { None };
        let (Ok(migrations), Ok(rows)) = (metadata.migrations(), metadata.tablets()) else { return };
        let row = rows.into_iter().next().expect("the table's tablets");
        let place = self.places.get_mut(&run.server).expect("it is there");
        if let Some(map) = map {
            place.followed = revision;
            let node = place.node.as_mut().expect("it lives");
            let told = node.map();
            let is_news = map.tablets() != told.tablets()
                || map.servers() != told.servers()
                || map.moving() != told.moving();
            if is_news {
                node.set_map(map);
                if node.own(Owning::default()) {
                    self.pass_soon(run);
                }
            }
        }
        let owns_it = self.own_by_rows(run, &row, &migrations);
        for row in &migrations {
            // It owns what it is to give before it begins.
            let is_new = !self.places[&run.server].movings.contains_key(&row.id);
            if !is_new || owns_it || row.side_of(run) != Some(Side::Source) {
                self.follow_migration(run, row);
            }
        }
        self.end_what_is_forgotten(run, &row, &migrations);
        self.leave_what_is_over(run);
        let place = self.places.get_mut(&run.server).expect("it is there");
        let is_applied = place.followed == revision && owns_it && is_quiet(place);
        let is_settled = is_applied && place.movings.values().all(|moving| moving.is_left);
        place.settled = if is_settled { revision } else { Revision(0) };
        let log = place.durable.as_ref().and_then(|durable| durable.log.as_ref());
        if let (Some(lease), Some(log), Some(node)) =
            (held.filter(|_| is_unverified && is_applied), log, &place.node)
        {
            log.guard.note_verified(&node.fence, lease);
        }
    }

    /// Ends machines of migrations that there are no records of any more.
    fn end_what_is_forgotten(&mut self, run: ServerRun, row: &TabletsRow, migrations: &[MigrationRow]) {
        let movings = &self.places[&run.server].movings;
        let is_known = |id: u32| migrations.iter().any(|row| row.id == id);
        let forgotten = movings.values().filter(|moving| !moving.is_over() && !is_known(moving.id));
        let ends: Vec<_> = forgotten.map(|moving| (moving.id, moving.side(), moving.range)).collect();
        for (id, side, range) in ends {
            let phase = side.end_by(row, range, run.server);
            match (side, phase) {
                (Side::Source, Some(phase)) => self.tell_source(run, id, SourceInput::Forgotten(phase)),
                (Side::Target, Some(phase)) => self.tell_target(run, id, TargetInput::Forgotten(phase)),
                (_, None) => {
                    drop(self.places.get_mut(&run.server).and_then(|place| place.movings.remove(&id)));
                    self.leave_slot(run, side, id);
                }
            }
        }
    }

    fn follow_migration(&mut self, run: ServerRun, row: &MigrationRow) {
        let (Some(side), moment) = (row.side_of(run), self.lease_now()) else { return };
        if row.mode == MigrationMode::Recovery {
            return self.follow_recovery(run, row);
        }
        let (is_done, peer) = match side {
            Side::Source => (row.is_source_done, row.target),
            Side::Target => (row.is_target_done, row.source),
        };
        if is_done {
            return;
        }
        let place = self.places.get_mut(&run.server).expect("it is there");
        let (is_new, lease) = (!place.movings.contains_key(&row.id), place.member.lease(moment));
        let tally = &mut self.tally;
        place.movings.entry(row.id).or_insert_with(|| {
            let machine = match side {
                Side::Source => {
                    tally.begin(row.mode);
                    Machine::Source(Source::default())
                }
                Side::Target => Machine::Target(Box::new(Target::new(row.mode, row.is_durable))),
            };
            Moving::new(row.id, (row.hashes, row.mode, row.is_durable), peer, (machine, lease))
        });
        if is_new && side == Side::Target {
            self.take_slot(run, side, row.id);
        }
        self.tell_of_lease(run, row.id);
        match side {
            Side::Source => self.tell_source(run, row.id, SourceInput::Phase(row.phase)),
            Side::Target => self.tell_target(run, row.id, TargetInput::Phase(row.phase)),
        }
        let now = self.presence_now();
        let place = self.places.get_mut(&run.server).expect("it is there");
        let is_peer_gone = place.member.presence.is_gone(peer, now);
        let Some(moving) = place.movings.get_mut(&row.id) else { return };
        let can_return =
            moving.part.as_ref().is_none_or(|part| part.partitions().is_empty() || part.can_return());
        let aborts = row.is_aborted && side == Side::Target && !moving.is_told_to_abort && can_return;
        moving.is_told_to_abort |= aborts;
        match side {
            Side::Source if is_peer_gone => self.tell_source(run, row.id, SourceInput::TargetGone),
            Side::Target if is_peer_gone => self.tell_target(run, row.id, TargetInput::SourceGone),
            _ => {}
        }
        if aborts {
            self.tell_target(run, row.id, TargetInput::Abort);
        }
    }
}

fn bounds(hashes: HashRange) -> Range {
    (hashes.first(), hashes.last())
}

/// Whether no change of what it owns is on its way.
fn is_quiet(place: &Place) -> bool {
    place.node.as_ref().is_some_and(|node| !node.is_changing())
}

/// The last commit; 0 when the records do not answer.
fn revision(metadata: &Metadata) -> u64 {
    let nothing = [Query { span: KeySpan::one("none"), limit: 1, from_last: false }];
    metadata.records().read(&nothing, None).map_or(0, |reading| reading.revision.0)
}

/// What clients are told of the tablets; `None` when the records do not answer.
pub fn map_now(metadata: &Metadata) -> Option<TabletMap> {
    let version = revision(metadata);
    let (rows, migrations, members) =
        (metadata.tablets().ok()?, metadata.migrations().ok()?, metadata.members().ok()?);
    map_of(&rows[0], migrations.iter(), &members, version)
}
