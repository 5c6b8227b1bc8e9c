//! The source side of a migration: executes its state machine's actions on the store, and answers the target over its
//! stream.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use cluster::limits::{COPIED_SPANS_MAX, MIGRATION_PARTITIONS, PULL_BYTES};
use cluster::migration::{
    Copied, Gathered, Left, Message, MigrationMode, PullCursor, PullSpan, Source, SourceAction, SourceEnd,
    SourceInput, SourceOutput,
};
use cluster::records::Revision;

use super::awaited_copy::AwaitedCopy;
use super::context::{MigrationContext, Todo};
use super::pieces::Pieces;
use crate::control_plane::migrations::ExitReason;
use crate::control_plane::migrations::Figure;
use crate::control_plane::migrations::inbox::Notice;
use crate::control_plane::migrations::slots::PullPace;
use crate::limits::{
    CUT_PATIENCE_MS, DISCARD_STEPS_AT_ONCE, METADATA_COPY_ASK_MS, MIGRATION_ANNOUNCED_MS,
    MIGRATION_MESSAGES_AT_ONCE, MIGRATION_TURN_US, PULL_LOOK_US, PULL_RATE_MAX, SECOND_READS_DIVISOR,
};
use crate::tablet::{Copier, Moving, PartsChange, Spot};
use crate::view::change::Change;

/// Steps of the store's background work while there is no room for returned objects.
const TIDY_STEPS_WITHOUT_ROOM: usize = 16;
/// Pause before the departure of hashes is recorded again, in milliseconds.
const LEAVE_RETRY_MS: u64 = 100;

/// The source side of one migration.
pub(super) struct SourceSide {
    context: MigrationContext,
    machine: Source,
    todo: Todo<SourceAction>,
    out: Vec<SourceOutput>,
    /// Time at which clients were told that hashes are about to move.
    announced: Instant,
    /// The moving pieces, from the cut on.
    pieces: Option<Pieces>,
    /// The moved hashes that workers can still answer reads of.
    moving: Option<Arc<Moving>>,
    partitions: Vec<store::HashRange>,
    copying: CopyDriver,
    /// Whether the log's parts keep the hashes no longer.
    have_left: bool,
    /// The wait before that.
    awaited_copy: AwaitedCopy,
    /// Of a cut that is made: the version that no object has or had exceeded.
    ceiling: Option<u64>,
    /// The cut of the log that has everything that was executed before.
    last_cut: Option<u64>,
    /// The time at which the hashes were left, while the disk is awaited.
    left: Option<Instant>,
}

impl SourceSide {
    pub(super) fn new(context: MigrationContext) -> Self {
        let partitions = context.row.key_hashes().split(MIGRATION_PARTITIONS);
        Self {
            context,
            announced: Instant::now(),
            machine: Source::default(),
            todo: Todo::new(),
            out: Vec::new(),
            pieces: None,
            moving: None,
            partitions,
            copying: CopyDriver::default(),
            have_left: false,
            awaited_copy: AwaitedCopy::default(),
            ceiling: None,
            last_cut: None,
            left: None,
        }
    }

    /// Runs until the migration is over.
    pub(super) fn run(mut self) -> ExitReason {
        self.step(SourceInput::Phase(self.context.row.phase));
        loop {
            while let Some(notice) = self.context.inbox.take() {
                if let Some(reason) = self.read(notice) {
                    return reason;
                }
            }
            if let Some(is_registered) = self.context.turned() {
                self.step(SourceInput::Registered(is_registered));
            }
            let mut is_idle = self.listen();
            let until = Instant::now() + Duration::from_micros(MIGRATION_TURN_US);
            while let Some(action) = self.todo.pop_front() {
                is_idle = false;
                match self.act(action) {
                    Ok(Some(end)) => self.step(SourceInput::End(end)),
                    Ok(None) => {}
                    Err(reason) => return reason,
                }
                if Instant::now() >= until {
                    break;
                }
            }
            if self.machine.is_over() && self.todo.is_empty() {
                return ExitReason::Over(self.machine.phase());
            }
            self.context.progress.await_for(self.machine.awaited());
            self.context.release_guard(self.machine.phase());
            self.context.look_after_peer();
            let now_us = self.context.now_us();
            let allowance_bytes = self.copying.allowance(&self.context, self.machine.is_in_a_hurry());
            self.step(SourceInput::Tick { now_us, allowance_bytes });
            if is_idle && self.todo.is_empty() {
                let look = Duration::from_micros(PULL_LOOK_US);
                self.context.rest(if self.machine.is_copying() { look } else { Duration::MAX });
            }
        }
    }

    fn read(&mut self, notice: Notice) -> Option<ExitReason> {
        match notice {
            Notice::Admitted(core) => {
                self.context.admit(core);
                self.step(SourceInput::Admitted);
            }
            Notice::Phase(phase) => self.step(SourceInput::Phase(phase)),
            Notice::Forgotten(phase) => self.step(SourceInput::Forgotten(phase)),
            Notice::Committed(phase) => self.step(SourceInput::End(SourceEnd::Committed(phase))),
            Notice::LookedUp(phase, is_registered) => {
                self.step(SourceInput::End(SourceEnd::LookedUp(phase, is_registered)));
            }
            Notice::Stream(opened) => self.context.link.attach(opened),
            Notice::Map(map) => self.context.map = map,
            Notice::PeerGone => {
                self.context.looked_after_peer();
                self.step(SourceInput::TargetGone);
            }
            Notice::PeerThere | Notice::NoStream => self.context.looked_after_peer(),
            // The target returns the objects.
            Notice::Abort | Notice::SourceDone => {}
            Notice::Gone => return Some(ExitReason::Gone),
            Notice::Stop => return Some(ExitReason::Stopped),
        }
        None
    }

    /// Handles received messages; returns true if there were none.
    fn listen(&mut self) -> bool {
        self.context.link.flush();
        for heard in 0..MIGRATION_MESSAGES_AT_ONCE {
            let Some(message) = self.context.link.receive() else { return heard == 0 };
            self.step(SourceInput::Message(message));
        }
        false
    }

    fn step(&mut self, input: SourceInput) {
        let mut out = std::mem::take(&mut self.out);
        self.machine.step(input, &mut out);
        for output in out.drain(..) {
            match output {
                SourceOutput::Send(message) => {
                    self.context.link.send(&message);
                    let is_whole = |piece: &Copied| piece.left == Left::Nothing;
                    match &message {
                        Message::HandedOver { .. } => self.context.begin(),
                        Message::Pulled { .. } => self.context.lower_priority(),
                        Message::Copied(piece) if is_whole(piece) => self.context.lower_priority(),
                        _ => {}
                    }
                }
                SourceOutput::Do(SourceAction::TakeSlot) => self.context.take_slot(),
                SourceOutput::Do(SourceAction::LookUp) => self.context.tasks.look_up(),
                SourceOutput::Do(SourceAction::Commit { from, to, is_peer_gone }) => {
                    self.context.commit(from, to, is_peer_gone);
                }
                // Requested hashes go before bulk pulls.
                SourceOutput::Do(action @ SourceAction::GatherHashes { .. }) => self.todo.push_front(action),
                SourceOutput::Do(action) => self.todo.push_back(action),
            }
        }
        self.out = out;
    }

    fn act(&mut self, action: SourceAction) -> Result<Option<SourceEnd>, ExitReason> {
        Ok(match action {
            SourceAction::Count => self.count()?,
            SourceAction::Cut => {
                self.context.restore_priority();
                self.cut()?
            }
            SourceAction::Gather { partition, number, from } => {
                Some(SourceEnd::Gathered(self.gather(partition, number, from)))
            }
            SourceAction::GatherHashes { number, hashes } => {
                Some(SourceEnd::Gathered(self.gather_hashes(number, &hashes)))
            }
            SourceAction::Watch => {
                self.context.lower_priority();
                self.copying.begin(&self.context)?;
                Some(SourceEnd::Watched)
            }
            SourceAction::GatherCopy { round } => {
                Some(SourceEnd::GatheredCopy(self.copying.gather(&self.context, round)))
            }
            SourceAction::Discard => self.discard(),
            SourceAction::TakeBack { objects, removed } => self.take_back(objects, removed),
            SourceAction::Serve { ceiling } => {
                self.serve(ceiling)?;
                Some(SourceEnd::Served)
            }
            // Executed elsewhere.
            SourceAction::TakeSlot | SourceAction::LookUp | SourceAction::Commit { .. } => None,
        })
    }

    fn owned(&self) -> Result<Pieces, ExitReason> {
        let entry = self.context.control.table_of(self.context.row.table).ok_or(ExitReason::Gone)?;
        Ok(Pieces::owned(&entry.parts, self.context.bounds()))
    }

    /// Counts the objects, once clients had time to open sessions with the target.
    fn count(&mut self) -> Result<Option<SourceEnd>, ExitReason> {
        let pause = Duration::from_millis(MIGRATION_ANNOUNCED_MS);
        if self.announced.elapsed() < pause {
            self.todo.push_back(SourceAction::Count);
            self.context.rest(pause.saturating_sub(self.announced.elapsed()));
            return Ok(None);
        }
        Ok(Some(SourceEnd::Counted(self.owned()?.objects())))
    }

    /// Gives the hashes away. Durable ones when the disk has the replies of all that was executed here: another server will
    /// show the effects, and a client that resumes its session here must not execute them again.
    fn cut(&mut self) -> Result<Option<SourceEnd>, ExitReason> {
        let ceiling = self.ceiling.map_or_else(|| self.leave(), Ok)?;
        self.ceiling = Some(ceiling);
        if !self.context.has_failed_disk() && !self.context.is_on_disk(&mut self.last_cut) {
            let since = *self.left.get_or_insert_with(Instant::now);
            // Nobody serves them meanwhile.
            if since.elapsed() < Duration::from_millis(CUT_PATIENCE_MS) {
                self.todo.push_front(SourceAction::Cut);
                self.context.rest(Duration::from_micros(PULL_LOOK_US));
                return Ok(None);
            }
            let migration = self.context.row.id;
            tracing::warn!(
                migration,
                "the disk is full or slow: calls under way at a crash may execute twice"
            );
        }
        (self.ceiling, self.last_cut, self.left) = (None, None, None);
        Ok(Some(SourceEnd::Cut(ceiling)))
    }

    /// Stops serving the hashes; returns a version that none of their objects has or had exceeded.
    fn leave(&mut self) -> Result<u64, ExitReason> {
        let pieces = self.owned()?;
        self.context.progress.set(Figure::ObjectsExpected, pieces.objects());
        if self.context.row.mode == MigrationMode::Cooperative && self.moving.is_none() {
            let budget_bytes = pieces.bytes() / SECOND_READS_DIVISOR;
            self.moving = Some(Arc::new(Moving::new(self.context.row.id, pieces.parts(), budget_bytes)));
        }
        let (leave, moving) = (vec![self.context.bounds()], self.moving.iter().cloned().collect());
        self.context
            .alter(&PartsChange { leave, moving, ..PartsChange::default() })
            .ok_or(ExitReason::Gone)?;
        let ceiling = pieces.version_ceiling();
        self.pieces = Some(pieces);
        Ok(ceiling)
    }

    /// Stops workers from answering reads of the given-away hashes, because their objects change from here on.
    fn close(&mut self) {
        if let Some(moving) = &self.moving {
            moving.close();
            self.context.progress.take_spent(moving);
        }
    }

    fn gather(&mut self, partition: u8, number: u32, from: Option<PullCursor>) -> Message {
        let mut objects = Vec::with_capacity(PULL_BYTES + PULL_BYTES / 4);
        let hashes = self.partitions.get(usize::from(partition));
        let next = self.pieces.as_ref().zip(hashes).and_then(|(pieces, hashes)| {
            pieces.gather(self.context.core(), *hashes, from, (PULL_BYTES, &mut objects))
        });
        self.moving.iter().for_each(|moving| self.context.progress.take_spent(moving));
        self.context.progress.add(Figure::Pulls, 1);
        self.context.progress.add(Figure::Bytes, objects.len() as u64);
        Message::Pulled { partition, number, next, objects }
    }

    fn gather_hashes(&mut self, number: u32, hashes: &[u64]) -> Message {
        let (mut objects, mut count) = (Vec::new(), 0);
        for &hash in hashes {
            if objects.len() >= PULL_BYTES {
                break;
            }
            if let Some(pieces) = &self.pieces {
                pieces.gather_hash(self.context.core(), hash, &mut objects);
            }
            count += 1;
        }
        self.context.progress.add(Figure::PriorityPulls, 1);
        self.context.progress.add(Figure::Bytes, objects.len() as u64);
        Message::PriorityPulled { number, count, objects }
    }

    /// Runs a few steps of the removal; queues the rest.
    fn discard(&mut self) -> Option<SourceEnd> {
        self.close();
        if !self.have_left() {
            self.todo.push_back(SourceAction::Discard);
            self.context.rest(Duration::from_millis(LEAVE_RETRY_MS));
            return None;
        }
        let core = self.context.core();
        let pieces = self.pieces.as_mut();
        let is_left = pieces.is_some_and(|pieces| (0..DISCARD_STEPS_AT_ONCE).all(|_| pieces.discard(core)));
        self.context.tidy(1);
        if is_left {
            self.todo.push_back(SourceAction::Discard);
            return None;
        }
        self.context.progress.set(Figure::EndedUs, self.context.now_us());
        Some(SourceEnd::Discarded)
    }

    /// Returns whether a copy of the metadata has the end of the move, or none is kept.
    fn is_copied(&mut self) -> bool {
        let (control, row) = (&self.context.control, &self.context.row);
        let patience = Duration::from_millis(METADATA_COPY_ASK_MS);
        let copied = Revision(control.metadata_copied.load(Ordering::Relaxed));
        let ask = || control.metadata.tablets_changed_within(row.tenant, row.table, patience);
        !control.metadata.records().is_shared() || self.awaited_copy.is_over(copied, Instant::now(), ask)
    }

    /// Records that the hashes have left their parts in the log, before they may return in another one.
    fn have_left(&mut self) -> bool {
        if self.context.row.is_durable && !self.have_left && !self.is_copied() {
            return false;
        }
        let durable = self.context.control.parts_made.durable.as_ref();
        let (Some(durable), Some(pieces)) = (durable.filter(|_| !self.have_left), &self.pieces) else {
            return true;
        };
        let bounds = self.context.bounds();
        let left = pieces.parts().iter().try_for_each(|(_, part)| durable.leave(part.id(), bounds));
        if let Err(error) = &left {
            tracing::error!(migration = self.context.row.id, %error, "cannot record that hashes have left");
        }
        self.have_left = left.is_ok();
        self.have_left
    }

    /// Stores returned objects; if there is no room now, the rest a little later.
    fn take_back(&mut self, objects: Vec<u8>, removed: Vec<PullCursor>) -> Option<SourceEnd> {
        self.close();
        let core = self.context.core();
        if let Some(pieces) = &self.pieces {
            let objects = pieces.take_back(core, &objects);
            if !objects.is_empty() {
                self.context.tidy(TIDY_STEPS_WITHOUT_ROOM);
                self.todo.push_front(SourceAction::TakeBack { objects, removed });
                return None;
            }
            removed.iter().for_each(|place| pieces.remove(core, *place));
        }
        self.context.tidy(1);
        Some(SourceEnd::TakenBack)
    }

    /// Lets workers serve the hashes again, with versions above those of the target.
    fn serve(&mut self, ceiling: u64) -> Result<(), ExitReason> {
        self.close();
        self.moving = None;
        self.pieces.iter().for_each(|pieces| pieces.begin_above(ceiling));
        let change = PartsChange { take: vec![self.context.bounds()], ..PartsChange::default() };
        self.context.alter(&change).ok_or(ExitReason::Gone)
    }
}

/// The source's part of a pre-copy: pieces for its state machine, and their pace.
#[derive(Default)]
struct CopyDriver {
    copier: Option<(Copier, PullPace)>,
}

impl CopyDriver {
    /// Starts the copy. When it returns, every writer marks the places to which it writes.
    fn begin(&mut self, context: &MigrationContext) -> Result<(), ExitReason> {
        let control = &context.control;
        let entry = control.table_of(context.row.table).ok_or(ExitReason::Gone)?;
        let pieces = entry.parts.pieces(context.bounds());
        let objects = pieces.iter().map(|(_, part)| part.objects()).sum();
        context.progress.set(Figure::ObjectsExpected, objects);
        context.progress.set(Figure::BeganUs, context.now_us());
        self.copier = Some((Copier::new(pieces), PullPace::from(context.now_us())));
        // A change without effect, which every worker acknowledges.
        let passed = control.tell(&Change::TableCreated(entry));
        passed.map_err(|refusal| {
            tracing::warn!(migration = context.row.id, %refusal, "workers did not acknowledge a copy");
            ExitReason::Gone
        })
    }

    /// Returns the next piece of a round.
    fn gather(&mut self, context: &MigrationContext, round: u32) -> Gathered {
        let Some((copier, _)) = &mut self.copier else {
            return Gathered { spans: Vec::new(), objects: Vec::new(), left_bytes: Some(0) };
        };
        let copy = copier.next(context.core(), round, (PULL_BYTES, COPIED_SPANS_MAX));
        let place = |(hash, second): Spot| PullCursor { hash, second };
        let span = |&(first, last): &(Spot, Spot)| PullSpan { first: place(first), last: place(last) };
        context.progress.add(Figure::Pulls, 1);
        context.progress.add(Figure::Bytes, copy.objects.len() as u64);
        Gathered {
            spans: copy.spans.iter().map(span).collect(),
            objects: copy.objects,
            left_bytes: copy.is_end.then(|| copier.left_bytes()),
        }
    }

    /// Returns the bytes that may be copied for the elapsed time: the maximum during the cut, when everybody waits.
    fn allowance(&mut self, context: &MigrationContext, is_cut: bool) -> u64 {
        let now_us = context.now_us();
        match &mut self.copier {
            Some((_, pace)) if !is_cut => pace.allowance(now_us, || context.is_loaded(now_us)),
            _ => PULL_RATE_MAX,
        }
    }
}
