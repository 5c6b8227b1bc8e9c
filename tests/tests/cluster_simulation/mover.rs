//! One side of a migration at a server of the simulated cluster: what its machine wants done, done on the real store.

mod sending;
mod taking;

use std::collections::VecDeque;
use std::sync::Arc;

use cluster::metadata::{ServerRun, Side};
use cluster::migration::{
    MigrationMode, PullCursor, Source, SourceAction, SourceEnd, Target, TargetAction, TargetEnd, Tenure,
};
use cluster::records::LeaseId;
use db::tablet::{Copier, Moving as Shown, PartsChange, Range};
use store::{Cursor, HashRange, Table};

use crate::node::{Node, Owning};

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
    /// It ends when the disk has all that was written until now.
    Waits,
    /// It is to be done again later.
    Later,
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
    /// A server goes on serving what moves, or what others recover, when its lease is over.
    ServesWithoutALease,
    /// A server promises others that they are not gone, and acts as if it had not.
    KeepsNoPromise,
    /// A backup acknowledges what it has received.
    AcknowledgesBeforeItFlushes,
    /// A backup still accepts writes to a log that is recovered.
    TakesFromTheRecovered,
    /// Who recovers is content with any backup.
    AsksTooFewBackups,
    /// Who recovers is content with backups that were started since, though others are there.
    BelievesThoseThatForgot,
    /// A server that is started again takes its own log, whatever its backups have received.
    StartsWithoutItsBackups,
    /// Who recovers forgets which keys were deleted.
    ForgetsEnds,
    /// Who recovers becomes the owner before its own backups have everything.
    OwnsBeforeItsBackups,
    /// The new owner drops what it has recovered when it reads that it is the owner before its own commit was answered.
    DropsWhatItOwns,
    /// The target of what is on the disk is the owner before its own backups have everything.
    FinishesBeforeItsBackups,
}

/// First and last hash, and the part in which they are. Narrower than a tablet where that has several parts.
pub type Piece = (Range, Arc<Table>);

/// See the file's head.
pub struct Moving {
    pub id: u32,
    pub range: HashRange,
    mode: MigrationMode,
    pub peer: ServerRun,
    pub machine: Machine,
    /// What is to be done on the store, one after the other.
    pub queue: VecDeque<Action>,
    /// What is being done.
    pub doing: Option<Action>,
    pub part: Option<Arc<Table>>,
    /// For reads of both sides.
    moving: Option<Arc<Shown>>,
    pub is_left: bool,
    /// What the machine knows of the lease of its server.
    pub tenure: Tenure,
    pub is_told_to_abort: bool,
    /// Nobody serves the hashes before the disk of the target has them.
    pub is_durable: bool,
    /// At the source: what moves, in its parts, since the cut.
    pieces: Vec<Piece>,
    /// At a source that serves what it sends.
    copier: Option<Copier>,
    ceiling: Option<u64>,
    /// At the target: the records say that it owns the hashes for good, and workers serve them.
    is_finished: bool,
    is_open: bool,
    giving: Option<Giving>,
}

struct Giving {
    from: Option<Cursor>,
    removed: Vec<PullCursor>,
}

impl Moving {
    pub fn new(
        id: u32,
        (range, mode, is_durable): (HashRange, MigrationMode, bool),
        peer: ServerRun,
        (machine, lease): (Machine, Option<LeaseId>),
    ) -> Moving {
        Moving {
            id,
            range,
            mode,
            peer,
            machine,
            queue: VecDeque::new(),
            doing: None,
            part: None,
            moving: None,
            is_left: false,
            tenure: Tenure::begin(lease),
            is_told_to_abort: false,
            is_durable,
            pieces: Vec::new(),
            copier: None,
            ceiling: None,
            is_finished: false,
            is_open: false,
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

    /// What is to be said of a change of what is owned that has gone through, or of what the disk has.
    pub fn end_of(&self, action: &Action) -> Option<End> {
        Some(match action {
            Action::Source(SourceAction::Cut) => End::Source(SourceEnd::Cut(self.source_ceiling())),
            Action::Source(SourceAction::Serve { .. }) => End::Source(SourceEnd::Served),
            Action::Source(SourceAction::Watch) => End::Source(SourceEnd::Watched),
            Action::Target(TargetAction::Cut) => {
                End::Target(TargetEnd::Cut(self.part.as_ref()?.version_ceiling()))
            }
            Action::Target(TargetAction::Serve { .. }) => End::Target(TargetEnd::Served),
            Action::Target(TargetAction::Sync) => End::Target(TargetEnd::Synced),
            _ => return None,
        })
    }

    /// A change by which workers serve the part of the target.
    fn opening(&mut self) -> PartsChange {
        let (part, bounds) = (self.part.clone().expect("it was made"), self.bounds());
        if self.mode == MigrationMode::Cooperative {
            self.moving = Some(Arc::new(Shown::new(self.id, vec![(bounds, Arc::clone(&part))], 0)));
        }
        let moving = self.moving.iter().cloned().collect();
        PartsChange { take: vec![bounds], come: vec![part], moving, ..PartsChange::default() }
    }

    /// First and last hash.
    fn bounds(&self) -> Range {
        (self.range.first(), self.range.last())
    }

    /// No worker reads of both sides by it from here on.
    pub fn close(&self) {
        self.moving.iter().for_each(|moving| moving.close());
    }
}
