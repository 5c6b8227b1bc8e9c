//! One side of a migration at a server of the simulated cluster: what its machine wants done, done on the real store.

use std::collections::VecDeque;
use std::sync::Arc;

use db::cluster::metadata::{ServerRun, Side};
use db::cluster::migration::{
    Message, Mode, Place, Source, SourceAction, SourceEnd, Target, TargetAction, TargetEnd,
};
use db::limits::{MIGRATION_PARTITIONS, PULL_BYTES};
use db::tablet::Copier;
use store::{Cursor, HashRange, Replayed, Table};

use crate::copied;
use crate::node::{Node, Owning, Piece, within};

pub enum Machine {
    Source(Source),
    Target(Box<Target>),
}

#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    Source(SourceAction),
    Target(TargetAction),
}

#[derive(Clone, Debug)]
pub enum End {
    Source(SourceEnd),
    Target(TargetEnd),
}

/// What came of an action.
pub enum Acted {
    /// It has ended, and this is to be said.
    Ended(Option<End>),
    /// It ends when this has gone through all workers.
    Owns(Owning),
}

/// What a server does wrong on purpose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    #[default]
    None,
    /// The source says that it has cut before its workers have passed.
    ServesAfterTheCut,
    /// The target begins with versions of its own.
    ForgetsTheCeiling,
    /// A server goes on serving what moves when its lease is over.
    ServesWithoutALease,
}

/// See the file's head.
pub struct Moving {
    pub id: u32,
    pub range: HashRange,
    mode: Mode,
    pub peer: ServerRun,
    pub machine: Machine,
    /// What is to be done on the store, one after the other.
    pub queue: VecDeque<Action>,
    /// What is being done.
    pub doing: Option<Action>,
    pub part: Option<Arc<Table>>,
    pub is_left: bool,
    /// Whether the machine knows of a lease of its server.
    pub was_registered: bool,
    pub is_told_to_abort: bool,
    /// At the source: what moves, in its parts, since the cut.
    pieces: Vec<Piece>,
    /// At a source that serves what it sends.
    copier: Option<Copier>,
    ceiling: Option<u64>,
    giving: Option<Giving>,
}

struct Giving {
    from: Option<Cursor>,
    removed: Vec<Place>,
}

impl Moving {
    pub fn new(id: u32, (range, mode): (HashRange, Mode), peer: ServerRun, machine: Machine) -> Moving {
        Moving {
            id,
            range,
            mode,
            peer,
            machine,
            queue: VecDeque::new(),
            doing: None,
            part: None,
            is_left: false,
            was_registered: true,
            is_told_to_abort: false,
            pieces: Vec::new(),
            copier: None,
            ceiling: None,
            giving: None,
        }
    }

    pub fn side(&self) -> Side {
        match self.machine {
            Machine::Source(_) => Side::Source,
            Machine::Target(_) => Side::Target,
        }
    }

    pub fn is_over(&self) -> bool {
        let is_over = match &self.machine {
            Machine::Source(machine) => machine.is_over(),
            Machine::Target(machine) => machine.is_over(),
        };
        is_over && self.queue.is_empty() && self.doing.is_none()
    }

    /// Does it.
    pub fn act(&mut self, node: &mut Node, action: &Action, fault: Fault) -> Acted {
        match action {
            Action::Source(action) => self.act_as_source(node, action, fault),
            Action::Target(action) => self.act_as_target(node, action, fault),
        }
    }

    /// What is to be said of a change of what is owned that has gone through.
    pub fn end_of(&self, action: &Action) -> Option<End> {
        Some(match action {
            Action::Source(SourceAction::Cut) => End::Source(SourceEnd::Cut(self.source_ceiling())),
            Action::Source(SourceAction::Serve { .. }) => End::Source(SourceEnd::Served),
            Action::Source(SourceAction::Watch) => End::Source(SourceEnd::Watched),
            Action::Target(TargetAction::Cut) => {
                End::Target(TargetEnd::Cut(self.part.as_ref()?.version_ceiling()))
            }
            Action::Target(TargetAction::Serve { .. }) => End::Target(TargetEnd::Served),
            _ => return None,
        })
    }

    fn act_as_source(&mut self, node: &mut Node, action: &SourceAction, fault: Fault) -> Acted {
        let then = Some(self.id);
        let end = match action {
            SourceAction::Count => {
                SourceEnd::Counted(within(&node.owned, self.range).iter().map(|it| it.1.objects()).sum())
            }
            SourceAction::Cut => {
                self.pieces = within(&node.owned, self.range);
                let then = then.filter(|_| fault != Fault::ServesAfterTheCut);
                return Acted::Owns(Owning { add: Vec::new(), remove: Some(self.range), then });
            }
            SourceAction::Gather { partition, number, from } => {
                SourceEnd::Gathered(self.gather(node, *partition, *number, *from))
            }
            SourceAction::GatherHashes { number, hashes } => {
                let (pin, mut objects) = (node.mover.pin(), Vec::new());
                // As many as fit, which may be all.
                let some = &hashes[..hashes.len().div_ceil(2)];
                for &hash in some {
                    if let Some(part) = self.piece_of(hash) {
                        pin.gather_hash(part, hash, &mut objects);
                    }
                }
                SourceEnd::Gathered(Message::PriorityPulled {
                    number: *number,
                    count: some.len() as u32,
                    objects,
                })
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
                self.discard(node);
                SourceEnd::Discarded
            }
            SourceAction::TakeBack { objects, removed } => {
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
                SourceEnd::TakenBack
            }
            SourceAction::Serve { ceiling } => {
                self.pieces.iter().for_each(|(_, part)| part.begin_above(*ceiling));
                return Acted::Owns(Owning { add: self.pieces.clone(), remove: None, then });
            }
            SourceAction::LookUp | SourceAction::Commit { .. } => unreachable!("the world does that"),
        };
        Acted::Ended(Some(End::Source(end)))
    }

    fn act_as_target(&mut self, node: &mut Node, action: &TargetAction, fault: Fault) -> Acted {
        let then = Some(self.id);
        let part = || self.part.clone().expect("it was made");
        let end = match action {
            TargetAction::MakePart { .. } => {
                let part = self.make_part(node);
                let bounds = |range: HashRange| (range.first(), range.last());
                TargetEnd::PartMade(part.partitions().into_iter().map(bounds).collect())
            }
            TargetAction::StoreCopy(piece) => {
                copied::store(node, &part(), self.range, piece);
                TargetEnd::CopyStored
            }
            TargetAction::Serve { ceiling } => {
                if self.part.is_none() {
                    // The source died early.
                    self.make_part(node);
                }
                let part = || self.part.clone().expect("it was made");
                if self.mode == Mode::PreCopy && !part().is_arrival() {
                    part().expect_arrivals(MIGRATION_PARTITIONS, 0);
                    arrive(&part());
                }
                if fault != Fault::ForgetsTheCeiling {
                    part().begin_above(*ceiling);
                }
                self.ceiling.get_or_insert(*ceiling);
                return Acted::Owns(Owning {
                    add: vec![((self.range.first(), self.range.last()), part())],
                    remove: None,
                    then,
                });
            }
            TargetAction::Replay { partition, next, objects } => {
                replay_partition(node, &part(), (*partition, *next), objects);
                TargetEnd::Replayed { partition: *partition }
            }
            TargetAction::ReplayPriority { hashes, objects } => {
                replay(node, &part(), self.range, objects);
                part().pulled(hashes);
                TargetEnd::PriorityReplayed
            }
            TargetAction::Cut => {
                return Acted::Owns(Owning { add: Vec::new(), remove: Some(self.range), then });
            }
            TargetAction::GatherBack => self.gather_back(node),
            TargetAction::GiveUpRest => {
                if self.mode == Mode::PreCopy && self.ceiling.is_none() {
                    // What was not copied again is of the past.
                    self.part.replace(node.make_part(self.range)).iter().for_each(|part| part.retire());
                }
                self.part.iter().for_each(arrive);
                return Acted::Ended(None);
            }
            TargetAction::DropPart => {
                if let Some(part) = &self.part {
                    part.retire();
                }
                return Acted::Ended(None);
            }
            TargetAction::Wake { .. } | TargetAction::LookUp | TargetAction::Commit { .. } => {
                unreachable!("the world does that")
            }
        };
        Acted::Ended(Some(End::Target(end)))
    }

    fn make_part(&mut self, node: &mut Node) -> Arc<Table> {
        let part = node.make_part(self.range);
        if self.mode != Mode::PreCopy {
            part.expect_arrivals(MIGRATION_PARTITIONS, 0);
        }
        self.part.insert(part).clone()
    }

    fn gather(&self, node: &Node, partition: u8, number: u32, from: Option<Place>) -> Message {
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
                    next = cursor.hashes().map(|(hash, second)| Place { hash, second });
                    return Message::Pulled { partition, number, next, objects };
                }
            }
            if objects.len() >= PULL_BYTES / 2 && *high < last {
                next = Some(Place { hash: *high, second: u64::MAX });
                break;
            }
        }
        Message::Pulled { partition, number, next, objects }
    }

    fn piece_of(&self, hash: u64) -> Option<&Arc<Table>> {
        self.pieces.iter().find(|piece| (piece.0.0..=piece.0.1).contains(&hash)).map(|(_, part)| part)
    }

    fn source_ceiling(&self) -> u64 {
        self.pieces.iter().map(|(_, part)| part.version_ceiling()).max().unwrap_or(0)
    }

    fn discard(&self, node: &Node) {
        for ((first, last), part) in &self.pieces {
            let (pin, mut from) = (node.mover.pin(), Some(Cursor::before(*first)));
            while let Some(cursor) = from {
                from = pin.discard(part, cursor, *last).expect("it is there");
            }
        }
    }

    /// What was written and removed here since it began to serve, a piece at a time.
    fn gather_back(&mut self, node: &Node) -> TargetEnd {
        let (part, ceiling) = (self.part.clone().expect("it was made"), self.ceiling.unwrap_or(0));
        let pin = node.mover.pin();
        let giving = self.giving.get_or_insert_with(|| {
            let place = |(hash, second)| Place { hash, second };
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
fn replay_partition(node: &Node, part: &Arc<Table>, (partition, next): (u8, Option<Place>), objects: &[u8]) {
    let range = part.partitions()[usize::from(partition)];
    replay(node, part, range, objects);
    let arrived = match next {
        None => Some(range.last()),
        Some(Place { hash, second: u64::MAX }) => Some(hash),
        Some(Place { hash, .. }) => hash.checked_sub(1).filter(|&last| range.contains(last)),
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

fn replay(node: &Node, part: &Table, range: HashRange, objects: &[u8]) {
    let (pin, mut rest) = (node.mover.pin(), objects);
    while !rest.is_empty() {
        pin.replay(part, range, &mut rest, &mut Replayed::default()).expect("there is room");
    }
}
