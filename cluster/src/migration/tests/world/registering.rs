//! The records of the two servers: a compare-and-swap, and leases that end for a side that is cut off.

use super::{Event, World};
use crate::migration::{Phase, SourceEnd, SourceInput, TargetEnd, TargetInput};

/// A side without access to the records loses its registration after this time.
const LEASE_US: u64 = 300_000;
/// The other side declares it gone after this additional time.
const GONE_AFTER_US: u64 = 200_000;

impl World {
    /// Schedules a time in which the records do not answer a side, and its consequences.
    pub(super) fn cut_off(&mut self, side: usize, from_us: u64, for_us: u64) {
        self.at(from_us, Event::CutOff(side, true));
        self.at(from_us + for_us, Event::CutOff(side, false));
        if for_us <= LEASE_US {
            return;
        }
        self.at(from_us + LEASE_US, Event::Lease(side, false));
        let back_us = from_us + for_us + self.random.u64(1..30_000);
        self.at(back_us, Event::Lease(side, true));
        // The news may arrive late.
        for _ in 0..self.random.u8(0..4) {
            let gone_us = self.random.u64(0..for_us);
            if gone_us > LEASE_US + GONE_AFTER_US {
                let told_us = from_us + gone_us + self.random.u64(0..100_000);
                self.at(told_us, Event::Gone(side));
            }
        }
    }

    pub(super) fn lease(&mut self, side: usize, is_held: bool) {
        let number = self.now_us;
        self.leases[side] = is_held.then_some(number);
        let serves = |world: &World| match side {
            0 => world.source.as_ref().is_some_and(|source| source.serves),
            _ => world.target.as_ref().is_some_and(|target| target.serves),
        };
        self.closed += u32::from(!is_held && serves(self));
        match side {
            0 => self.tell_source(SourceInput::Registered(is_held)),
            _ => self.tell_target(TargetInput::Registered(is_held)),
        }
    }

    /// Changes the phase by compare-and-swap, and returns the resulting phase.
    pub(super) fn commit(&mut self, from: Phase, to: Phase, gone: Option<usize>) -> Phase {
        if self.records == from && gone.is_none_or(|side| self.leases[side].is_none()) {
            self.records = to;
            self.is_lost |= gone.is_some();
            self.has_returned |= to == Phase::Returning;
            (0..self.cut_off.len()).for_each(|side| self.follow_records(side));
        }
        self.records
    }

    /// Reports the phase to a side after a delay, unless it is cut off: then it is told at the end of that.
    pub(super) fn follow_records(&mut self, side: usize) {
        let phase = self.records;
        match (self.cut_off[side], side) {
            (true, _) => {}
            (false, 0) => self.soon(Event::ToSource(SourceInput::Phase(phase))),
            (false, _) => self.soon(Event::ToTarget(TargetInput::Phase(phase))),
        }
    }

    pub(super) fn read(&mut self, side: usize) {
        let event = Event::Read(side, self.records, self.leases[side]);
        self.soon(event);
    }

    pub(super) fn has_read(&mut self, side: usize, phase: Phase, lease: Option<u64>) {
        let is_registered = lease.is_some() && lease == self.leases[side];
        match side {
            0 => self.tell_source(SourceInput::End(SourceEnd::LookedUp(phase, is_registered))),
            _ => self.tell_target(TargetInput::End(TargetEnd::LookedUp(phase, is_registered))),
        }
    }
}
