//! What the records say of a migration, as far as its target knows: what follows from it here, and what they should say next.
//!
//! The records change hands and ends by one commit each, under the condition that they still say what that was decided on;
//! so the target asks for one at a time, and does nothing before it has read what came of it.

use super::{Phase, Target, TargetAction, TargetOutput, act, wake};
use crate::cluster::migration::Standing;
use crate::cluster::migration::message::{Left, Message};

impl Target {
    /// Takes over what the records say, unless that is of the past.
    pub(super) fn believe(&mut self, standing: Standing, out: &mut Vec<TargetOutput>) {
        if !self.belief.hear(standing) {
            return;
        }
        match (self.belief.standing, self.phase) {
            (Standing::Moving, Phase::Deciding) => self.phase = Phase::HandingOver,
            (Standing::Returning, Phase::Opening | Phase::Moving) => {
                self.phase = Phase::Cutting;
                act(out, TargetAction::Cut);
                wake(self.priority.take_all(), out);
            }
            (Standing::Returning, _) => {
                // Nobody has been served here.
                self.phase = Phase::Giving;
                let (objects, removed) = (Vec::new(), Vec::new());
                let nothing = Message::GiveBack { number: 0, is_last: true, ceiling: 0, objects, removed };
                self.giving = Some(nothing);
            }
            (Standing::Finished, phase) => {
                if self.lacks() {
                    self.give_up_rest(out);
                }
                if std::mem::take(&mut self.is_closed) || !matches!(phase, Phase::Moving) {
                    act(out, TargetAction::Serve { ceiling: self.ceiling });
                }
                self.phase = if self.belief.is_peer_gone { Phase::Over } else { Phase::Discarding };
            }
            (Standing::Ended, phase) => {
                if matches!(phase, Phase::Opening | Phase::Moving) {
                    act(out, TargetAction::Cut);
                }
                act(out, TargetAction::DropPart);
                wake(self.priority.take_all(), out);
                self.phase = Phase::Over;
            }
            _ => {}
        }
    }

    /// What the records should say next.
    pub(super) fn decide(&mut self, out: &mut Vec<TargetOutput>) {
        let is_aborted = self.is_aborted;
        let (to, is_peer_gone) = match (self.belief.standing, self.phase) {
            (Standing::Preparing, _) if is_aborted => (Standing::Ended, false),
            (Standing::Preparing, _) if self.belief.is_peer_gone => (Standing::Ended, true),
            (Standing::Preparing, Phase::Deciding) if self.may_take_over() => (Standing::Moving, false),
            (Standing::Moving, Phase::Moving) if self.pulls.are_done() && !is_aborted => {
                (Standing::Finished, false)
            }
            (Standing::Moving | Standing::Returning, _) if self.belief.is_peer_gone => {
                (Standing::Finished, true)
            }
            (Standing::Moving, Phase::HandingOver | Phase::Closing | Phase::Opening | Phase::Moving)
                if is_aborted =>
            {
                (Standing::Returning, false)
            }
            (Standing::Returning, Phase::Given) => (Standing::Ended, false),
            _ => return,
        };
        if self.phase != Phase::Over && self.belief.may_commit(is_peer_gone) {
            act(out, TargetAction::Commit { from: self.belief.standing, to, is_peer_gone });
        }
    }

    fn may_take_over(&self) -> bool {
        self.copies.as_ref().is_none_or(|copies| copies.left() != Left::Much)
    }
}
