//! The source of a migration: it answers, and keeps what it has until the records say that it is another's.

use crate::cluster::migration::Standing;
use crate::cluster::migration::message::{Message, Place};
use crate::limits::MIGRATION_PARTITIONS;

/// What a source hears of.
#[derive(Clone, Debug, PartialEq)]
pub enum SourceInput {
    /// From the target.
    Message(Message),
    /// What the records say, as far as is known.
    Standing(Standing),
    /// An action has ended.
    End(SourceEnd),
    /// The target is dead: its lease is over, it serves nobody.
    TargetGone,
}

/// What is to be done here.
#[derive(Clone, Debug, PartialEq)]
pub enum SourceAction {
    /// Count the objects that would move.
    Count,
    /// Read the records, and say what they say.
    LookUp,
    /// Change what the records say, if it is that; then say what they say, changed or not.
    Commit {
        /// What they should say now.
        from: Standing,
        /// What they say then.
        to: Standing,
    },
    /// Take the range away from all workers.
    Cut,
    /// Gather a pull.
    Gather {
        /// As asked.
        partition: u8,
        /// As asked.
        number: u32,
        /// Behind this place.
        from: Option<Place>,
    },
    /// Gather all objects of these hashes.
    GatherHashes {
        /// As asked.
        number: u32,
        /// As asked.
        hashes: Vec<u64>,
    },
    /// Remove all objects of the range.
    Discard,
    /// Store objects that come back, remove what was removed.
    TakeBack {
        /// Their bytes.
        objects: Vec<u8>,
        /// Keys by their two hashes.
        removed: Vec<Place>,
    },
    /// Give the range to all workers, who write no version up to this one.
    Serve {
        /// At the target.
        ceiling: u64,
    },
}

/// How an action ended.
#[derive(Clone, Debug, PartialEq)]
pub enum SourceEnd {
    /// So many objects.
    Counted(u64),
    /// The records say so after the change, made or not.
    Committed(Standing),
    /// No worker has the range; no object of it has or had a higher version.
    Cut(u64),
    /// A pull.
    Gathered(Message),
    /// Nothing is left.
    Discarded,
    /// What came back is here.
    TakenBack,
    /// All workers have the range.
    Served,
}

/// What a source wants.
#[derive(Clone, Debug, PartialEq)]
pub enum SourceOutput {
    /// Sent to the target.
    Send(Message),
    /// Done here.
    Do(SourceAction),
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Phase {
    Serving,
    Cutting,
    Frozen { ceiling: u64 },
    Reopening,
    Discarding,
    Gone,
}

/// See the file's head.
#[derive(Debug)]
pub struct Source {
    phase: Phase,
    standing: Standing,
    is_committing: bool,
    is_target_gone: bool,
    /// Number of what comes back next.
    expected: u32,
    /// Whether it is being stored, and whether it is the last.
    taking: Option<bool>,
    /// Versions at the target.
    ceiling: u64,
    gathers: usize,
}

impl Default for Source {
    fn default() -> Self {
        Source {
            phase: Phase::Serving,
            standing: Standing::Preparing,
            is_committing: false,
            is_target_gone: false,
            expected: 0,
            taking: None,
            ceiling: 0,
            gathers: 0,
        }
    }
}

impl Source {
    /// Takes an input; what follows from it is appended to `out`.
    pub fn step(&mut self, input: SourceInput, out: &mut Vec<SourceOutput>) {
        match input {
            SourceInput::Message(message) => self.hear(message, out),
            SourceInput::Standing(standing) => self.standing = later(self.standing, standing),
            SourceInput::End(SourceEnd::Committed(standing)) => {
                self.is_committing = false;
                self.standing = later(self.standing, standing);
            }
            SourceInput::End(end) => self.end(end, out),
            SourceInput::TargetGone => self.is_target_gone = true,
        }
        self.follow(out);
    }

    /// Whether nothing will come of it any more.
    #[must_use]
    pub fn is_over(&self) -> bool {
        match self.standing {
            Standing::Ended => self.phase == Phase::Serving,
            Standing::Finished => self.phase == Phase::Gone,
            _ => false,
        }
    }

    /// Does what the standing asks for.
    fn follow(&mut self, out: &mut Vec<SourceOutput>) {
        let act = |out: &mut Vec<SourceOutput>, action| out.push(SourceOutput::Do(action));
        match (self.standing, self.phase) {
            (Standing::Moving | Standing::Finished, Phase::Serving) => {
                self.phase = Phase::Cutting;
                act(out, SourceAction::Cut);
            }
            (Standing::Ended, Phase::Frozen { ceiling }) if self.taking.is_none() => {
                self.phase = Phase::Reopening;
                act(out, SourceAction::Serve { ceiling: ceiling.max(self.ceiling) });
            }
            (Standing::Finished, Phase::Frozen { .. }) => {
                self.phase = Phase::Discarding;
                act(out, SourceAction::Discard);
            }
            _ => {}
        }
        let is_open = matches!(self.standing, Standing::Preparing | Standing::Moving | Standing::Returning);
        if self.is_target_gone && is_open && !self.is_committing {
            self.is_committing = true;
            act(out, SourceAction::Commit { from: self.standing, to: Standing::Ended });
        }
    }

    fn hear(&mut self, message: Message, out: &mut Vec<SourceOutput>) {
        let is_moving = self.standing == Standing::Moving;
        let act = |out: &mut Vec<SourceOutput>, action| out.push(SourceOutput::Do(action));
        match (message, self.phase) {
            (Message::Prepare, Phase::Serving) => act(out, SourceAction::Count),
            (Message::HandOver, Phase::Frozen { ceiling }) if is_moving => {
                out.push(SourceOutput::Send(Message::HandedOver { ceiling }));
            }
            (Message::HandOver, Phase::Serving) => act(out, SourceAction::LookUp),
            (Message::Pull { partition, number, from }, Phase::Frozen { .. })
                if is_moving && self.may_gather() =>
            {
                act(out, SourceAction::Gather { partition, number, from });
            }
            (Message::PriorityPull { number, hashes }, Phase::Frozen { .. })
                if is_moving && self.may_gather() =>
            {
                act(out, SourceAction::GatherHashes { number, hashes });
            }
            (Message::Discard, Phase::Gone) => out.push(SourceOutput::Send(Message::Discarded)),
            (Message::Discard, Phase::Frozen { .. }) => act(out, SourceAction::LookUp),
            (Message::GiveBack { number, .. }, phase)
                if number < self.expected && phase != Phase::Reopening =>
            {
                out.push(SourceOutput::Send(Message::TakenBack { number }));
            }
            (Message::GiveBack { .. }, _) if is_moving || self.standing == Standing::Preparing => {
                act(out, SourceAction::LookUp);
            }
            (Message::GiveBack { number, is_last: true, .. }, Phase::Serving) if number == 0 => {
                // It was never cut: the target has served nobody.
                self.expected = 1;
                out.push(SourceOutput::Send(Message::TakenBack { number }));
            }
            (Message::GiveBack { number, is_last, ceiling, objects, removed }, Phase::Frozen { .. })
                if number == self.expected
                    && self.taking.is_none()
                    && self.standing == Standing::Returning =>
            {
                self.taking = Some(is_last);
                self.ceiling = self.ceiling.max(ceiling);
                act(out, SourceAction::TakeBack { objects, removed });
            }
            _ => {}
        }
    }

    /// A target that keeps to the protocol has no more pulls on their way than it has partitions, and a priority pull.
    fn may_gather(&mut self) -> bool {
        let may = self.gathers <= MIGRATION_PARTITIONS;
        self.gathers += usize::from(may);
        may
    }

    fn end(&mut self, end: SourceEnd, out: &mut Vec<SourceOutput>) {
        match (end, self.phase) {
            (SourceEnd::Counted(objects), _) => out.push(SourceOutput::Send(Message::Prepared { objects })),
            (SourceEnd::Cut(ceiling), Phase::Cutting) => {
                self.phase = Phase::Frozen { ceiling };
                if self.standing == Standing::Moving {
                    out.push(SourceOutput::Send(Message::HandedOver { ceiling }));
                }
            }
            (SourceEnd::Gathered(message), _) => {
                self.gathers = self.gathers.saturating_sub(1);
                out.push(SourceOutput::Send(message));
            }
            (SourceEnd::Discarded, Phase::Discarding) => {
                self.phase = Phase::Gone;
                out.push(SourceOutput::Send(Message::Discarded));
            }
            (SourceEnd::TakenBack, Phase::Frozen { ceiling }) => {
                let number = self.expected;
                self.expected += 1;
                if self.taking.take() == Some(true) {
                    self.phase = Phase::Reopening;
                    out.push(SourceOutput::Do(SourceAction::Serve { ceiling: ceiling.max(self.ceiling) }));
                } else {
                    out.push(SourceOutput::Send(Message::TakenBack { number }));
                }
            }
            (SourceEnd::Served, Phase::Reopening) => {
                self.phase = Phase::Serving;
                if let Some(number) = self.expected.checked_sub(1) {
                    out.push(SourceOutput::Send(Message::TakenBack { number }));
                }
            }
            _ => {}
        }
    }
}

/// Who hears of two standings, in whatever order, believes the one that follows the other.
pub(super) fn later(one: Standing, other: Standing) -> Standing {
    if other as u8 > one as u8 { other } else { one }
}
