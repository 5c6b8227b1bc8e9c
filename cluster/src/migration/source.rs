//! The source of a migration: it answers, and keeps its objects until the records name another owner.
//!
//! Once its registration is over, other servers may declare it gone and own the moving hashes. So from then on it
//! serves none of them, until it is registered again and has read that it owns them.

mod interface;

pub use interface::{SourceAction, SourceEnd, SourceInput, SourceOutput};

use crate::limits::MIGRATION_PARTITIONS;
use crate::migration::copying::{CopyState, CopyStep};
use crate::migration::local_view::{LeaseView, LocalView};
use crate::migration::message::Message;
use crate::migration::{MigrationPhase, MigrationWait};

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum SourcePhase {
    Serving,
    Cutting,
    Frozen { ceiling: u64 },
    Reopening,
    Discarding,
    Gone,
}

/// Whether the source may work on the store.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum SourceSlot {
    None,
    Asked,
    Held,
}

/// The state machine of a source.
#[derive(Debug)]
pub struct Source {
    slot: SourceSlot,
    phase: SourcePhase,
    local_view: LocalView,
    is_forgotten: bool,
    /// Whether it was cut only for lack of a lease.
    is_closed: bool,
    /// The number of the next returned piece.
    expected: u32,
    /// `Some` while a returned piece is being stored: whether it is the last.
    taking: Option<bool>,
    /// The highest version at the target.
    ceiling: u64,
    gathers: usize,
    copying: CopyState,
}

impl Default for Source {
    fn default() -> Self {
        Source {
            slot: SourceSlot::None,
            phase: SourcePhase::Serving,
            local_view: LocalView::new(),
            is_forgotten: false,
            is_closed: false,
            expected: 0,
            taking: None,
            ceiling: 0,
            gathers: 0,
            copying: CopyState::new(),
        }
    }
}

impl Source {
    /// Handles an input; appends the resulting outputs to `out`.
    pub fn step(&mut self, input: SourceInput, out: &mut Vec<SourceOutput>) {
        match input {
            SourceInput::Message(message) => self.hear(message, out),
            SourceInput::Admitted => {
                self.slot = SourceSlot::Held;
                if self.phase == SourcePhase::Serving && self.local_view.phase == MigrationPhase::Preparing {
                    out.push(SourceOutput::Do(SourceAction::Count));
                }
            }
            SourceInput::Phase(phase) => self.learn_phase(phase),
            SourceInput::Forgotten(phase) => {
                self.is_forgotten = true;
                self.learn_phase(phase);
            }
            SourceInput::End(SourceEnd::Committed(phase)) => {
                self.local_view.committed(phase);
                self.learn_phase(phase);
            }
            SourceInput::End(SourceEnd::LookedUp(phase, is_registered)) => {
                self.local_view.looked_up(is_registered);
                self.learn_phase(phase);
            }
            SourceInput::End(end) => self.end(end, out),
            SourceInput::Tick { now_us, allowance_bytes } => {
                let mut again = Vec::new();
                let step = self.copying.tick(now_us, allowance_bytes, &mut again);
                out.extend(again.into_iter().map(SourceOutput::Send));
                copy(step, out);
            }
            SourceInput::TargetGone => self.local_view.is_peer_gone = true,
            SourceInput::Registered(is_registered) => self.local_view.lease.turn(is_registered),
        }
        self.follow(out);
        self.check();
        if self.local_view.wants_look() {
            out.push(SourceOutput::Do(SourceAction::LookUp));
        }
    }

    /// Asserts that it serves no hash that another server may own.
    fn check(&self) {
        let (phase, is_serving) = (self.local_view.phase, self.phase == SourcePhase::Serving);
        debug_assert!(
            !is_serving || !matches!(phase, MigrationPhase::Moving | MigrationPhase::Finished),
            "it serves what the target owns"
        );
        debug_assert!(
            !is_serving || phase == MigrationPhase::Ended || self.local_view.lease == LeaseView::Held,
            "it serves without a lease"
        );
        debug_assert!(
            self.taking.is_none() || !matches!(self.phase, SourcePhase::Serving | SourcePhase::Reopening),
            "it serves before everything is back"
        );
        debug_assert!(
            !matches!(self.phase, SourcePhase::Discarding | SourcePhase::Gone)
                || self.slot == SourceSlot::Held,
            "it removes its objects without a slot"
        );
        debug_assert!(self.gathers <= MIGRATION_PARTITIONS + 1, "it gathers more than a target may ask for");
    }

    /// Returns whether it sends copies on its own, within its allowance.
    #[must_use]
    pub fn is_copying(&self) -> bool {
        self.copying.is_on()
    }

    /// Returns whether it sends the rest while requests wait for it.
    #[must_use]
    pub fn is_in_a_hurry(&self) -> bool {
        self.copying.is_cut()
    }

    /// Returns the last known phase in the records; after its end, the outcome.
    #[must_use]
    pub fn phase(&self) -> MigrationPhase {
        self.local_view.phase
    }

    /// Returns the resource that it waits for.
    #[must_use]
    pub fn awaited(&self) -> MigrationWait {
        match (self.slot, self.local_view.phase) {
            _ if self.local_view.is_committing() => MigrationWait::Records,
            (SourceSlot::Asked, _) => MigrationWait::Slot,
            (SourceSlot::None, MigrationPhase::Preparing) => MigrationWait::Peer,
            _ => MigrationWait::Nothing,
        }
    }

    /// Returns whether it is finished.
    #[must_use]
    pub fn is_over(&self) -> bool {
        match self.local_view.phase {
            MigrationPhase::Ended => {
                self.phase == SourcePhase::Serving || self.is_forgotten && self.phase == SourcePhase::Gone
            }
            MigrationPhase::Finished => self.phase == SourcePhase::Gone,
            _ => false,
        }
    }

    fn learn_phase(&mut self, phase: MigrationPhase) {
        // With a new phase, a missing lease is no longer the reason for the cut, and another rule reopens the range.
        self.is_closed &= !self.local_view.hear(phase);
    }

    /// Acts according to the phase.
    fn follow(&mut self, out: &mut Vec<SourceOutput>) {
        let act = |out: &mut Vec<SourceOutput>, action| out.push(SourceOutput::Do(action));
        match (self.local_view.phase, self.phase) {
            (MigrationPhase::Moving | MigrationPhase::Finished, SourcePhase::Serving) => {
                self.phase = SourcePhase::Cutting;
                act(out, SourceAction::Cut);
            }
            (MigrationPhase::Preparing | MigrationPhase::Returning, SourcePhase::Serving)
                if self.local_view.lease != LeaseView::Held =>
            {
                self.phase = SourcePhase::Cutting;
                self.is_closed = true;
                act(out, SourceAction::Cut);
            }
            (MigrationPhase::Preparing | MigrationPhase::Returning, SourcePhase::Frozen { ceiling })
                if self.is_closed && self.taking.is_none() && self.local_view.lease == LeaseView::Held =>
            {
                self.phase = SourcePhase::Reopening;
                self.is_closed = false;
                act(out, SourceAction::Serve { ceiling: ceiling.max(self.ceiling) });
            }
            (MigrationPhase::Ended, SourcePhase::Frozen { ceiling }) if self.taking.is_none() => {
                self.phase = SourcePhase::Reopening;
                act(out, SourceAction::Serve { ceiling: ceiling.max(self.ceiling) });
            }
            (MigrationPhase::Finished, SourcePhase::Frozen { .. }) if self.has_slot(out) => {
                self.phase = SourcePhase::Discarding;
                act(out, SourceAction::Discard);
            }
            _ => {}
        }
        match (self.local_view.phase, self.phase) {
            // The cut is final, so everything goes to the target.
            (MigrationPhase::Moving, SourcePhase::Frozen { .. }) => copy(self.copying.cut(), out),
            (MigrationPhase::Preparing | MigrationPhase::Moving, _) => {}
            _ => self.copying.end(),
        }
        let is_open = matches!(
            self.local_view.phase,
            MigrationPhase::Preparing | MigrationPhase::Moving | MigrationPhase::Returning
        );
        if self.local_view.is_peer_gone && is_open && self.local_view.may_commit(true) {
            let (from, to) = (self.local_view.phase, MigrationPhase::Ended);
            act(out, SourceAction::Commit { from, to, is_peer_gone: true });
        }
    }

    fn hear(&mut self, message: Message, out: &mut Vec<SourceOutput>) {
        // The sender has read the phase that permits the message in the records.
        match &message {
            Message::HandOver => self.learn_phase(MigrationPhase::Moving),
            Message::GiveBack { .. } => self.learn_phase(MigrationPhase::Returning),
            Message::Discard => self.learn_phase(MigrationPhase::Finished),
            _ => {}
        }
        let is_for_the_store = matches!(
            message,
            Message::Prepare
                | Message::Copy
                | Message::Pull { .. }
                | Message::PriorityPull { .. }
                | Message::GiveBack { .. }
        );
        // An ended migration needs no work on the store. Without a slot the message is dropped: the target retransmits.
        if is_for_the_store && (self.local_view.phase == MigrationPhase::Ended || !self.has_slot(out)) {
            return;
        }
        let is_moving = self.local_view.phase == MigrationPhase::Moving;
        let act = |out: &mut Vec<SourceOutput>, action| out.push(SourceOutput::Do(action));
        match (message, self.phase) {
            (Message::Prepare, SourcePhase::Serving) => act(out, SourceAction::Count),
            (Message::Copy, SourcePhase::Serving) if self.local_view.phase == MigrationPhase::Preparing => {
                copy(self.copying.begin(), out);
            }
            (Message::Stored { count }, _) => copy(self.copying.stored(count), out),
            (Message::HandOver, SourcePhase::Frozen { ceiling }) if is_moving => {
                out.push(SourceOutput::Send(Message::HandedOver { ceiling }));
            }
            (Message::Pull { partition, number, from }, SourcePhase::Frozen { .. })
                if is_moving && self.may_gather() =>
            {
                act(out, SourceAction::Gather { partition, number, from });
            }
            (Message::PriorityPull { number, hashes }, SourcePhase::Frozen { .. })
                if is_moving && self.may_gather() =>
            {
                act(out, SourceAction::GatherHashes { number, hashes });
            }
            (Message::Discard, SourcePhase::Gone) => out.push(SourceOutput::Send(Message::Discarded)),
            (Message::GiveBack { number, .. }, phase)
                if number < self.expected && phase != SourcePhase::Reopening =>
            {
                out.push(SourceOutput::Send(Message::TakenBack { number }));
            }
            (Message::GiveBack { number, is_last: true, .. }, SourcePhase::Serving) if number == 0 => {
                // The range was never cut, because the target has served no request.
                self.expected = 1;
                out.push(SourceOutput::Send(Message::TakenBack { number }));
            }
            (
                Message::GiveBack { number, is_last, ceiling, objects, removed },
                SourcePhase::Frozen { .. },
            ) if number == self.expected
                && self.taking.is_none()
                && self.local_view.phase == MigrationPhase::Returning =>
            {
                self.taking = Some(is_last);
                self.ceiling = self.ceiling.max(ceiling);
                act(out, SourceAction::TakeBack { objects, removed });
            }
            _ => {}
        }
    }

    /// Returns whether it may work on the store; the first call requests a slot.
    fn has_slot(&mut self, out: &mut Vec<SourceOutput>) -> bool {
        if self.slot == SourceSlot::None {
            self.slot = SourceSlot::Asked;
            out.push(SourceOutput::Do(SourceAction::TakeSlot));
        }
        self.slot == SourceSlot::Held
    }

    /// Returns whether another pull may be gathered. A target that follows the protocol never has more pulls in flight
    /// than one per partition and a priority pull.
    fn may_gather(&mut self) -> bool {
        let may = self.gathers <= MIGRATION_PARTITIONS;
        self.gathers += usize::from(may);
        may
    }

    fn end(&mut self, end: SourceEnd, out: &mut Vec<SourceOutput>) {
        match (end, self.phase) {
            (SourceEnd::Counted(objects), _) => out.push(SourceOutput::Send(Message::Prepared { objects })),
            (SourceEnd::Cut(ceiling), SourcePhase::Cutting) => {
                self.phase = SourcePhase::Frozen { ceiling };
                if self.local_view.phase == MigrationPhase::Moving {
                    out.push(SourceOutput::Send(Message::HandedOver { ceiling }));
                }
            }
            (SourceEnd::Watched, _) => copy(self.copying.watched(), out),
            (SourceEnd::GatheredCopy(gathered), _) => {
                let (message, step) = self.copying.gathered(gathered);
                out.extend(message.map(SourceOutput::Send));
                copy(step, out);
            }
            (SourceEnd::Gathered(message), _) => {
                debug_assert!(self.gathers > 0, "a pull ends that was begun");
                self.gathers = self.gathers.saturating_sub(1);
                out.push(SourceOutput::Send(message));
            }
            (SourceEnd::Discarded, SourcePhase::Discarding) => {
                self.phase = SourcePhase::Gone;
                out.push(SourceOutput::Send(Message::Discarded));
            }
            (SourceEnd::TakenBack, SourcePhase::Frozen { ceiling }) => {
                debug_assert!(self.taking.is_some(), "a piece ends that was begun");
                let number = self.expected;
                self.expected += 1;
                if self.taking.take() != Some(true) {
                    out.push(SourceOutput::Send(Message::TakenBack { number }));
                } else if self.local_view.lease == LeaseView::Held {
                    self.phase = SourcePhase::Reopening;
                    out.push(SourceOutput::Do(SourceAction::Serve { ceiling: ceiling.max(self.ceiling) }));
                } else {
                    self.is_closed = true;
                }
            }
            (SourceEnd::Served, SourcePhase::Reopening) => {
                self.phase = SourcePhase::Serving;
                if let Some(number) = self.expected.checked_sub(1) {
                    out.push(SourceOutput::Send(Message::TakenBack { number }));
                }
            }
            _ => {}
        }
    }
}

fn copy(step: Option<CopyStep>, out: &mut Vec<SourceOutput>) {
    out.extend(step.map(|step| {
        SourceOutput::Do(match step {
            CopyStep::Watch => SourceAction::Watch,
            CopyStep::Gather(round) => SourceAction::GatherCopy { round },
        })
    }));
}
