//! What happens in the simulated cluster, one after the other, and to whom.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use cluster::metadata::ServerRun;
use cluster::migration::MigrationPhase;
use cluster::records::LeaseId;
use cluster::replication::message::FromBackup;
use wire::Body;

use super::{World, server_address};
use crate::mover::{Action, End};

/// What is about to happen.
pub enum Event {
    Frame {
        to: SocketAddr,
        from: SocketAddr,
        bytes: Vec<u8>,
    },
    Pass {
        run: ServerRun,
        worker: usize,
    },
    Follow(ServerRun),
    Act {
        run: ServerRun,
        id: u32,
        action: Action,
    },
    Said {
        run: ServerRun,
        id: u32,
        end: End,
    },
    Message {
        run: ServerRun,
        id: u32,
        bytes: Vec<u8>,
    },
    /// There is a slot for a migration.
    Admitted {
        run: ServerRun,
        id: u32,
    },
    Tick(ServerRun),
    Caller(u32),
    Begin(u32),
    Open {
        client: u32,
        server: u32,
    },
    Opened {
        client: u32,
        server: u32,
        token: u64,
        view: u64,
    },
    NotOpened(u32),
    Map {
        client: u32,
        server: u32,
    },
    MapTold {
        client: u32,
        server: u32,
        map: Option<Vec<u8>>,
    },
    Operator,
    /// A server says that it is there.
    Keep(ServerRun),
    /// A server looks who is there, and what is to be done about it.
    Look(ServerRun),
    /// What the records said to a machine, and under which lease they were read.
    Looked {
        run: ServerRun,
        id: u32,
        phase: MigrationPhase,
        lease: Option<LeaseId>,
    },
    CutOff(u32, bool),
    Return(u32),
    Outage(bool),
    /// A server that was started opens its log.
    OpenLog(ServerRun),
    /// The log's thread of a server takes a step.
    StepLog(ServerRun),
    /// The same, because a backup has answered.
    BackupAnswered(ServerRun),
    LookForBackups(ServerRun),
    /// A server opens a stream of its log to a backup.
    OpenStream {
        owner: ServerRun,
        backup: ServerRun,
    },
    ToBackup {
        stream: u64,
        bytes: Vec<u8>,
    },
    FromBackup {
        stream: u64,
        answer: FromBackup,
    },
    FlushReplicas(ServerRun),
    FillAgain(ServerRun),
    AskForPromises(ServerRun),
    /// One asks another for a promise, in this round.
    PromiseAsked {
        asker: ServerRun,
        asked: u32,
        round: u64,
    },
    Promised {
        asker: ServerRun,
        asked: u32,
        round: u64,
        time: Duration,
    },
    /// A recovery takes a step.
    Recover {
        run: ServerRun,
        id: u32,
    },
}

/// Whether it is a server's, and its number.
fn number_of(address: SocketAddr) -> (bool, u32) {
    match address.ip() {
        IpAddr::V4(ip) => {
            let [_, kind, high, low] = ip.octets();
            (kind == 0, u32::from(high) << 8 | u32::from(low))
        }
        IpAddr::V6(_) => unreachable!("all addresses here are short"),
    }
}

impl Event {
    /// The server that does something then.
    fn server(&self) -> Option<u32> {
        match self {
            Event::Frame { to, .. } => {
                Some(number_of(*to)).filter(|(is_server, _)| *is_server).map(|it| it.1)
            }
            Event::Open { server, .. }
            | Event::Map { server, .. }
            | Event::PromiseAsked { asked: server, .. } => Some(*server),
            Event::Pass { run, .. }
            | Event::Follow(run)
            | Event::Act { run, .. }
            | Event::Said { run, .. }
            | Event::Message { run, .. }
            | Event::Admitted { run, .. }
            | Event::Tick(run)
            | Event::Keep(run)
            | Event::Look(run)
            | Event::Looked { run, .. }
            | Event::OpenLog(run)
            | Event::StepLog(run)
            | Event::BackupAnswered(run)
            | Event::LookForBackups(run)
            | Event::OpenStream { owner: run, .. }
            | Event::FlushReplicas(run)
            | Event::FillAgain(run)
            | Event::AskForPromises(run)
            | Event::Promised { asker: run, .. }
            | Event::Recover { run, .. } => Some(run.server),
            _ => None,
        }
    }
}

impl World {
    pub fn happen(&mut self, event: Event) {
        let place = event.server().and_then(|server| self.places.get(&server));
        let frozen_until_us = place.map_or(0, |place| place.frozen_until_us);
        if self.now_us < frozen_until_us {
            return self.at(frozen_until_us, event);
        }
        match event {
            Event::Frame { to, from, bytes } => self.arrive(to, from, &bytes),
            Event::Pass { run, worker } => self.pass(run, worker),
            Event::Follow(run) => self.follow(run),
            Event::Act { run, id, action } => self.act(run, id, action),
            Event::Said { run, id, end } => self.said(run, id, end),
            Event::Message { run, id, bytes } => self.message(run, id, &bytes),
            Event::Admitted { run, id } => self.admitted(run, id),
            Event::Tick(run) => self.tick(run),
            Event::Caller(client) => self.drive(client, |_, _, _| {}),
            Event::Begin(client) => self.begin_operation(client),
            Event::Open { client, server } => self.open(client, server),
            Event::Opened { client, server, token, view } => {
                self.drive(client, |caller, _, _| caller.opened(server, token, view));
            }
            Event::NotOpened(client) => self.drive(client, |caller, now_us, _| caller.not_opened(now_us)),
            Event::Map { client, server } => {
                let node = self.places.get(&server).and_then(|place| place.node.as_ref());
                let map = node.map(|node| node.map().encode());
                self.within(5_000, Event::MapTold { client, server, map });
            }
            Event::MapTold { client, server, map } => {
                self.drive(client, |caller, now_us, wishes| caller.hear_map(now_us, server, map, wishes));
            }
            Event::Operator => self.operate(),
            Event::Keep(run) => self.keep(run),
            Event::Look(run) => self.look(run),
            Event::Looked { run, id, phase, lease } => self.looked(run, id, phase, lease),
            Event::CutOff(server, begins) => self.places[&server].member.cut_off(begins),
            Event::Return(server) => self.come_back(server),
            Event::Outage(begins) => self.outage(begins),
            Event::OpenLog(run) => self.open_log(run),
            Event::StepLog(run) => self.step_log(run, true),
            Event::BackupAnswered(run) => self.step_log(run, false),
            Event::LookForBackups(run) => self.look_for_backups(run),
            Event::OpenStream { owner, backup } => self.open_stream(owner, backup),
            Event::ToBackup { stream, bytes } => self.backup_hears(stream, bytes),
            Event::FromBackup { stream, answer } => self.owner_hears(stream, answer),
            Event::FlushReplicas(run) => self.flush_replicas(run),
            Event::FillAgain(run) => self.fill_again(run),
            Event::AskForPromises(run) => self.ask_for_promises(run),
            Event::PromiseAsked { asker, asked, round } => self.promise(asker, asked, round),
            Event::Promised { asker, asked, round, time } => self.hear_promise(asker, asked, round, time),
            Event::Recover { run, id } => self.recover(run, id),
        }
    }

    fn arrive(&mut self, to: SocketAddr, from: SocketAddr, bytes: &[u8]) {
        self.tally.frames += 1;
        let (is_server, number) = number_of(to);
        self.note(u64::from(number) << 32 | bytes.len() as u64);
        if !is_server {
            let (_, server) = number_of(from);
            return self.drive(number, |caller, now_us, wishes| caller.hear(now_us, server, bytes, wishes));
        }
        let workers = self.plan.workers;
        let worker = if self.random.bool() { 0 } else { self.random.usize(0..workers) };
        self.round(number, worker, Some((bytes, from)));
    }

    /// A round of a worker.
    pub fn round(&mut self, server: u32, worker: usize, frame: Option<(&[u8], SocketAddr)>) {
        let now_us = self.now_us;
        let Some(node) = self.places.get_mut(&server).and_then(|place| place.node.as_mut()) else { return };
        for (answer, peer) in node.serve((now_us, worker), frame, &mut self.batch) {
            self.send_frame(server_address(server), peer, &answer);
        }
    }
}
