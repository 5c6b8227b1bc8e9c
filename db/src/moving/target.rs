//! The target side of a migration: drives its state machine, stores the objects that arrive, and prioritizes those
//! that workers wait for. Its part receives the objects:
//!
//! ```text
//!   made ──▶ expects objects ──▶ workers have it ──▶ settled
//!                                     └─▶ they leave it: its objects go back, and it is dropped
//! ```
//! Workers learn each step by a change of their catalogs; each change wakes the requests that wait for objects.

mod storing;

use std::sync::Arc;
use std::time::{Duration, Instant};

use cluster::limits::MIGRATION_PARTITIONS;
use cluster::migration::{
    Message, MigrationMode, MigrationPhase, Target, TargetAction, TargetEnd, TargetInput, TargetOutput,
};
use store::{HashRange, Table};

use self::storing::{Giving, Storing};
use super::context::{MigrationContext, Todo};
use crate::control_plane::migrations::ExitReason;
use crate::control_plane::migrations::Figure;
use crate::control_plane::migrations::inbox::Notice;
use crate::control_plane::migrations::slots::PullPace;
use crate::limits::{
    MIGRATION_MESSAGES_AT_ONCE, MIGRATION_TURN_US, PULL_LOOK_US, PULL_RATE_MAX, WANTED_ALONE_US,
};
use crate::tablet::{Moving, PartsChange};

/// The target side of one migration.
pub(super) struct TargetSide {
    context: MigrationContext,
    machine: Target,
    todo: Todo<TargetAction>,
    out: Vec<TargetOutput>,
    pace: PullPace,
    part: Option<Arc<Table>>,
    /// The progress reported to clients that ask both servers.
    moving: Option<Arc<Moving>>,
    partitions: Vec<HashRange>,
    /// The objects being stored, and how far.
    storing: Storing,
    /// The objects being returned, and how far.
    giving: Giving,
    /// A version that no object at the source has or had exceeded.
    ceiling: u64,
    /// True if the part knows which objects it waits for, so that it can be served from.
    expects: bool,
    /// Time since which workers serve the hashes.
    opened_us: Option<u64>,
    /// True if all objects have arrived, or will not arrive.
    is_finished: bool,
    /// Set when objects that have not arrived never will.
    is_given_up: bool,
    wanted: Vec<u64>,
    /// True while a stream is being opened, and the time at which that last began.
    connecting: (bool, Option<Instant>),
    /// Time at which the source stopped serving the hashes, as far as is known here.
    pause_us: Option<u64>,
    /// The cut of the log that has everything that the part got.
    last_cut: Option<u64>,
}

impl TargetSide {
    pub(super) fn new(context: MigrationContext) -> Self {
        let partitions = context.row.key_hashes().split(MIGRATION_PARTITIONS);
        let pace = PullPace::from(context.now_us());
        let machine = Target::new(context.row.mode, context.row.is_durable);
        Self {
            context,
            machine,
            todo: Todo::new(),
            out: Vec::new(),
            pace,
            part: None,
            moving: None,
            partitions,
            storing: Storing::default(),
            giving: Giving::default(),
            ceiling: 0,
            expects: false,
            opened_us: None,
            is_finished: false,
            is_given_up: false,
            wanted: Vec::new(),
            connecting: (false, None),
            pause_us: None,
            last_cut: None,
        }
    }

    /// Runs until the migration is over.
    pub(super) fn run(mut self) -> ExitReason {
        let reason = self.go_on();
        if reason == ExitReason::Gone {
            self.drop_part();
        }
        reason
    }

    fn go_on(&mut self) -> ExitReason {
        self.step(TargetInput::Phase(self.context.row.phase));
        if self.context.row.is_aborted {
            self.abort();
        }
        loop {
            while let Some(notice) = self.context.inbox.take() {
                if let Some(reason) = self.read(notice) {
                    return reason;
                }
            }
            if let Some(is_registered) = self.context.turned() {
                self.step(TargetInput::Registered(is_registered));
            }
            self.connect();
            let mut is_idle = self.listen() & self.want();
            let until = Instant::now() + Duration::from_micros(MIGRATION_TURN_US);
            while let Some(action) = self.todo.pop_front() {
                is_idle = false;
                match self.act(action) {
                    Ok(Some(end)) => self.step(TargetInput::End(end)),
                    Ok(None) => {}
                    Err(reason) => return reason,
                }
                if Instant::now() >= until || self.storing.is_held_up() {
                    break;
                }
            }
            self.tick();
            if self.is_finished
                && let Err(reason) = self.open()
            {
                return reason;
            }
            // The state machine's last actions are executed first.
            if self.machine.is_over() && self.todo.is_empty() {
                self.context.progress.set(Figure::EndedUs, self.context.now_us());
                self.part.iter().for_each(|part| part.end_notes());
                self.close();
                return ExitReason::Over(self.machine.phase());
            }
            self.context.progress.await_for(self.machine.awaited());
            self.context.release_guard(self.machine.phase());
            self.context.look_after_peer();
            if (is_idle && self.todo.is_empty()) || self.storing.is_held_up() {
                self.context.rest(Duration::from_micros(PULL_LOOK_US));
            }
        }
    }

    fn read(&mut self, notice: Notice) -> Option<ExitReason> {
        match notice {
            Notice::Admitted(core) => {
                self.context.admit(core);
                self.step(TargetInput::Admitted);
            }
            Notice::Phase(phase) => {
                self.is_finished |= phase == MigrationPhase::Finished;
                self.step(TargetInput::Phase(phase));
            }
            Notice::Forgotten(phase) => {
                self.is_finished |= phase == MigrationPhase::Finished;
                self.step(TargetInput::Forgotten(phase));
            }
            Notice::Committed(phase) => {
                self.is_finished |= phase == MigrationPhase::Finished;
                self.step(TargetInput::End(TargetEnd::Committed(phase)));
            }
            Notice::LookedUp(phase, is_registered) => {
                self.is_finished |= phase == MigrationPhase::Finished;
                self.step(TargetInput::End(TargetEnd::LookedUp(phase, is_registered)));
            }
            Notice::Abort => self.abort(),
            // The source that sends this over the stream ends with it, and the message may be lost.
            Notice::SourceDone => self.step(TargetInput::Message(Message::Discarded)),
            Notice::Stream(opened) => {
                self.connecting.0 = false;
                self.context.link.attach(opened);
            }
            Notice::NoStream => self.connecting.0 = false,
            Notice::Map(map) => self.context.map = map,
            Notice::PeerGone => {
                self.context.looked_after_peer();
                self.step(TargetInput::SourceGone);
            }
            Notice::PeerThere => self.context.looked_after_peer(),
            Notice::Gone => return Some(ExitReason::Gone),
            Notice::Stop => return Some(ExitReason::Stopped),
        }
        None
    }

    /// Aborts the migration, unless more keys were removed here than could be noted.
    fn abort(&mut self) {
        if self.part.as_ref().is_none_or(|part| !self.expects || part.can_return()) {
            self.step(TargetInput::Abort);
        } else {
            tracing::warn!(migration = self.context.row.id, "cannot abort: too many keys were removed here");
        }
    }

    /// Opens a stream, if there is anything to request.
    fn connect(&mut self) {
        if self.machine.is_queued() {
            return;
        }
        let (is_under_way, begun) = self.connecting;
        let pause = Duration::from_millis(crate::limits::PEER_RETRY_MS);
        if !self.context.link.is_up() && !is_under_way && begun.is_none_or(|begun| begun.elapsed() >= pause) {
            self.connecting = (true, Some(Instant::now()));
            self.context.tasks.connect();
        }
    }

    /// Handles received messages; returns true if there were none.
    fn listen(&mut self) -> bool {
        self.context.link.flush();
        for heard in 0..MIGRATION_MESSAGES_AT_ONCE {
            let Some(message) = self.context.link.receive() else { return heard == 0 };
            self.step(TargetInput::Message(message));
        }
        false
    }

    /// Takes the hashes that workers wait for, as many as there is room for; returns true if there were none.
    fn want(&mut self) -> bool {
        let Some(part) = self.part.as_ref().filter(|_| self.expects) else { return true };
        let mut wanted = std::mem::take(&mut self.wanted);
        part.take_wanted(self.machine.wants_free(), &mut wanted);
        let is_idle = wanted.is_empty();
        wanted.drain(..).for_each(|hash| self.step(TargetInput::Want(hash)));
        self.wanted = wanted;
        is_idle
    }

    fn tick(&mut self) {
        let now_us = self.context.now_us();
        let allowed_bytes = self.pace.allowance(now_us, || self.context.is_loaded(now_us));
        let allowance_bytes = match self.opened_us {
            // Nobody is served until it is done.
            _ if self.stands_still() => PULL_RATE_MAX,
            Some(opened_us) if now_us < opened_us + WANTED_ALONE_US => 0,
            Some(_) => {
                self.context.lower_priority();
                allowed_bytes
            }
            None => allowed_bytes,
        };
        self.step(TargetInput::Tick { allowance_bytes });
    }

    fn step(&mut self, input: TargetInput) {
        let mut out = std::mem::take(&mut self.out);
        self.machine.step(self.context.now_us(), input, &mut out);
        for output in out.drain(..) {
            match output {
                TargetOutput::Send(message) => self.say(&message),
                // The source discards its objects then.
                TargetOutput::Do(action @ TargetAction::Commit { to: MigrationPhase::Finished, .. }) => {
                    self.todo.push_back(action);
                }
                TargetOutput::Do(TargetAction::Commit { from, to, is_peer_gone }) => {
                    self.context.commit(from, to, is_peer_gone);
                }
                TargetOutput::Do(TargetAction::LookUp) => self.context.tasks.look_up(),
                // Requested hashes go before bulk pulls.
                TargetOutput::Do(
                    action @ (TargetAction::ReplayPriority { .. } | TargetAction::Wake { .. }),
                ) if !self.storing.is_begun() => self.todo.push_front(action),
                TargetOutput::Do(action) => self.todo.push_back(action),
            }
        }
        self.out = out;
    }

    fn say(&mut self, message: &Message) {
        let figure = match message {
            Message::Pull { .. } => Some(Figure::Pulls),
            Message::PriorityPull { .. } => Some(Figure::PriorityPulls),
            Message::HandOver => {
                self.pause_us.get_or_insert(self.context.now_us());
                self.context.restore_priority();
                None
            }
            // The source continues to serve meanwhile.
            Message::Copy => {
                self.context.lower_priority();
                None
            }
            _ => None,
        };
        if let Some(figure) = figure {
            self.context.progress.add(figure, 1);
        }
        self.context.link.send(message);
    }

    fn act(&mut self, action: TargetAction) -> Result<Option<TargetEnd>, ExitReason> {
        Ok(match action {
            TargetAction::MakePart { objects } => {
                self.make_part(objects)?;
                if self.part.is_none() {
                    return Ok(None);
                }
                let bounds = |hashes: &HashRange| (hashes.first(), hashes.last());
                Some(TargetEnd::PartMade(self.partitions.iter().map(bounds).collect()))
            }
            TargetAction::Serve { ceiling } => {
                self.serve(ceiling)?;
                Some(TargetEnd::Served)
            }
            TargetAction::Replay { .. }
            | TargetAction::ReplayPriority { .. }
            | TargetAction::StoreCopy(_) => self.store(action),
            TargetAction::Wake { hashes } => {
                if let Some(part) = &self.part {
                    part.not_pulled(&hashes);
                    self.context.control.wake(part, Some(&hashes));
                }
                None
            }
            TargetAction::GiveUpRest => {
                self.is_given_up = true;
                if self.context.row.mode == MigrationMode::PreCopy && !self.expects {
                    // Objects not copied again are outdated: the latest writes at the source are lost.
                    self.drop_part();
                }
                self.give_up_rest();
                None
            }
            TargetAction::Cut => Some(TargetEnd::Cut(self.cut()?)),
            TargetAction::GatherBack => self.gather_back(),
            TargetAction::DropPart => {
                self.drop_part();
                None
            }
            TargetAction::Sync => self.sync(),
            TargetAction::Commit { from, to, is_peer_gone } => {
                self.context.commit(from, to, is_peer_gone);
                None
            }
            // Executed by background tasks.
            TargetAction::LookUp => None,
        })
    }

    fn store(&mut self, action: TargetAction) -> Option<TargetEnd> {
        let part = self.part.clone()?;
        match self.storing.go_on(&self.context, &part, &self.partitions, action) {
            storing::StoreOutcome::There(end) => Some(end),
            storing::StoreOutcome::Later(action) => {
                self.todo.push_front(action);
                None
            }
            storing::StoreOutcome::Never => {
                self.abort();
                None
            }
        }
    }

    /// Looks whether the disk has all stored objects; continues later if it does not. Without it they return to the
    /// source.
    fn sync(&mut self) -> Option<TargetEnd> {
        if self.context.is_on_disk(&mut self.last_cut) {
            return Some(TargetEnd::Synced);
        }
        if self.context.has_failed_disk() {
            tracing::error!(
                migration = self.context.row.id,
                "the disk has failed: the hashes return to the source"
            );
            self.abort();
        } else {
            self.todo.push_back(TargetAction::Sync);
            self.context.rest(Duration::from_micros(PULL_LOOK_US));
        }
        None
    }

    /// Returns the next piece to return to the source; continues later if finding it takes long.
    fn gather_back(&mut self) -> Option<TargetEnd> {
        let Some(part) = self.part.clone() else {
            let (objects, removed) = (Vec::new(), Vec::new());
            return Some(TargetEnd::GatheredBack { is_last: true, objects, removed });
        };
        let end = self.giving.next(self.context.core(), &part, self.ceiling);
        if end.is_none() {
            self.todo.push_back(TargetAction::GatherBack);
        }
        end
    }

    fn make_part(&mut self, objects: u64) -> Result<(), ExitReason> {
        let control = &self.context.control;
        let entry = control.table_of(self.context.row.table).ok_or(ExitReason::Gone)?;
        self.context.progress.set(Figure::ObjectsExpected, objects);
        match control.make_part(&entry, (self.context.row.hashes, None), objects) {
            Ok(part) => self.part = Some(part),
            Err(refusal) => {
                tracing::error!(migration = self.context.row.id, %refusal, "cannot record a part");
                self.abort();
            }
        }
        Ok(())
    }

    /// Lets workers serve from the part; a second call changes nothing.
    fn serve(&mut self, ceiling: u64) -> Result<(), ExitReason> {
        if self.part.is_none() {
            // The metadata assigns the hashes to this server before it has asked for their number: the source died
            // early.
            self.make_part(0)?;
        }
        let Some(part) = self.part.clone() else { return Err(ExitReason::Gone) };
        if !std::mem::replace(&mut self.expects, true) {
            part.expect_arrivals(MIGRATION_PARTITIONS, ceiling);
            self.ceiling = ceiling;
            // In this mode all objects arrive before anybody is served.
            self.is_given_up |= self.context.row.mode == MigrationMode::PreCopy;
            let waker = self.context.tasks.notices.waker();
            part.on_want(Box::new(move || waker.wake()));
            if self.is_given_up {
                self.give_up_rest();
            }
        }
        if self.stands_still() {
            return Ok(());
        }
        self.open()?;
        self.context.begin();
        Ok(())
    }

    /// Returns true if nobody may be served before all objects have arrived, or are on the disk.
    fn stands_still(&self) -> bool {
        let row = &self.context.row;
        (row.mode == MigrationMode::StopAndCopy || row.is_durable) && !self.is_finished
    }

    /// Gives the hashes to the workers; a second call changes nothing.
    fn open(&mut self) -> Result<(), ExitReason> {
        let Some(part) = self.part.clone().filter(|_| self.expects && self.opened_us.is_none()) else {
            return Ok(());
        };
        self.opened_us = Some(self.context.now_us());
        let hashes = self.context.bounds();
        let take = vec![hashes];
        if self.context.row.mode == MigrationMode::Cooperative {
            let pieces = vec![(hashes, Arc::clone(&part))];
            self.moving = Some(Arc::new(Moving::new(self.context.row.id, pieces, 0)));
        }
        let moving = self.moving.iter().cloned().collect();
        let change = PartsChange { take, come: vec![part], moving, ..PartsChange::default() };
        self.context.alter(&change).ok_or(ExitReason::Gone)?;
        if let Some(from_us) = self.pause_us {
            self.context.progress.set(Figure::PauseUs, self.context.now_us().saturating_sub(from_us));
        }
        Ok(())
    }

    fn give_up_rest(&self) {
        let Some(part) = self.part.as_ref().filter(|_| self.expects) else { return };
        for (partition, hashes) in self.partitions.iter().enumerate() {
            part.arrived(partition, hashes.last());
        }
        self.context.control.wake(part, None);
    }

    /// Stops telling clients to ask the source.
    fn close(&mut self) {
        if let Some(moving) = self.moving.take() {
            moving.close();
            self.context.progress.take_spent(&moving);
        }
    }

    fn cut(&mut self) -> Result<u64, ExitReason> {
        self.close();
        let change = PartsChange { leave: vec![self.context.bounds()], ..PartsChange::default() };
        self.context.alter(&change).ok_or(ExitReason::Gone)?;
        self.opened_us = None;
        let Some(part) = &self.part else { return Ok(0) };
        // Pending requests find that another server owns their hashes.
        self.context.control.wake(part, None);
        Ok(part.version_ceiling())
    }

    fn drop_part(&mut self) {
        self.close();
        let Some(part) = self.part.take() else { return };
        let change = PartsChange { go: vec![Arc::clone(&part)], ..PartsChange::default() };
        // If the table is gone, so are its parts.
        let _ = self.context.alter(&change);
        self.context.control.wake(&part, None);
        self.context.control.retire(&[part]);
    }
}
