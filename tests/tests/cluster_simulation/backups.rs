//! Backups in the simulated cluster: streams over which logs go to them and their answers come back, in order or not at all, and
//! the search for them (`db/src/backups.rs`).

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cluster::metadata::{MetadataError, ServerRun};
use cluster::replication::message::{FromBackup, ToBackup};
use cluster::replication::{Backup, BackupId};
use db::durability::replicas::file::LogId;
use db::durability::replicas::sender::{LinkEnded, ReplicaEvent, ReplicaLink};
use db::limits::BACKUPS_PATIENCE_MS;
use net::Duplex;

use super::log::host_of;
use super::{Event, LEASES_PACE, World};
use crate::mover::Fault;

/// How often a server looks for backups, times the servers that there are.
const LOOK_US: u64 = 6_000;
/// How long a message travels at most, and a flush waits for others.
const TRAVEL_US: u64 = 1_500;

/// What both ends of a stream know of it.
#[derive(Default)]
struct Wire {
    sent: VecDeque<Vec<u8>>,
    answers: VecDeque<FromBackup>,
    has_ended: bool,
}

/// The end of a stream at the server whose log it is.
struct Link(Arc<Mutex<Wire>>);

fn lock(wire: &Mutex<Wire>) -> MutexGuard<'_, Wire> {
    wire.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ReplicaLink for Link {
    fn send(&mut self, message: &[u8]) -> Result<(), LinkEnded> {
        let mut wire = lock(&self.0);
        if wire.has_ended {
            return Err(LinkEnded);
        }
        wire.sent.push_back(message.to_vec());
        Ok(())
    }

    fn receive(&mut self) -> Result<Option<FromBackup>, LinkEnded> {
        let mut wire = lock(&self.0);
        match wire.answers.pop_front() {
            None if wire.has_ended => Err(LinkEnded),
            answer => Ok(answer),
        }
    }

    fn socket(&self) -> Option<&Duplex> {
        None
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        lock(&self.0).has_ended = true;
    }
}

/// A stream of a log to a backup.
pub struct Stream {
    owner: ServerRun,
    backup: ServerRun,
    log: LogId,
    wire: Arc<Mutex<Wire>>,
    /// When the last message, and the last answer, arrive.
    due_us: [u64; 2],
}

impl World {
    /// When something arrives that is sent now: after what was sent before.
    fn arrival(&mut self, id: u64, direction: usize) -> u64 {
        let soon_us = self.now_us + self.random.u64(1..TRAVEL_US);
        let due_us = &mut self.streams.get_mut(&id).expect("it is there").due_us[direction];
        *due_us = soon_us.max(*due_us + 1);
        *due_us
    }

    /// What a server's log has sent is on its way.
    pub fn send_to_backups(&mut self, owner: ServerRun) {
        let own = self.streams.iter().filter(|(_, stream)| stream.owner == owner);
        let own: Vec<(u64, Arc<Mutex<Wire>>)> =
            own.map(|(id, stream)| (*id, Arc::clone(&stream.wire))).collect();
        for (stream, wire) in own {
            let (sent, has_ended) = {
                let mut wire = lock(&wire);
                (std::mem::take(&mut wire.sent), wire.has_ended)
            };
            if has_ended {
                self.end_stream(stream);
                continue;
            }
            for bytes in sent {
                let due_us = self.arrival(stream, 0);
                self.at(due_us, Event::ToBackup { stream, bytes });
            }
        }
    }

    pub fn backup_hears(&mut self, stream: u64, bytes: Vec<u8>) {
        let Some(Stream { backup, log, .. }) = self.streams.get(&stream) else { return };
        let (backup, log) = (*backup, *log);
        let until_us = self.places[&backup.server].frozen_until_us;
        if self.now_us < until_us {
            return self.at(until_us, Event::ToBackup { stream, bytes });
        }
        let durable = self.places.get_mut(&backup.server).and_then(|place| place.durable.as_mut());
        let durable = durable.expect("it lives as long as the stream");
        let message = ToBackup::decode(&bytes).expect("as it was sent");
        let receiver = durable.backup.as_mut().expect("it lives as long as the stream");
        let Ok(answer) = receiver.receive(log, &message) else { return self.end_stream(stream) };
        let flushes = !std::mem::replace(&mut durable.is_flushing, true);
        let is_lazy = self.plan.fault == Fault::AcknowledgesBeforeItFlushes;
        if let ToBackup::Flush { ticket } = &message
            && is_lazy
        {
            self.answer(stream, FromBackup::Stable { ticket: *ticket });
        }
        if let Some(answer) = answer {
            self.answer(stream, answer);
        }
        if flushes {
            self.within(if is_lazy { 500_000 } else { TRAVEL_US }, Event::FlushReplicas(backup));
        }
    }

    fn answer(&mut self, stream: u64, answer: FromBackup) {
        let due_us = self.arrival(stream, 1);
        self.at(due_us, Event::FromBackup { stream, answer });
    }

    pub fn owner_hears(&mut self, stream: u64, answer: FromBackup) {
        let Some(Stream { owner, wire, .. }) = self.streams.get(&stream) else { return };
        lock(wire).answers.push_back(answer);
        let owner = *owner;
        self.within(200, Event::BackupAnswered(owner));
    }

    /// A backup makes stable what has come.
    pub fn flush_replicas(&mut self, run: ServerRun) {
        if !self.is_alive(run) {
            return;
        }
        let place = self.places.get_mut(&run.server).expect("it is there");
        let Some(durable) = &mut place.durable else { return };
        durable.is_flushing = false;
        let receiver = durable.backup.as_mut().expect("it lives");
        let Ok(stable) = receiver.flush() else { return self.die(run) };
        let with_room = receiver.with_room();
        let own = self.streams.iter().filter(|(_, stream)| stream.backup == run);
        let own: Vec<(u64, LogId)> = own.map(|(id, stream)| (*id, stream.log)).collect();
        for (stream, log) in own {
            if let Some(&ticket) = stable.get(&log) {
                self.answer(stream, FromBackup::Stable { ticket });
            }
            if with_room.contains(&log) {
                self.answer(stream, FromBackup::HasRoom);
            }
        }
    }

    /// A stream breaks: what is on its way is lost.
    pub fn end_stream(&mut self, id: u64) {
        let Some(Stream { owner, backup, log, wire, .. }) = self.streams.remove(&id) else { return };
        lock(&wire).has_ended = true;
        let durable = self.places.get_mut(&backup.server).and_then(|place| place.durable.as_mut());
        if let Some(receiver) = durable.and_then(|durable| durable.backup.as_mut()) {
            receiver.end(log);
        }
        if let Some(log) = self.log(owner) {
            log.streams.retain(|_, stream| *stream != id);
        }
    }

    /// The network breaks a stream.
    pub fn break_stream(&mut self) {
        let all: Vec<u64> = self.streams.keys().copied().collect();
        if let Some(&stream) = self.random.choice(&all) {
            self.tally.broken += 1;
            self.end_stream(stream);
        }
    }

    /// Ends the streams of which this holds.
    pub fn end_streams(&mut self, ends: impl Fn(ServerRun, ServerRun, LogId) -> bool) {
        let ending = self.streams.iter().filter(|(_, it)| ends(it.owner, it.backup, it.log));
        let ending: Vec<u64> = ending.map(|(id, _)| *id).collect();
        ending.into_iter().for_each(|id| self.end_stream(id));
    }

    /// A server stores the record that its log wants, and looks for backups.
    pub fn look_for_backups(&mut self, run: ServerRun) {
        if self.log(run).is_none() {
            return;
        }
        self.within(LOOK_US * u64::from(self.plan.servers), Event::LookForBackups(run));
        match self
            .store_record(run)
            .and_then(|is_own| if is_own { self.find_backups(run) } else { Ok(false) })
        {
            // It does not answer: later.
            Ok(true) | Err(_) => {}
            // Others recover what it owns, or have.
            Ok(false) => self.die(run),
        }
    }

    fn store_record(&mut self, run: ServerRun) -> Result<bool, MetadataError> {
        let held = self.places[&run.server].member.lease(self.lease_now());
        let place = self.places.get_mut(&run.server).expect("it is there");
        let fence = &place.node.as_ref().expect("it lives").fence;
        let log = place.durable.as_mut().and_then(|durable| durable.log.as_mut()).expect("it lives");
        let Some(wanted) = log.wanted.clone() else { return Ok(true) };
        // From then on others may recover what this server owns.
        if wanted.replicas > 0 && !log.guard.begin(fence, held) {
            return Ok(true);
        }
        let Some(record) = place.member.metadata.replicas_record(run.server, log.start, &wanted)? else {
            return Ok(false);
        };
        log.wanted = None;
        log.gone.retain(|id| record.backups.contains(id));
        log.record = record.clone();
        log.tell(ReplicaEvent::Recorded(record));
        Ok(true)
    }

    fn find_backups(&mut self, run: ServerRun) -> Result<bool, MetadataError> {
        let (now_us, lease) = (self.now_us, self.places[&run.server].member.lease(self.lease_now()));
        let place = self.places.get_mut(&run.server).expect("it is there");
        let metadata = &place.member.metadata;
        let servers = metadata.servers()?;
        if metadata.recovery(run.server)?.is_some() {
            return Ok(false);
        }
        let log = place.durable.as_mut().and_then(|durable| durable.log.as_mut()).expect("it lives");
        if log.lease.0 != lease {
            log.lease = (lease, now_us);
        }
        let is_patient = (now_us - log.lease.1) * LEASES_PACE < BACKUPS_PATIENCE_MS * 1_000;
        let is_away =
            |id: &&BackupId| lease.is_some() && !is_patient && servers.iter().all(|row| row.id != id.server);
        let away: Vec<BackupId> = log.record.backups.iter().filter(is_away).copied().collect();
        away.into_iter().for_each(|id| log.lose(id));
        let unlinked: Vec<ServerRun> = servers
            .iter()
            .filter(|row| {
                row.id != run.server && row.backup_host.is_some() && !log.streams.contains_key(&row.id)
            })
            .map(|row| ServerRun { server: row.id, start: row.start })
            .collect();
        for backup in unlinked {
            self.within(TRAVEL_US, Event::OpenStream { owner: run, backup });
        }
        Ok(true)
    }

    /// A server opens a stream to a backup.
    pub fn open_stream(&mut self, owner: ServerRun, backup: ServerRun) {
        let number = self.next_stream;
        let Some(log) = self.log(owner) else { return };
        let is_linked = log.streams.contains_key(&backup.server);
        let (start, id) = (log.start, LogId { server: owner.server, number: log.number });
        let stands_still =
            self.places.get(&backup.server).is_some_and(|place| self.now_us < place.frozen_until_us);
        if is_linked || stands_still {
            return;
        }
        if !self.is_alive(backup) {
            // Its host refuses, or is gone as well. If the records do not answer: later.
            let is_refused = self.places.get(&backup.server).is_some_and(|place| place.is_refusing);
            if is_refused {
                let _ = self.places[&owner.server].member.metadata.member_ended(backup);
            }
            return;
        }
        // One of an earlier start, which may not know of its end.
        self.end_streams(|_, to, log| to == backup && log == id);
        let durable = self.places.get_mut(&backup.server).and_then(|place| place.durable.as_mut());
        let receiver = durable.and_then(|durable| durable.backup.as_mut()).expect("it lives");
        let Some(held) = receiver.begin(id, start).expect("a sound disk") else { return };
        let FromBackup::Held { file, speed, items: held } = held else {
            unreachable!("that is how it begins")
        };
        self.next_stream += 1;
        let (wire, due_us) = (Arc::default(), [0; 2]);
        self.streams.insert(number, Stream { owner, backup, log: id, wire: Arc::clone(&wire), due_us });
        let log = self.log(owner).expect("it lives");
        log.streams.insert(backup.server, number);
        let id = BackupId { server: backup.server, file };
        // One that lost its file is another one.
        let earlier =
            log.record.backups.iter().filter(|other| other.server == backup.server && **other != id);
        let earlier: Vec<BackupId> = earlier.copied().collect();
        earlier.into_iter().for_each(|other| log.lose(other));
        log.gone.remove(&id);
        let backup = Backup { id, host: host_of(backup.server), speed };
        log.tell(ReplicaEvent::Joined { backup, held, link: Box::new(Link(wire)) });
    }
}
