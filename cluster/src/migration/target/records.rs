//! The target's use of a migration's records: their consequences here, and the next change.
//!
//! Ownership and the end of the migration change by one commit each, on condition that the records still hold what was
//! decided on. So the target requests one change at a time, and does nothing before it has read the result.

use super::{Target, TargetAction, TargetOutput, TargetPhase, act, wake};
use crate::migration::Phase;
use crate::migration::message::{Left, Message};

impl Target {
    /// Adopts the phase in the records, unless it is outdated.
    pub(super) fn learn_phase(&mut self, phase: Phase, out: &mut Vec<TargetOutput>) {
        if !self.local_view.hear(phase) {
            return;
        }
        match (self.local_view.phase, self.phase) {
            (Phase::Moving, TargetPhase::Deciding) => self.phase = TargetPhase::HandingOver,
            (Phase::Returning, TargetPhase::Opening | TargetPhase::Moving) => {
                self.phase = TargetPhase::Cutting;
                act(out, TargetAction::Cut);
                wake(self.priority.take_all(), out);
            }
            (Phase::Returning, _) => {
                // This server has served no request, so it has no writes to return.
                self.phase = TargetPhase::Giving;
                let (objects, removed) = (Vec::new(), Vec::new());
                let nothing = Message::GiveBack { number: 0, is_last: true, ceiling: 0, objects, removed };
                self.giving = Some(nothing);
            }
            (Phase::Finished, phase) => {
                if self.lacks() {
                    self.give_up_rest(out);
                }
                if std::mem::take(&mut self.is_closed) || !matches!(phase, TargetPhase::Moving) {
                    act(out, TargetAction::Serve { ceiling: self.ceiling });
                }
                self.phase =
                    if self.local_view.is_peer_gone { TargetPhase::Over } else { TargetPhase::Discarding };
            }
            (Phase::Ended, phase) => {
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
    pub(super) fn decide(&mut self, out: &mut Vec<TargetOutput>) {
        let is_aborted = self.is_aborted;
        let (to, is_peer_gone) = match (self.local_view.phase, self.phase) {
            (Phase::Preparing, _) if is_aborted => (Phase::Ended, false),
            (Phase::Preparing, _) if self.local_view.is_peer_gone => (Phase::Ended, true),
            (Phase::Preparing, TargetPhase::Deciding) if self.may_take_over() => (Phase::Moving, false),
            (Phase::Moving, TargetPhase::Moving) if self.pulls.are_done() && !is_aborted => {
                (Phase::Finished, false)
            }
            (Phase::Moving | Phase::Returning, _) if self.local_view.is_peer_gone => (Phase::Finished, true),
            (
                Phase::Moving,
                TargetPhase::HandingOver | TargetPhase::Closing | TargetPhase::Opening | TargetPhase::Moving,
            ) if is_aborted => (Phase::Returning, false),
            (Phase::Returning, TargetPhase::Given) => (Phase::Ended, false),
            _ => return,
        };
        if self.phase != TargetPhase::Over && self.local_view.may_commit(is_peer_gone) {
            act(out, TargetAction::Commit { from: self.local_view.phase, to, is_peer_gone });
        }
    }

    fn may_take_over(&self) -> bool {
        self.copies.as_ref().is_none_or(|copies| copies.left() != Left::Much)
    }
}
