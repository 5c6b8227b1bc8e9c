//! The servers that recover, which are the backups as well.

use std::collections::BTreeMap;

use cluster::coordinator::steps;
use cluster::metadata::{MetadataError, Side};
use cluster::migration::MigrationPhase;
use cluster::records::LeaseId;
use store::HashRange;

use super::{BACKUPS, Found, OWNER, World, tablet_of};
use crate::durability::replicas::gathered::{GatherError, Gathered, SegmentReplica, gather_for};

impl World {
    pub(super) fn backup_dies(&mut self) {
        let server = BACKUPS[self.random.usize(0..3)];
        let backup = self.backups.get_mut(&server).expect("it is one");
        (backup.is_up, backup.stream, backup.fenced) = (false, None, 0);
        let target = self.targets.get_mut(&server).expect("it is one");
        if std::mem::take(&mut target.is_up) {
            target.found = None;
            self.metadata.records().lease_revoke(target.lease).expect("it was held");
        }
    }

    pub(super) fn restart_some(&mut self) {
        let server = BACKUPS[self.random.usize(0..3)];
        if self.targets[&server].is_up {
            return;
        }
        let tcp = ([10, 0, 0, 1], server as u16).into();
        let run = self.metadata.member_start(server, tcp, true).expect("room");
        self.metadata.migrations_restarted(run).expect("room");
        let lease = self.register_run(run).expect("nobody has the number");
        let target = self.targets.get_mut(&server).expect("it is one");
        (target.is_up, target.lease) = (true, lease);
        self.backups.get_mut(&server).expect("it is one").is_up = true;
    }

    pub(super) fn coordinate(&mut self) {
        let up: Vec<(u32, LeaseId)> =
            self.targets.iter().filter(|(_, it)| it.is_up).map(|(server, it)| (*server, it.lease)).collect();
        let Some(&(server, lease)) = up.get(self.random.usize(0..3)) else { return };
        let elected = self.metadata.coordinator_elect(server, lease).expect("an answer");
        for step in steps(&self.metadata.snapshot().expect("an answer")) {
            match self.metadata.coordinate(elected.term, &step, self.now_ms) {
                Ok(()) | Err(MetadataError::Conflict) => {}
                Err(error) => panic!("seed {}: {error}", self.seed),
            }
        }
    }

    /// Takes a turn of a server that recovers.
    pub(super) fn target_turn(&mut self) {
        let server = BACKUPS[self.random.usize(0..3)];
        if !self.targets[&server].is_up {
            return;
        }
        let rows = self.metadata.migrations().expect("an answer");
        let own: Vec<_> =
            rows.into_iter().filter(|row| row.target.server == server && !row.is_target_done).collect();
        for row in own.iter().filter(|row| row.is_over()) {
            self.metadata.migration_leave(row.id, Side::Target).expect("room");
        }
        let own: Vec<_> = own.into_iter().filter(|row| !row.is_over()).collect();
        let found = self.targets.get_mut(&server).expect("it is one").found.take();
        if own.is_empty() {
            return;
        }
        let went_on = match found {
            None => self.find(),
            Some(found) if !found.is_decided => self.decide(found),
            Some(found) => {
                // It may die, or its owner return, between two of them.
                let (left, mut own) = (self.random.bool(), own);
                self.random.shuffle(&mut own);
                own.truncate(if left { 1 } else { usize::MAX });
                for row in own {
                    let basis = (&found.recovery.replicas, found.as_of);
                    let row = self.metadata.migration_recovered(&row, basis).expect("it is there");
                    if row.phase == MigrationPhase::Finished {
                        self.take(&found.gathered, row.hashes);
                    }
                }
                if left {
                    self.targets.get_mut(&server).expect("it is one").found = Some(found);
                }
                return;
            }
        };
        match went_on {
            Some(found) => self.targets.get_mut(&server).expect("it is one").found = Some(found),
            None if self.random.bool() => {
                for row in own {
                    let (from, to) = (MigrationPhase::Preparing, MigrationPhase::Ended);
                    self.metadata.migration_advance(row.id, from, to).expect("room");
                }
            }
            None => {}
        }
    }

    /// Asks some backups, as many as it takes at least.
    pub(super) fn find(&mut self) -> Option<Found> {
        let recovery = self.metadata.recovery(OWNER).expect("an answer")?;
        let answers: Vec<u32> = BACKUPS
            .into_iter()
            .filter(|server| self.backups[server].is_up && self.random.u32(0..4) > 0)
            .collect();
        let needed = recovery.replicas.backups.len() + 1 - recovery.replicas.replicas;
        if recovery.replicas.replicas == 0 || answers.len() < needed {
            return None;
        }
        let (mut digests, mut copies) = (Vec::new(), BTreeMap::<u32, Vec<SegmentReplica>>::new());
        for server in answers {
            let backup = self.backups.get_mut(&server).expect("it is one");
            (backup.fenced, backup.stream) = (backup.fenced.max(recovery.replicas.start), None);
            digests.extend(backup.digests.iter().cloned());
            for (segment, replicas) in &backup.segments {
                copies.entry(*segment).or_default().extend(replicas.iter().cloned());
            }
        }
        let found = gather_for::<GatherError>(&recovery, &digests, |_| Ok(copies.clone()));
        let (gathered, as_of) = found.ok()?;
        Some(Found { recovery, gathered, as_of, is_decided: false })
    }

    pub(super) fn decide(&mut self, found: Found) -> Option<Found> {
        let decided = self.metadata.recovery_decide(&found.recovery, found.as_of).ok()?;
        (decided == found.as_of).then_some(Found { is_decided: true, ..found })
    }

    /// Notes what a recovered tablet has.
    pub(super) fn take(&mut self, gathered: &Gathered, hashes: HashRange) {
        self.outcomes.0 += 1;
        for tablet in 0..2 {
            if !hashes.contains(self.tablets[tablet].first()) {
                continue;
            }
            let segments = gathered.segments.iter().filter(|(segment, _)| tablet_of(**segment) == tablet);
            let cuts =
                segments.flat_map(|(segment, bytes)| self.content[segment][..*bytes as usize].to_vec());
            self.recovered[tablet] = Some(cuts.collect());
        }
        self.check();
    }
}
