//! What the target of a migration does on the real store of a simulated server.

use std::sync::Arc;

use cluster::limits::{MIGRATION_PARTITIONS, PULL_BYTES};
use cluster::migration::{MigrationMode, PullCursor, TargetAction, TargetEnd};
use db::tablet::PartsChange;
use store::{Cursor, HashRange, Replayed, Table};

use super::{Acted, End, Fault, Giving, Moving};
use crate::copied;
use crate::node::{Node, Owning};

impl Moving {
    pub fn act_as_target(&mut self, node: &mut Node, action: &TargetAction, fault: Fault) -> Acted {
        let then = Some(self.id);
        let part = || self.part.clone().expect("it was made");
        let end = match action {
            TargetAction::MakePart { .. } => {
                let Some(part) = self.make_part(node) else { return Acted::Later };
                let bounds = |range: HashRange| (range.first(), range.last());
                TargetEnd::PartMade(part.partitions().into_iter().map(bounds).collect())
            }
            TargetAction::StoreCopy(piece) => {
                copied::store(node, &part(), self.range, piece);
                TargetEnd::CopyStored
            }
            TargetAction::Serve { ceiling } => return self.serve(node, *ceiling, fault),
            TargetAction::Replay { partition, next, objects } => {
                replay_partition(node, &part(), (*partition, *next), objects);
                TargetEnd::Replayed { partition: *partition }
            }
            TargetAction::ReplayPriority { hashes, objects } => {
                replay(node, &part(), self.range, objects);
                part().pulled(hashes);
                TargetEnd::PriorityReplayed
            }
            TargetAction::Sync if self.is_durable && fault != Fault::FinishesBeforeItsBackups => {
                return Acted::Waits;
            }
            TargetAction::Sync => TargetEnd::Synced,
            TargetAction::Cut => {
                self.close();
                (self.moving, self.is_open) = (None, false);
                let change = PartsChange { leave: vec![self.bounds()], ..PartsChange::default() };
                return Acted::Owns(Owning { change, then });
            }
            TargetAction::GatherBack => self.gather_back(node),
            TargetAction::GiveUpRest => {
                if self.mode == MigrationMode::PreCopy && self.ceiling.is_none() {
                    // What was not copied again is of the past.
                    self.part.take().iter().for_each(|part| node.retire(std::slice::from_ref(part)));
                }
                self.part.iter().for_each(arrive);
                return Acted::Ended(None);
            }
            TargetAction::DropPart => {
                self.close();
                let Some(part) = self.part.take() else { return Acted::Ended(None) };
                let change = PartsChange { go: vec![part], ..PartsChange::default() };
                return Acted::Owns(Owning { change, then });
            }
            TargetAction::Wake { .. } | TargetAction::LookUp | TargetAction::Commit { .. } => {
                unreachable!("the world does that")
            }
        };
        Acted::Ended(Some(End::Target(end)))
    }

    /// Lets workers serve the part, unless the disk is to have it before.
    fn serve(&mut self, node: &mut Node, ceiling: u64, fault: Fault) -> Acted {
        // The source may have died early.
        if self.part.is_none() && self.make_part(node).is_none() {
            return Acted::Later;
        }
        let part = self.part.clone().expect("it was made");
        if self.mode == MigrationMode::PreCopy && !part.is_arrival() {
            part.expect_arrivals(MIGRATION_PARTITIONS, 0);
            arrive(&part);
        }
        if fault != Fault::ForgetsTheCeiling {
            part.begin_above(ceiling);
        }
        self.ceiling.get_or_insert(ceiling);
        if self.is_durable && !self.is_finished {
            return Acted::Ended(Some(End::Target(TargetEnd::Served)));
        }
        self.is_open = true;
        Acted::Owns(Owning { change: self.opening(), then: Some(self.id) })
    }

    fn make_part(&mut self, node: &mut Node) -> Option<Arc<Table>> {
        let part = node.make_part(self.range)?;
        if self.mode != MigrationMode::PreCopy {
            part.expect_arrivals(MIGRATION_PARTITIONS, 0);
        }
        Some(self.part.insert(part).clone())
    }

    /// The records name the target as the owner for good. What opens then that was not open before.
    pub fn finish(&mut self) -> Option<Owning> {
        self.is_finished = true;
        let is_due = self.ceiling.is_some() && self.part.is_some() && !self.is_open;
        self.is_open |= is_due;
        is_due.then(|| Owning { change: self.opening(), then: None })
    }

    /// What was written and removed here since it began to serve, a piece at a time.
    fn gather_back(&mut self, node: &Node) -> TargetEnd {
        let (part, ceiling) = (self.part.clone().expect("it was made"), self.ceiling.unwrap_or(0));
        let pin = node.mover.pin();
        let giving = self.giving.get_or_insert_with(|| {
            let place = |(hash, second)| PullCursor { hash, second };
            let removed = pin.removals(&part).into_iter().map(place).collect();
            Giving { from: Some(Cursor::before(self.range.first())), removed }
        });
        let mut objects = Vec::new();
        while let Some(from) = giving.from.filter(|_| objects.is_empty()) {
            let gathered = pin.gather_since(&part, from, ceiling, PULL_BYTES, &mut objects);
            giving.from = gathered.expect("it is there");
        }
        let is_last = giving.from.is_none();
        let mut removed = if is_last { std::mem::take(&mut giving.removed) } else { Vec::new() };
        // The set has no order that a seed would repeat.
        removed.sort_unstable();
        TargetEnd::GatheredBack { is_last, objects, removed }
    }
}

/// Stores a pull, and notes up to where its partition is there.
fn replay_partition(
    node: &Node,
    part: &Arc<Table>,
    (partition, next): (u8, Option<PullCursor>),
    objects: &[u8],
) {
    let range = part.partitions()[usize::from(partition)];
    replay(node, part, range, objects);
    let arrived = match next {
        None => Some(range.last()),
        Some(PullCursor { hash, second: u64::MAX }) => Some(hash),
        Some(PullCursor { hash, .. }) => hash.checked_sub(1).filter(|&last| range.contains(last)),
    };
    if let Some(last) = arrived {
        part.arrived(usize::from(partition), last);
    }
}

/// Notes that all is there that will come.
fn arrive(part: &Arc<Table>) {
    let partitions = part.partitions().into_iter().enumerate();
    partitions.for_each(|(partition, range)| part.arrived(partition, range.last()));
}

fn replay(node: &Node, part: &Table, range: HashRange, objects: &[u8]) {
    let (pin, mut rest) = (node.mover.pin(), objects);
    while !rest.is_empty() {
        pin.replay(part, range, &mut rest, &mut Replayed::default()).expect("there is room");
    }
}
