//! The part that receives objects: made, served from, left, dropped.
//!
//! ```text
//!   made ──▶ expects objects ──▶ workers have it ──▶ settled
//!                                     └─▶ they leave it: its objects go back, and it is dropped
//! ```
//! Workers learn each step by a change of their catalogs; each change wakes the requests that wait for objects.

use std::sync::Arc;

use cluster::limits::MIGRATION_PARTITIONS;
use cluster::migration::Mode;

use super::TargetSide;
use crate::server::migrations::progress::Figure;
use crate::server::migrations::running::ExitReason;
use crate::tablet::{Moving, PartsChange};

impl TargetSide {
    pub(super) fn make_part(&mut self, objects: u64) -> Result<(), ExitReason> {
        let control = &self.ground.control;
        let entry = control.table_of(self.ground.row.table).ok_or(ExitReason::Gone)?;
        self.ground.progress.set(Figure::ObjectsExpected, objects);
        self.part = Some(control.make_part(&entry, self.ground.row.hashes, objects));
        Ok(())
    }

    /// Lets workers serve from the part; a second call changes nothing.
    pub(super) fn serve(&mut self, ceiling: u64) -> Result<(), ExitReason> {
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
            self.is_given_up |= self.ground.row.mode == Mode::PreCopy;
            let waker = self.ground.tasks.post.waker();
            part.on_want(Box::new(move || waker.wake()));
            if self.is_given_up {
                self.give_up_rest();
            }
        }
        if self.stands_still() {
            return Ok(());
        }
        self.open()?;
        self.ground.begin();
        Ok(())
    }

    /// Returns true if nobody may be served before all objects have arrived.
    pub(super) fn stands_still(&self) -> bool {
        self.ground.row.mode == Mode::StopAndCopy && !self.is_finished
    }

    /// Gives the hashes to the workers; a second call changes nothing.
    pub(super) fn open(&mut self) -> Result<(), ExitReason> {
        let Some(part) = self.part.clone().filter(|_| self.expects && self.opened_us.is_none()) else {
            return Ok(());
        };
        self.opened_us = Some(self.ground.now_us());
        let hashes = self.ground.bounds();
        let take = vec![hashes];
        if self.ground.row.mode == Mode::Cooperative {
            let pieces = vec![(hashes, Arc::clone(&part))];
            self.moving = Some(Arc::new(Moving::new(self.ground.row.id, pieces, 0)));
        }
        let moving = self.moving.iter().cloned().collect();
        let change = PartsChange { take, come: vec![part], moving, ..PartsChange::default() };
        self.ground.alter(&change).ok_or(ExitReason::Gone)?;
        if let Some(from_us) = self.pause_us {
            self.ground.progress.set(Figure::PauseUs, self.ground.now_us().saturating_sub(from_us));
        }
        Ok(())
    }

    pub(super) fn give_up_rest(&self) {
        let Some(part) = self.part.as_ref().filter(|_| self.expects) else { return };
        for (partition, hashes) in self.partitions.iter().enumerate() {
            part.arrived(partition, hashes.last());
        }
        self.ground.control.wake(part, None);
    }

    /// Stops telling clients to ask the source.
    pub(super) fn close(&mut self) {
        if let Some(moving) = self.moving.take() {
            moving.close();
            self.ground.progress.take_spent(&moving);
        }
    }

    pub(super) fn cut(&mut self) -> Result<u64, ExitReason> {
        self.close();
        let change = PartsChange { leave: vec![self.ground.bounds()], ..PartsChange::default() };
        self.ground.alter(&change).ok_or(ExitReason::Gone)?;
        self.opened_us = None;
        let Some(part) = &self.part else { return Ok(0) };
        // Pending requests find that another server owns their hashes.
        self.ground.control.wake(part, None);
        Ok(part.version_ceiling())
    }

    pub(super) fn drop_part(&mut self) {
        self.close();
        let Some(part) = self.part.take() else { return };
        let change = PartsChange { go: vec![Arc::clone(&part)], ..PartsChange::default() };
        // If the table is gone, so are its parts.
        let _ = self.ground.alter(&change);
        self.ground.control.wake(&part, None);
        part.retire();
    }
}
