//! How servers of the simulated cluster that have a log start, and how they die.

use std::collections::BTreeMap;
use std::time::Duration;

use cluster::metadata::{MetadataError, ServerRow, ServerRun};
use cluster::moment::Moment;
use db::durability::replicas::file::LogId;
use db::durability::replicas::promised::PromisesGiven;

use super::following::map_now;
use super::log::{Disks, Durable, NotOpened, Opened, host_of};
use super::promising::Asking;
use super::{Event, Member, World, server_address};
use crate::mover::Fault;
use crate::node::Node;

/// Longest time until a start tries again.
const AGAIN_US: u64 = 60_000;

/// Microseconds of the time by which leases are counted.
pub fn moment_us(moment: Moment) -> u64 {
    moment.ns_since(Moment::after_boot(Duration::ZERO)) / 1000
}

impl World {
    /// A server that has a log is started.
    pub fn start(&mut self, run: ServerRun) {
        let disks = match self.places.remove(&run.server).and_then(|place| place.durable) {
            Some(durable) => durable.disks,
            None => Disks::new(&mut self.random),
        };
        let row = ServerRow {
            id: run.server,
            start: run.start,
            tcp: server_address(run.server),
            frame_ports: Vec::new(),
            view: first_view(run),
            started_ms: 0,
            version: "simulated".to_owned(),
            backup_host: Some(host_of(run.server)),
        };
        let durable = Durable {
            disks,
            log: None,
            backup: None,
            is_flushing: false,
            recoveries: BTreeMap::new(),
            promised: PromisesGiven::at_start(self.presence_now()),
            asking: Asking::default(),
        };
        let member = Member::new(&self.records, row, run);
        self.place(run, None, member, Some(durable));
        self.open_log(run);
    }

    /// A server that was started opens its log, if others leave it that, and serves.
    pub fn open_log(&mut self, run: ServerRun) {
        let is_starting =
            self.places.get(&run.server).is_some_and(|place| place.run == run && place.node.is_none());
        if !is_starting {
            return;
        }
        let of_plan = (self.plan.durability, self.plan.workers, self.wall_ms(), self.now_us);
        let received = self.received_of(run.server);
        let mut random = self.random.fork();
        let place = self.places.get_mut(&run.server).expect("it is there");
        let durable = place.durable.as_mut().expect("it has a log");
        let ways = [place.member.another(), place.member.another()];
        let opened = match (ways, received) {
            ([Ok(one), Ok(other)], Ok(received)) => {
                durable.disks.open([one, other], run, (of_plan, received), &mut random)
            }
            _ => Err(NotOpened::Records),
        };
        match opened {
            Ok(opened) => self.begin_to_serve(run, opened),
            Err(NotOpened::Behind) => {
                self.tally.behind += 1;
                durable.disks.discard_log(&mut random);
                self.within(AGAIN_US, Event::OpenLog(run));
            }
            Err(NotOpened::Waits) => self.within(AGAIN_US, Event::OpenLog(run)),
            // It is started again later.
            Err(NotOpened::Records) => {
                place.is_refusing = true;
                self.within(self.plan.away_us, Event::Return(run.server));
            }
        }
    }

    /// The latest cut of the log of a server that is about to start which backups have received, as far as they remember; `None` if one
    /// does not answer.
    fn received_of(&self, server: u32) -> Result<Option<u64>, MetadataError> {
        let replicas = self.metadata.replicas()?;
        let promised = replicas.iter().find(|row| row.server == server && row.replicas > 0);
        let Some(row) = promised.filter(|_| self.plan.fault != Fault::StartsWithoutItsBackups) else {
            return Ok(Some(0));
        };
        let (log, mut latest) = (LogId { server, number: row.log }, 0);
        for (backup, _) in &row.backups {
            let place = self.places.get(backup).filter(|place| place.node.is_some());
            // The memory of one that is dead is lost.
            let Some(place) = place else { continue };
            if self.now_us < place.frozen_until_us {
                return Ok(None);
            }
            let receiver = place.durable.as_ref().and_then(|durable| durable.backup.as_ref());
            latest = receiver.map_or(0, |receiver| receiver.ahead(log)).max(latest);
        }
        Ok(Some(latest))
    }

    fn begin_to_serve(&mut self, run: ServerRun, opened: Opened) {
        let Opened { store, accounts, logged, log } = opened;
        let map = map_now(&self.metadata)
            .unwrap_or_else(|| self.ask(|metadata| map_now(metadata).ok_or(MetadataError::NotFound)));
        let begins = (first_view(run), self.plan.workers);
        let mut node = Node::new((store, &accounts), begins, map, Some(logged));
        node.ignores_fence = self.plan.fault == Fault::ServesWithoutALease;
        let place = self.places.get_mut(&run.server).expect("it is there");
        place.node = Some(node);
        let durable = place.durable.as_mut().expect("it has a log");
        durable.backup = Some(durable.disks.receiver());
        durable.log = Some(log);
        self.within(5_000, Event::StepLog(run));
        self.within(5_000, Event::LookForBackups(run));
        self.within(5_000, Event::FillAgain(run));
        self.take_part(run);
    }

    /// The lease was renewed, or not.
    pub fn note_lease(&mut self, run: ServerRun, kept: Result<(), MetadataError>) {
        let place = self.places.get_mut(&run.server).expect("it is there");
        if let (Some(node), Some(held)) = (&place.node, place.member.held()) {
            node.fence.hold(held.lease, moment_us(held.until));
        }
        if kept.is_err() {
            self.begin_to_ask(run);
        }
        let place = self.places.get_mut(&run.server).expect("it is there");
        if place.durable.is_some() && kept == Err(MetadataError::NotFound) {
            // Others take it for ended.
            self.die(run);
        }
    }

    /// A server ends; its disks stay, if it has any.
    pub fn die(&mut self, run: ServerRun) {
        if !self.is_alive(run) {
            return;
        }
        self.tally.crashes += 1;
        self.end_streams(|owner, backup, _| owner == run || backup == run);
        let is_refusing = self.random.bool();
        let place = self.places.get_mut(&run.server).expect("it is there");
        (place.node, place.is_refusing) = (None, is_refusing);
        place.movings.clear();
        if let Some(durable) = &mut place.durable {
            (durable.log, durable.backup, durable.is_flushing) = (None, None, false);
            durable.recoveries.clear();
            durable.disks.restart();
        }
        // It may return before others have taken it for gone, or after.
        self.within(self.plan.away_us, Event::Return(run.server));
    }
}

/// Higher than any view of the life before.
pub fn first_view(run: ServerRun) -> u64 {
    u64::from(run.start) << 32
}
