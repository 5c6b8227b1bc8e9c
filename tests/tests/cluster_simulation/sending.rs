//! What the source of a migration does on the real store of a simulated server.

use std::sync::Arc;

use cluster::limits::{MIGRATION_PARTITIONS, PULL_BYTES};
use cluster::migration::{Message, MigrationMode, PullCursor, SourceAction, SourceEnd};
use db::tablet::{Moving as Shown, PartsChange};
use store::{Cursor, HashRange, Replayed, Table};

use super::{Acted, End, Fault, Moving, Piece};
use crate::copied;
use crate::node::{Node, Owning};

impl Moving {
    pub fn act_as_source(&mut self, node: &mut Node, action: &SourceAction, fault: Fault) -> Acted {
        let then = Some(self.id);
        let end = match action {
            SourceAction::Count => {
                SourceEnd::Counted(node.parts.pieces(self.bounds()).iter().map(|it| it.1.objects()).sum())
            }
            SourceAction::Cut => {
                self.pieces = node.parts.pieces(self.bounds());
                let then = then.filter(|_| fault != Fault::ServesAfterTheCut);
                if self.mode == MigrationMode::Cooperative && self.moving.is_none() {
                    self.moving =
                        Some(Arc::new(Shown::new(self.id, self.pieces.clone(), self.budget_bytes())));
                }
                let (leave, moving) = (vec![self.bounds()], self.moving.iter().cloned().collect());
                let change = PartsChange { leave, moving, ..PartsChange::default() };
                return Acted::Owns(Owning { change, then });
            }
            SourceAction::Gather { partition, number, from } => {
                SourceEnd::Gathered(self.gather(node, *partition, *number, *from))
            }
            SourceAction::GatherHashes { number, hashes } => {
                SourceEnd::Gathered(self.gather_hashes(node, *number, hashes))
            }
            SourceAction::Watch => {
                self.copier = Some(copied::watch(node, self.range));
                // Every worker passes a change that changes nothing.
                return Acted::Owns(Owning { then, ..Owning::default() });
            }
            SourceAction::GatherCopy { round } => {
                let copier = self.copier.as_mut().expect("it is watched");
                SourceEnd::GatheredCopy(copied::gather(node, copier, *round))
            }
            SourceAction::Discard => {
                self.close();
                self.discard(node);
                SourceEnd::Discarded
            }
            SourceAction::TakeBack { objects, removed } => {
                self.take_back(node, objects, removed);
                SourceEnd::TakenBack
            }
            SourceAction::Serve { ceiling } => {
                self.pieces.iter().for_each(|(_, part)| part.begin_above(*ceiling));
                self.close();
                self.moving = None;
                let change = PartsChange { take: vec![self.bounds()], ..PartsChange::default() };
                return Acted::Owns(Owning { change, then });
            }
            SourceAction::TakeSlot | SourceAction::LookUp | SourceAction::Commit { .. } => {
                unreachable!("the world does that")
            }
        };
        Acted::Ended(Some(End::Source(end)))
    }

    fn gather_hashes(&self, node: &Node, number: u32, hashes: &[u64]) -> Message {
        let (pin, mut objects) = (node.mover.pin(), Vec::new());
        // As many as fit, which may be all.
        let some = &hashes[..hashes.len().div_ceil(2)];
        for &hash in some {
            if let Some(part) = self.piece_of(hash) {
                pin.gather_hash(part, hash, &mut objects);
            }
        }
        Message::PriorityPulled { number, count: some.len() as u32, objects }
    }

    fn take_back(&self, node: &Node, objects: &[u8], removed: &[PullCursor]) {
        self.close();
        let pin = node.mover.pin();
        for ((first, last), part) in &self.pieces {
            // A piece may be narrower than a range can be: then nothing else of its part is asked for.
            let hashes = HashRange::new(*first, *last).unwrap_or(part.hashes());
            let own = store::within(objects, hashes);
            let replayed = pin.take_back(part, hashes, &mut &own[..], &mut Replayed::default());
            replayed.expect("there is room");
        }
        for place in removed {
            let part = self.piece_of(place.hash).expect("a part of the range");
            pin.remove_placed(part, (place.hash, place.second)).expect("it is there");
        }
    }

    /// Most tell as often as they are asked, some stop soon.
    fn budget_bytes(&self) -> u64 {
        if self.id.is_multiple_of(5) { 2_000 } else { u64::MAX }
    }

    fn gather(&self, node: &Node, partition: u8, number: u32, from: Option<PullCursor>) -> Message {
        let (first, last) = partition_of(self.range, partition);
        let pin = node.mover.pin();
        let (mut objects, mut next) = (Vec::new(), None);
        let begin = from.map_or(first, |from| from.hash);
        let is_wanted = |piece: &&Piece| piece.0.1 >= begin && piece.0.0 <= last;
        for ((low, high), part) in self.pieces.iter().filter(is_wanted) {
            let mut cursor = match from {
                Some(from) if (*low..=*high).contains(&from.hash) => Cursor::behind(from.hash, from.second),
                _ => Cursor::before(first.max(*low)),
            };
            let piece_last = last.min(*high);
            // A gather goes through a bounded number of buckets.
            while let Some(end) = gather(&pin, part, (cursor, piece_last), &mut objects) {
                let is_full = objects.len() >= PULL_BYTES / 2 || end.hashes() == cursor.hashes();
                cursor = end;
                if is_full {
                    next = cursor.hashes().map(|(hash, second)| PullCursor { hash, second });
                    return Message::Pulled { partition, number, next, objects };
                }
            }
            if objects.len() >= PULL_BYTES / 2 && *high < last {
                next = Some(PullCursor { hash: *high, second: u64::MAX });
                break;
            }
        }
        Message::Pulled { partition, number, next, objects }
    }

    fn piece_of(&self, hash: u64) -> Option<&Arc<Table>> {
        self.pieces.iter().find(|piece| (piece.0.0..=piece.0.1).contains(&hash)).map(|(_, part)| part)
    }

    pub fn source_ceiling(&self) -> u64 {
        self.pieces.iter().map(|(_, part)| part.version_ceiling()).max().unwrap_or(0)
    }

    fn discard(&self, node: &Node) {
        for ((first, last), part) in &self.pieces {
            if let Some(logged) = &node.logged {
                logged.parts.leave(part.id(), self.bounds()).expect("the own file");
            }
            let (pin, mut from) = (node.mover.pin(), Some(Cursor::before(*first)));
            while let Some(cursor) = from {
                from = pin.discard(part, cursor, *last).expect("it is there");
            }
        }
    }
}

/// The partition of a range as the target's store makes it.
fn partition_of(range: HashRange, partition: u8) -> (u64, u64) {
    let bound = |at: u128| range.first() + (range.width() * at / MIGRATION_PARTITIONS as u128) as u64;
    let at = u128::from(partition);
    let is_last = usize::from(partition) + 1 == MIGRATION_PARTITIONS;
    (bound(at), if is_last { range.last() } else { bound(at + 1) - 1 })
}

fn gather(
    pin: &store::Pinned<'_>,
    part: &Table,
    (from, last): (Cursor, u64),
    objects: &mut Vec<u8>,
) -> Option<Cursor> {
    pin.gather(part, from, last, PULL_BYTES, objects).expect("it is there")
}
