//! How servers of the simulated cluster recover tablets of others that are gone, as `db/src/moving/recovering.rs` does: they ask
//! the backups that answer, decide up to where the log counts, take in its segments one after the other, and become the owner
//! when their own backups have everything.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::Arc;

use cluster::metadata::{DecidedCut, MetadataError, MigrationRow, RecoveryRow, ReplicasRow, ServerRun, Side};
use cluster::migration::MigrationPhase;
use cluster::replication::Item;
use db::control_plane::migrations::{Progress, Totals};
use db::durability::replicas::divided::DividedReader;
use db::durability::replicas::file::LogId;
use db::durability::replicas::gathered::{GatherError, SegmentReplica, gather_for};
use db::limits::RESTARTED_PATIENCE_MS;
use db::moving::recovering::{LogParts, RecoveredTablet};
use db::tablet::PartsChange;
use disk::{Buffer, Digest, Fragment};
use store::SegmentEntries;

use super::{Event, LEASES_PACE, World};
use crate::mover::Fault;
use crate::node::Owning;

/// Longest time until it is tried again.
const AGAIN_US: u64 = 30_000;
/// Longest time that a step takes.
const STEP_US: u64 = 4_000;

/// Segments of a log with their bytes, the oldest first.
type Segments = Vec<(u32, Vec<u8>)>;

/// See the file's head.
pub struct Recovering {
    row: MigrationRow,
    begun_us: u64,
    stage: Stage,
}

impl Recovering {
    pub fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Over)
    }
}

enum Stage {
    Find,
    Take(Box<Taking>),
    Sync(Box<Taking>, u64),
    Commit(Box<Taking>),
    Over,
}

struct Taking {
    basis: (ReplicasRow, DecidedCut),
    parts: LogParts,
    segments: Segments,
    reader: DividedReader,
    tablet: RecoveredTablet,
}

/// What became of a step.
enum Went {
    On(Stage),
    /// Somebody does not answer, or not with enough.
    Nowhere(Stage),
    /// What it was based on does not hold any more.
    Back,
}

/// What backups have of a log.
#[derive(Default)]
struct Found {
    digests: Vec<Digest>,
    copies: BTreeMap<u32, Vec<(SegmentReplica, Vec<u8>)>>,
}

impl World {
    /// A server hears of a recovery in which it is to be the new owner.
    pub fn follow_recovery(&mut self, run: ServerRun, row: &MigrationRow) {
        let place = self.places.get_mut(&run.server).expect("it is there");
        let Some(durable) = place.durable.as_mut().filter(|_| row.target == run) else { return };
        if row.phase == MigrationPhase::Ended {
            if let Some(recovering) = durable.recoveries.get_mut(&row.id) {
                // Others may have ended it.
                let stage = std::mem::replace(&mut recovering.stage, Stage::Over);
                self.drop_recovered(run, stage);
            }
            return self.leave_recovery(run, row.id);
        }
        if row.phase == MigrationPhase::Finished {
            // Its own next step hears of that, if it has not yet.
            if self.plan.fault == Fault::DropsWhatItOwns
                && let Some(recovering) = durable.recoveries.get_mut(&row.id)
            {
                let stage = std::mem::replace(&mut recovering.stage, Stage::Over);
                return self.drop_recovered(run, stage);
            }
            if durable.recoveries.get(&row.id).is_none_or(Recovering::is_over) {
                self.leave_recovery(run, row.id);
            }
            return;
        }
        if let Entry::Vacant(place) = durable.recoveries.entry(row.id) {
            place.insert(Recovering { row: row.clone(), begun_us: self.now_us, stage: Stage::Find });
            self.within(STEP_US, Event::Recover { run, id: row.id });
        }
    }

    fn leave_recovery(&mut self, run: ServerRun, id: u32) {
        // If the records do not answer: later.
        let _ = self.places[&run.server].member.metadata.migration_leave(id, Side::Target);
    }

    /// Drops the part of a recovery that has come to nothing.
    fn drop_recovered(&mut self, run: ServerRun, stage: Stage) {
        if let Stage::Take(taking) | Stage::Sync(taking, _) | Stage::Commit(taking) = stage
            && let Some(part) = taking.tablet.left()
            && let Some(node) = self.places.get(&run.server).and_then(|place| place.node.as_ref())
        {
            node.retire(&[part]);
        }
    }

    /// A recovery takes its next step.
    pub fn recover(&mut self, run: ServerRun, id: u32) {
        if !self.is_alive(run) {
            return;
        }
        let durable =
            self.places.get_mut(&run.server).and_then(|place| place.durable.as_mut()).expect("it has");
        let Some(recovering) = durable.recoveries.get_mut(&id) else { return };
        let (row, stage) = (recovering.row.clone(), std::mem::replace(&mut recovering.stage, Stage::Over));
        let begun_us = recovering.begun_us;
        let went = match stage {
            Stage::Over => return,
            Stage::Find => self.find_log(run, &row, begun_us),
            Stage::Take(taking) => self.take_segment(run, taking),
            Stage::Sync(taking, cut) => {
                let node = self.places[&run.server].node.as_ref().expect("it lives");
                match node.store.stable_cut() >= cut {
                    true => Ok(Went::On(Stage::Commit(taking))),
                    false => Ok(Went::On(Stage::Sync(taking, cut))),
                }
            }
            Stage::Commit(taking) => self.become_owner(run, &row, taking),
        };
        let (stage, most_us) = match went {
            Ok(Went::On(stage)) => (stage, STEP_US),
            Ok(Went::Nowhere(stage)) => (stage, AGAIN_US),
            Ok(Went::Back) => return self.give_up_recovery(run, id),
            Err(stage) => (stage, AGAIN_US),
        };
        self.recovery(run, id).expect("it goes on").stage = stage;
        self.within(most_us, Event::Recover { run, id });
    }

    fn recovery(&mut self, run: ServerRun, id: u32) -> Option<&mut Recovering> {
        self.places.get_mut(&run.server)?.durable.as_mut()?.recoveries.get_mut(&id)
    }

    /// The coordinator begins another one.
    fn give_up_recovery(&mut self, run: ServerRun, id: u32) {
        let metadata = &self.places[&run.server].member.metadata;
        match metadata.migration_advance(id, MigrationPhase::Preparing, MigrationPhase::Ended) {
            // Others have ended it.
            Ok(_) | Err(MetadataError::NotFound) => {}
            Err(_) => {
                self.recovery(run, id).expect("it is there").stage = Stage::Find;
                self.within(AGAIN_US, Event::Recover { run, id });
            }
        }
    }

    /// Asks the backups of a log that answer what they have of it; from then on they take nothing of it.
    fn ask_backups(&mut self, recovery: &RecoveryRow, has_waited: bool) -> Option<Found> {
        let replicas = &recovery.replicas;
        let log = LogId { server: recovery.server, number: replicas.log };
        let (now, mut found) = (self.presence_now(), Found::default());
        let keeps_none = self.plan.fault == Fault::KeepsNoPromise;
        let (mut asked, mut remember) = (BTreeSet::new(), 0);
        for &(server, file) in &replicas.backups {
            let is_frozen = self.places.get(&server).is_some_and(|place| self.now_us < place.frozen_until_us);
            let does_not_answer = self.random.u8(0..8) == 0 || is_frozen;
            let Some(run) =
                self.places.get(&server).filter(|place| place.node.is_some()).map(|place| place.run)
            else {
                continue;
            };
            if does_not_answer {
                continue;
            }
            let accepts_more = self.plan.fault == Fault::TakesFromTheRecovered;
            if !accepts_more {
                self.end_streams(|_, backup, of| backup == run && of == log);
            }
            let durable = self.places.get_mut(&server).and_then(|place| place.durable.as_mut());
            let durable = durable.filter(|durable| durable.disks.file == file);
            let durable = durable.filter(|durable| durable.promised.may_give(log.server, now) || keeps_none);
            let Some(receiver) = durable.and_then(|durable| durable.backup.as_mut()) else { continue };
            let start = if accepts_more { 0 } else { replicas.start };
            let Ok(mut held) = receiver.recover(log, start) else { continue };
            let mut buffer = Buffer::new(held.disk.frame_bytes());
            for placed in &held.replicas {
                let (mut replica, mut bytes) =
                    (SegmentReplica { class: placed.class, fragments: Vec::new() }, Vec::new());
                let mut whole = None;
                let mut visit = |fragment: Fragment, part: &[u8]| {
                    if placed.item == Item::Digest {
                        if fragment.at == 0 {
                            bytes.clear();
                        }
                        bytes.extend_from_slice(part);
                        if bytes.len() == fragment.end as usize {
                            whole = Digest::decode(&bytes).ok().or(whole.take());
                        }
                    } else {
                        replica.fragments.push((fragment, part.len() as u32));
                        bytes.extend_from_slice(part);
                    }
                };
                placed.read(&mut *held.disk, &mut buffer, &mut visit).expect("a sound disk");
                found.digests.extend(whole);
                if let Item::Segment(sequence) = placed.item {
                    found.copies.entry(sequence).or_default().push((replica, bytes));
                }
            }
            asked.insert(server);
            remember += usize::from(held.has_received);
        }
        let needed = (replicas.backups.len() + 1).saturating_sub(replicas.replicas).max(1);
        if self.plan.fault == Fault::AsksTooFewBackups && !asked.is_empty() {
            return Some(found);
        }
        let believes_all = has_waited || self.plan.fault == Fault::BelievesThoseThatForgot;
        if remember < needed && !believes_all {
            let there = self.metadata.servers().ok()?;
            let is_there = |server: &u32| there.iter().any(|row| row.id == *server);
            let mut others = replicas.backups.iter().filter(|(server, _)| !asked.contains(server));
            if others.any(|(server, _)| is_there(server)) {
                return None;
            }
        }
        (asked.len() >= needed).then_some(found)
    }

    /// Finds the log, decides up to where it counts, and makes a part for what it has.
    fn find_log(&mut self, run: ServerRun, row: &MigrationRow, begun_us: u64) -> Result<Went, Stage> {
        let server = row.source.server;
        let again = |_: MetadataError| Stage::Find;
        let own = &self.places[&run.server].member.metadata;
        let Some(mut recovery) = own.recovery(server).map_err(again)? else { return Ok(Went::Back) };
        let waited_us = (self.now_us - begun_us) * LEASES_PACE;
        let has_waited = waited_us > RESTARTED_PATIENCE_MS * 1_000;
        let Some(found) = self.ask_backups(&recovery, has_waited) else {
            return Ok(Went::Nowhere(Stage::Find));
        };
        let copies = || -> BTreeMap<u32, Vec<SegmentReplica>> {
            let replicas =
                |copies: &Vec<(SegmentReplica, Vec<u8>)>| copies.iter().map(|copy| copy.0.clone()).collect();
            found.copies.iter().map(|(sequence, copies)| (*sequence, replicas(copies))).collect()
        };
        let gather =
            |recovery: &RecoveryRow| gather_for::<GatherError>(recovery, &found.digests, |_| Ok(copies()));
        let Ok((mut gathered, as_of)) = gather(&recovery) else { return Ok(Went::Nowhere(Stage::Find)) };
        let own = &self.places[&run.server].member.metadata;
        let decided = match own.recovery_decide(&recovery, as_of) {
            Err(MetadataError::NotFound) => return Ok(Went::Back),
            decided => decided.map_err(again)?,
        };
        recovery.decided = Some(decided);
        if decided != as_of {
            match gather(&recovery) {
                Ok((found, as_of)) if as_of == decided => gathered = found,
                _ => return Ok(Went::Nowhere(Stage::Find)),
            }
        }
        let parts = LogParts::new(own.log_parts(server).map_err(again)?);
        let above = own.reserve_versions().map_err(again)?;
        let bytes_of = |(&sequence, &bytes): (&u32, &u32)| {
            let copies = &found.copies[&sequence];
            let whole =
                copies.iter().find(|(_, copy)| copy.len() >= bytes as usize).expect("it was gathered");
            (sequence, whole.1[..bytes as usize].to_vec())
        };
        let segments: Segments = gathered.segments.iter().map(bytes_of).collect();
        let node = self.places.get_mut(&run.server).and_then(|place| place.node.as_mut()).expect("it lives");
        node.store.advance_clock(gathered.clock_ms);
        let Some(part) = node.make_part(row.hashes) else { return Ok(Went::Nowhere(Stage::Find)) };
        part.begin_above(above);
        let progress = Arc::new(Progress::new(&Arc::new(Totals::default())));
        let tablet = RecoveredTablet::new(row.clone(), part, progress);
        let basis = (recovery.replicas, decided);
        // As if one backup had all of it.
        let divided = self.divided.entry(basis.0.log).or_default();
        let log = divided.upgrade().unwrap_or_default();
        *divided = Arc::downgrade(&log);
        let reader = DividedReader::new(log, parts.wanted(std::iter::once(row)));
        Ok(Went::On(Stage::Take(Box::new(Taking { basis, parts, segments, reader, tablet }))))
    }

    /// Takes in the newest segment that is left; after the last one waits for the own backups.
    fn take_segment(&mut self, run: ServerRun, mut taking: Box<Taking>) -> Result<Went, Stage> {
        let (replicas, decided) = &taking.basis;
        let own = &self.places[&run.server].member.metadata;
        let recovery = match own.recovery(replicas.server) {
            Ok(recovery) => recovery,
            Err(_) => return Err(Stage::Take(taking)),
        };
        let is_same = |row: &RecoveryRow| {
            (row.replicas.log, row.replicas.start, row.decided)
                == (replicas.log, replicas.start, Some(*decided))
        };
        if recovery.filter(is_same).is_none() {
            self.drop_recovered(run, Stage::Take(taking));
            return Ok(Went::Back);
        }
        let node = self.places[&run.server].node.as_ref().expect("it lives");
        let segment = taking.segments.pop();
        if let Some((sequence, bytes)) = &segment {
            let now_ms = node.store.now_ms();
            let of = (u64::from(*sequence), bytes.len() as u32);
            let Ok(part) = taking.reader.fetch(*sequence, of, || Ok::<_, Infallible>(Some(bytes.clone())));
            let part = part.expect("a sound segment");
            for entry in SegmentEntries::new(*sequence, &part, 0).expect("a segment") {
                let entry = entry.expect("a sound entry");
                let is_forgotten = entry.object.is_none() && self.plan.fault == Fault::ForgetsEnds;
                if taking.parts.has(&entry, &taking.tablet.row) && !is_forgotten {
                    taking.tablet.take(&entry, now_ms);
                }
            }
        }
        if let Err(error) = taking.tablet.store(&node.mover) {
            assert!(error.is_passing(), "{error}");
            (0..64).for_each(|_| _ = node.mover.step());
            return Ok(Went::On(Stage::Take(taking)));
        }
        (0..4).for_each(|_| _ = node.mover.step());
        Ok(Went::On(match segment {
            Some(_) => Stage::Take(taking),
            None if self.plan.fault == Fault::OwnsBeforeItsBackups => Stage::Commit(taking),
            None => Stage::Sync(taking, node.store.unstable_cut()),
        }))
    }

    /// Becomes the owner, unless the other server is back, and serves.
    fn become_owner(
        &mut self,
        run: ServerRun,
        row: &MigrationRow,
        taking: Box<Taking>,
    ) -> Result<Went, Stage> {
        let (replicas, decided) = &taking.basis;
        let own = &self.places[&run.server].member.metadata;
        match own.migration_recovered(row, (replicas, *decided)) {
            Ok(now) if now.phase == MigrationPhase::Finished => {
                self.tally.recovered += 1;
                let (take, come) =
                    (vec![(row.hashes.first(), row.hashes.last())], vec![taking.tablet.part()]);
                let change = PartsChange { take, come, ..PartsChange::default() };
                self.own(run, Owning { change, then: None });
            }
            Ok(_) | Err(MetadataError::NotFound) => self.drop_recovered(run, Stage::Commit(taking)),
            Err(_) => return Err(Stage::Commit(taking)),
        }
        self.leave_recovery(run, row.id);
        Ok(Went::On(Stage::Over))
    }
}
