//! The target of a migration, which drives it.
//!
//! ```text
//!   Queued ─► Asking ─► Making ─► Deciding ─► HandingOver ─► Opening ─► Moving ─► Discarding ─► Over
//!                                                  └───────────┴───────────┴─► Cutting ─► Giving ─► Given ─► Over
//! ```
//! A queued target requests nothing from the source. With copying, it stores pieces in Deciding until little is left,
//! and the rest after HandingOver, in Closing. While its server is unregistered, it serves nothing before the phase is
//! `finished`, because the source may own the hashes.
//!
//! Ownership and the end of the migration change by one commit each, on condition that the records still hold what was
//! decided on. So the target requests one change at a time, and does nothing before it has read the result.

mod interface;

pub use interface::{TargetAction, TargetEnd, TargetInput, TargetOutput};

use crate::limits::MIGRATION_RETRY_US;
use crate::migration::copying::Copies;
use crate::migration::local_view::{LeaseView, LocalView};
use crate::migration::message::{Left, Message};
use crate::migration::priority::Priority;
use crate::migration::pulls::{PulledObjects, Pulls};
use crate::migration::{MigrationMode, MigrationPhase, MigrationWait};

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum TargetPhase {
    Queued,
    Asking,
    Making,
    Deciding,
    HandingOver,
    Closing,
    Opening,
    Moving,
    Discarding,
    Cutting,
    Giving,
    Given,
    Over,
}

/// The state machine of a target.
#[derive(Debug)]
pub struct Target {
    phase: TargetPhase,
    local_view: LocalView,
    /// Whether the source, which returns with its objects, keeps the hashes if it goes.
    is_durable: bool,
    is_aborted: bool,
    is_given_up: bool,
    /// Whether the disk was asked for everything that was moved, and whether it has it.
    is_syncing: bool,
    is_synced: bool,
    /// Whether workers left the hashes for lack of a lease.
    is_closed: bool,
    /// When this phase's message is sent again.
    due_us: u64,
    pulls: Pulls,
    priority: Priority,
    /// The received copies, if the source sends on its own.
    copies: Option<Copies>,
    ceiling: u64,
    /// The returned piece in flight.
    giving: Option<Message>,
    given: u32,
}

fn act(out: &mut Vec<TargetOutput>, action: TargetAction) {
    out.push(TargetOutput::Do(action));
}

impl Target {
    /// Creates the target of a migration with this mode that begins or is restarted. In a durable one its part is on the
    /// disk, and nobody is served from it before the migration is finished.
    #[must_use]
    pub fn new(mode: MigrationMode, is_durable: bool) -> Self {
        Target {
            phase: TargetPhase::Queued,
            local_view: LocalView::new(),
            is_durable,
            is_aborted: false,
            is_given_up: false,
            is_syncing: false,
            is_synced: !is_durable,
            is_closed: false,
            due_us: 0,
            pulls: Pulls::new(&[]),
            priority: Priority::default(),
            copies: (mode == MigrationMode::PreCopy).then(Copies::new),
            ceiling: 0,
            giving: None,
            given: 0,
        }
    }

    /// Handles an input at `now_us`; appends the resulting outputs to `out`.
    pub fn step(&mut self, now_us: u64, input: TargetInput, out: &mut Vec<TargetOutput>) {
        let before = self.phase;
        match input {
            TargetInput::Message(message) => self.hear(message, out),
            TargetInput::Admitted if self.phase == TargetPhase::Queued => self.phase = TargetPhase::Asking,
            TargetInput::Admitted => {}
            TargetInput::Tick { allowance_bytes } => self.pulls.allow(allowance_bytes),
            TargetInput::Phase(phase) => self.learn_phase(phase, out),
            TargetInput::Forgotten(phase) => {
                self.learn_phase(phase, out);
                if self.local_view.phase == MigrationPhase::Finished {
                    // No source is left that could discard its objects.
                    self.phase = TargetPhase::Over;
                }
            }
            TargetInput::End(end) => self.end(end, out),
            TargetInput::Want(hash) => self.want(hash, out),
            TargetInput::Abort => self.is_aborted = true,
            TargetInput::SourceGone => self.lose_source(),
            TargetInput::Registered(is_registered) => self.local_view.lease.turn(is_registered),
        }
        self.open_or_close(out);
        self.check();
        self.decide(out);
        if self.phase != before {
            self.due_us = now_us;
        }
        self.talk(now_us, out);
    }

    /// Asserts that it takes over, and serves, only what the records give it.
    fn check(&self) {
        let is_moving = self.local_view.phase == MigrationPhase::Moving;
        let takes_over = matches!(
            self.phase,
            TargetPhase::HandingOver | TargetPhase::Closing | TargetPhase::Opening | TargetPhase::Moving
        );
        let serves = matches!(self.phase, TargetPhase::Opening | TargetPhase::Moving);
        debug_assert!(is_moving || !takes_over, "it takes over what the source owns");
        debug_assert!(
            !serves || self.is_closed || self.local_view.lease == LeaseView::Held,
            "it serves without a lease"
        );
        debug_assert!(
            !serves || self.copies.is_none() || self.is_given_up || !self.lacks(),
            "it serves before the copy is whole"
        );
    }

    /// Returns the last known phase in the records; after its end, the outcome.
    #[must_use]
    pub fn phase(&self) -> MigrationPhase {
        self.local_view.phase
    }

    /// Returns whether it is finished.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.phase == TargetPhase::Over
    }

    /// Returns whether it waits for a slot.
    #[must_use]
    pub fn is_queued(&self) -> bool {
        self.phase == TargetPhase::Queued
    }

    /// Returns the resource that it waits for.
    #[must_use]
    pub fn awaited(&self) -> MigrationWait {
        match self.phase {
            _ if self.local_view.is_committing() => MigrationWait::Records,
            _ if self.is_syncing && !self.is_synced => MigrationWait::Disk,
            TargetPhase::Queued => MigrationWait::Slot,
            TargetPhase::Asking
            | TargetPhase::HandingOver
            | TargetPhase::Giving
            | TargetPhase::Discarding => MigrationWait::Peer,
            _ => MigrationWait::Nothing,
        }
    }

    /// Returns whether all objects of a hash have arrived, or never will.
    #[must_use]
    pub fn has_arrived(&self, hash: u64) -> bool {
        self.is_given_up || self.pulls.has_arrived(hash)
    }

    /// Returns how many more hashes may wait.
    #[must_use]
    pub fn wants_free(&self) -> usize {
        self.priority.free()
    }

    fn hear(&mut self, message: Message, out: &mut Vec<TargetOutput>) {
        match (message, self.phase) {
            (Message::Prepared { objects }, TargetPhase::Asking) => {
                self.phase = TargetPhase::Making;
                act(out, TargetAction::MakePart { objects });
            }
            (Message::HandedOver { ceiling }, TargetPhase::HandingOver)
                if self.local_view.phase == MigrationPhase::Moving =>
            {
                self.phase = TargetPhase::Closing;
                self.ceiling = ceiling;
                self.close(out);
            }
            (
                Message::Copied(piece),
                TargetPhase::Deciding | TargetPhase::HandingOver | TargetPhase::Closing,
            ) => {
                let Some(copies) = self.copies.as_mut().filter(|_| !self.local_view.is_peer_gone) else {
                    return;
                };
                let due = copies.came(piece);
                if due.is_empty() {
                    // The acknowledgement of an earlier piece may be lost.
                    out.push(TargetOutput::Send(copies.said()));
                }
                due.into_iter().for_each(|piece| act(out, TargetAction::StoreCopy(piece)));
            }
            (Message::Pulled { partition, number, next, objects }, TargetPhase::Moving) => {
                let due = self.pulls.pulled(partition, number, PulledObjects { next, objects });
                replay(partition, due, out);
            }
            (Message::PriorityPulled { number, count, objects }, TargetPhase::Moving) => {
                if let Some(hashes) = self.priority.answered(number, count as usize) {
                    act(out, TargetAction::ReplayPriority { hashes, objects });
                }
            }
            (Message::Discarded, TargetPhase::Discarding) => self.phase = TargetPhase::Over,
            (Message::TakenBack { number }, TargetPhase::Giving) if number == self.given => self.taken(out),
            _ => {}
        }
    }

    fn end(&mut self, end: TargetEnd, out: &mut Vec<TargetOutput>) {
        match (end, self.phase) {
            (TargetEnd::PartMade(partitions), TargetPhase::Making) => {
                self.phase = TargetPhase::Deciding;
                if self.copies.is_none() {
                    self.pulls = Pulls::new(&partitions);
                }
            }
            (
                TargetEnd::CopyStored,
                TargetPhase::Deciding | TargetPhase::HandingOver | TargetPhase::Closing,
            ) => {
                if let Some(copies) = &mut self.copies {
                    copies.stored();
                    out.push(TargetOutput::Send(copies.said()));
                }
                self.close(out);
            }
            (TargetEnd::Committed(phase), _) => {
                self.local_view.committed(phase);
                self.learn_phase(phase, out);
            }
            (TargetEnd::LookedUp(phase, is_registered), _) => {
                self.local_view.looked_up(is_registered);
                self.learn_phase(phase, out);
            }
            (TargetEnd::Served, TargetPhase::Opening) => self.phase = TargetPhase::Moving,
            (TargetEnd::Replayed { partition }, TargetPhase::Moving) => {
                replay(partition, self.pulls.replayed(partition), out);
                let pulls = &self.pulls;
                let hashes = self.priority.take(|hash| pulls.has_arrived(hash));
                wake(hashes, out);
            }
            (TargetEnd::Synced, _) => self.is_synced = true,
            (TargetEnd::PriorityReplayed, TargetPhase::Moving) => wake(self.priority.replayed(), out),
            (TargetEnd::Cut(ceiling), TargetPhase::Cutting) => {
                self.phase = TargetPhase::Giving;
                self.ceiling = self.ceiling.max(ceiling);
                act(out, TargetAction::GatherBack);
            }
            (TargetEnd::GatheredBack { is_last, objects, removed }, TargetPhase::Giving) => {
                debug_assert!(self.giving.is_none(), "one piece goes back at a time");
                let (number, ceiling) = (self.given, self.ceiling);
                self.giving = Some(Message::GiveBack { number, is_last, ceiling, objects, removed });
                self.due_us = 0;
            }
            _ => {}
        }
    }

    /// Adopts the phase in the records, unless it is outdated.
    fn learn_phase(&mut self, phase: MigrationPhase, out: &mut Vec<TargetOutput>) {
        if !self.local_view.hear(phase) {
            return;
        }
        match (self.local_view.phase, self.phase) {
            (MigrationPhase::Moving, TargetPhase::Deciding) => self.phase = TargetPhase::HandingOver,
            (MigrationPhase::Returning, TargetPhase::Opening | TargetPhase::Moving) => {
                self.phase = TargetPhase::Cutting;
                act(out, TargetAction::Cut);
                wake(self.priority.take_all(), out);
            }
            (MigrationPhase::Returning, _) => {
                // This server has served no request, so it has no writes to return.
                self.phase = TargetPhase::Giving;
                let (objects, removed) = (Vec::new(), Vec::new());
                let nothing = Message::GiveBack { number: 0, is_last: true, ceiling: 0, objects, removed };
                self.giving = Some(nothing);
            }
            (MigrationPhase::Finished, phase) => {
                if self.lacks() {
                    self.give_up_rest(out);
                }
                if std::mem::take(&mut self.is_closed) || !matches!(phase, TargetPhase::Moving) {
                    act(out, TargetAction::Serve { ceiling: self.ceiling });
                }
                self.phase =
                    if self.local_view.is_peer_gone { TargetPhase::Over } else { TargetPhase::Discarding };
            }
            (MigrationPhase::Ended, phase) => {
                if matches!(phase, TargetPhase::Opening | TargetPhase::Moving) {
                    act(out, TargetAction::Cut);
                }
                act(out, TargetAction::DropPart);
                wake(self.priority.take_all(), out);
                self.phase = TargetPhase::Over;
            }
            _ => {}
        }
    }

    /// Requests the next change of the records.
    fn decide(&mut self, out: &mut Vec<TargetOutput>) {
        let is_aborted = self.is_aborted;
        let (to, is_peer_gone) = match (self.local_view.phase, self.phase) {
            (MigrationPhase::Preparing, _) if is_aborted => (MigrationPhase::Ended, false),
            (MigrationPhase::Preparing, _) if self.local_view.is_peer_gone => (MigrationPhase::Ended, true),
            (MigrationPhase::Preparing, TargetPhase::Deciding) if self.may_take_over() => {
                (MigrationPhase::Moving, false)
            }
            (MigrationPhase::Moving, TargetPhase::Moving) if self.pulls.are_done() && !is_aborted => {
                if !self.is_synced {
                    if !std::mem::replace(&mut self.is_syncing, true) {
                        act(out, TargetAction::Sync);
                    }
                    return;
                }
                (MigrationPhase::Finished, false)
            }
            (MigrationPhase::Moving | MigrationPhase::Returning, _) if self.local_view.is_peer_gone => {
                (if self.is_durable { MigrationPhase::Ended } else { MigrationPhase::Finished }, true)
            }
            (
                MigrationPhase::Moving,
                TargetPhase::HandingOver | TargetPhase::Closing | TargetPhase::Opening | TargetPhase::Moving,
            ) if is_aborted => (MigrationPhase::Returning, false),
            (MigrationPhase::Returning, TargetPhase::Given) => (MigrationPhase::Ended, false),
            _ => return,
        };
        if self.phase != TargetPhase::Over && self.local_view.may_commit(is_peer_gone) {
            let from = self.local_view.phase;
            debug_assert!((from as u8) < to as u8, "phases only go on");
            debug_assert!(
                to != MigrationPhase::Finished || self.local_view.is_peer_gone || !self.lacks(),
                "it ends before everything has arrived"
            );
            act(out, TargetAction::Commit { from, to, is_peer_gone });
        }
    }

    fn may_take_over(&self) -> bool {
        self.copies.as_ref().is_none_or(|copies| copies.left() != Left::Much)
    }

    /// Begins to serve after the source was cut and has sent everything that precedes.
    fn close(&mut self, out: &mut Vec<TargetOutput>) {
        let is_whole = self.copies.is_none() || !self.lacks();
        if self.phase == TargetPhase::Closing && is_whole {
            self.phase = TargetPhase::Opening;
            self.is_closed = self.local_view.lease != LeaseView::Held;
            if !self.is_closed {
                act(out, TargetAction::Serve { ceiling: self.ceiling });
            }
        }
    }

    /// Returns whether objects of the source are missing.
    fn lacks(&self) -> bool {
        match &self.copies {
            Some(copies) => copies.left() != Left::Nothing,
            None => self.local_view.is_peer_gone || !self.pulls.are_done(),
        }
    }

    fn want(&mut self, hash: u64, out: &mut Vec<TargetOutput>) {
        // The first workers serve requests before the last one has the range, in `Opening`.
        let is_moving = matches!(self.phase, TargetPhase::Opening | TargetPhase::Moving);
        let waits = is_moving && !self.has_arrived(hash) && self.priority.want(hash);
        if !waits {
            // The object is here or belongs to another server, or too many hashes wait. The woken request checks again.
            wake(vec![hash], out);
        }
    }

    /// Notes that a piece is back at the source.
    fn taken(&mut self, out: &mut Vec<TargetOutput>) {
        match self.giving.take() {
            Some(Message::GiveBack { is_last: true, .. }) => self.phase = TargetPhase::Given,
            Some(_) => {
                self.given += 1;
                act(out, TargetAction::GatherBack);
            }
            None => {}
        }
    }

    fn lose_source(&mut self) {
        self.local_view.is_peer_gone = true;
        if self.phase == TargetPhase::Discarding {
            self.phase = TargetPhase::Over;
        }
    }

    /// Gives up the objects that have not arrived.
    fn give_up_rest(&mut self, out: &mut Vec<TargetOutput>) {
        self.is_given_up = true;
        act(out, TargetAction::GiveUpRest);
        wake(self.priority.take_all(), out);
    }

    /// Stops serving the hashes while the server is unregistered.
    fn open_or_close(&mut self, out: &mut Vec<TargetOutput>) {
        let serves = self.local_view.phase == MigrationPhase::Moving
            && matches!(self.phase, TargetPhase::Opening | TargetPhase::Moving);
        if serves && !self.is_closed && self.local_view.lease != LeaseView::Held {
            self.is_closed = true;
            act(out, TargetAction::Cut);
            wake(self.priority.take_all(), out);
        } else if serves && self.is_closed && self.local_view.lease == LeaseView::Held {
            self.is_closed = false;
            act(out, TargetAction::Serve { ceiling: self.ceiling });
        }
        if self.local_view.wants_look() {
            act(out, TargetAction::LookUp);
        }
    }

    /// Sends what is due, again if there is no reply.
    fn talk(&mut self, now_us: u64, out: &mut Vec<TargetOutput>) {
        if self.local_view.is_peer_gone {
            return;
        }
        if self.phase == TargetPhase::Moving {
            self.pulls.poll(now_us, |message| out.push(TargetOutput::Send(message)));
            out.extend(self.priority.poll(now_us).map(TargetOutput::Send));
            return;
        }
        let message = match self.phase {
            TargetPhase::Asking => Some(Message::Prepare),
            TargetPhase::Deciding => {
                self.copies.as_ref().filter(|copies| !copies.are_begun()).map(|_| Message::Copy)
            }
            TargetPhase::HandingOver => Some(Message::HandOver),
            TargetPhase::Discarding => Some(Message::Discard),
            TargetPhase::Giving => self.giving.clone(),
            _ => None,
        };
        if let Some(message) = message.filter(|_| self.due_us <= now_us) {
            self.due_us = now_us + MIGRATION_RETRY_US;
            out.push(TargetOutput::Send(message));
        }
    }
}

fn replay(partition: u8, due: Option<PulledObjects>, out: &mut Vec<TargetOutput>) {
    if let Some(PulledObjects { next, objects }) = due {
        act(out, TargetAction::Replay { partition, next, objects });
    }
}

fn wake(hashes: Vec<u64>, out: &mut Vec<TargetOutput>) {
    if !hashes.is_empty() {
        act(out, TargetAction::Wake { hashes });
    }
}
