//! How servers of the simulated cluster serve on while the records do not answer, with promises of all others, as
//! `db/src/control_plane/promises.rs` does.

use std::collections::BTreeSet;
use std::time::Duration;

use cluster::limits::PROMISE_MS_MAX;
use cluster::metadata::ServerRun;
use cluster::promises::PromiseRound;
use db::limits::{FENCE_AFTER_MS, PROMISES_BEFORE_MS, PROMISES_LOOK_MS};

use super::starting::moment_us;
use super::{Event, LEASES_PACE, World};
use crate::mover::Fault;

/// How often a server asks.
const ASK_US: u64 = PROMISES_LOOK_MS * 1_000 / LEASES_PACE;
/// How long a question or an answer travels at most.
const TRAVEL_US: u64 = 1_500;

/// What a server asks the others for.
#[derive(Default)]
pub struct Asking {
    is_under_way: bool,
    rounds: u64,
    round: Option<PromiseRound>,
}

impl World {
    /// A server whose registration was not renewed asks for promises, unless it does.
    pub fn begin_to_ask(&mut self, run: ServerRun) {
        let place = self.places.get_mut(&run.server).expect("it is there");
        let Some(durable) = place.durable.as_mut().filter(|durable| durable.log.is_some()) else { return };
        if !std::mem::replace(&mut durable.asking.is_under_way, true) {
            self.at(self.now_us, Event::AskForPromises(run));
        }
    }

    /// A server asks all others for promises, while its fence is near and has not passed.
    pub fn ask_for_promises(&mut self, run: ServerRun) {
        if self.log(run).is_none() {
            return;
        }
        let (now, lease_us) = (self.lease_now(), self.now_us * LEASES_PACE);
        let place = self.places.get_mut(&run.server).expect("it is there");
        let is_held = place.member.lease(now).is_some();
        let left_us = place.node.as_ref().and_then(|node| node.fence.left_us(lease_us));
        let durable = place.durable.as_mut().expect("it has a log");
        let is_due = left_us.is_some_and(|left_us| left_us < PROMISES_BEFORE_MS * 1_000);
        if left_us.is_none_or(|left_us| left_us == 0) || is_held && !is_due {
            durable.asking.is_under_way = false;
            return;
        }
        self.at(self.now_us + ASK_US, Event::AskForPromises(run));
        if !is_due {
            return;
        }
        let place = self.places.get_mut(&run.server).expect("it is there");
        let durable = place.durable.as_mut().expect("it has a log");
        let log = durable.log.as_ref().expect("it lives");
        let counted = log.record.backups.iter().chain(log.wanted.iter().flat_map(|wanted| &wanted.backups));
        let others = counted.map(|id| id.server).chain(place.member.others.iter().copied());
        let others: BTreeSet<u32> = others.filter(|server| *server != run.server).collect();
        durable.asking.rounds += 1;
        let round = durable.asking.rounds;
        durable.asking.round = Some(PromiseRound::new(now, others.clone()));
        for asked in others {
            self.within(TRAVEL_US, Event::PromiseAsked { asker: run, asked, round });
        }
    }

    /// A server is asked for a promise.
    pub fn promise(&mut self, asker: ServerRun, asked: u32, round: u64) {
        let now = self.presence_now();
        let Some(place) = self.places.get_mut(&asked).filter(|place| place.node.is_some()) else { return };
        let Some(durable) = &place.durable else { return };
        let time = place.member.presence.not_gone_for(asker, true, now);
        let is_promised = !time.is_zero() && durable.promised.promise(asker.server, now, time);
        let time = match self.plan.fault {
            Fault::KeepsNoPromise => Duration::from_millis(PROMISE_MS_MAX),
            _ if is_promised => time,
            _ => Duration::ZERO,
        };
        self.within(TRAVEL_US, Event::Promised { asker, asked, round, time });
    }

    /// A server hears what another one promises.
    pub fn hear_promise(&mut self, asker: ServerRun, asked: u32, round: u64, time: Duration) {
        if self.log(asker).is_none() {
            return;
        }
        let now_us = self.now_us * LEASES_PACE;
        let place = self.places.get_mut(&asker.server).expect("it is there");
        let durable = place.durable.as_mut().expect("it has a log");
        if durable.asking.rounds != round {
            return;
        }
        let Some(asking) = &mut durable.asking.round else { return };
        asking.answered(asked, time);
        let fence = &place.node.as_ref().expect("it lives").fence;
        if let Some(until) = asking.until(Duration::from_millis(FENCE_AFTER_MS)) {
            fence.extend(now_us, moment_us(until));
            self.tally.promised += u64::from(!fence.is_passed(now_us));
        }
    }
}
