//! Machines of migrations in the simulated cluster: what they are told, what they say to each other, what is done for them.

use cluster::metadata::{ServerRun, Side};
use cluster::migration::{
    Message, MigrationPhase, SourceAction, SourceEnd, SourceInput, SourceOutput, TargetAction, TargetEnd,
    TargetInput, TargetOutput,
};
use cluster::records::LeaseId;

use super::following::map_now;
use super::{Event, World};
use crate::mover::{Acted, Action, End, Fault, Machine, Moving};
use crate::node::Owning;

/// How often targets hear of time.
const TICK_US: u64 = 12_000;
/// When records are asked again that did not answer.
const AGAIN_US: u64 = 60_000;

impl World {
    fn moving(&mut self, run: ServerRun, id: u32) -> Option<&mut Moving> {
        let is_alive = self.is_alive(run);
        self.places.get_mut(&run.server).filter(|_| is_alive)?.movings.get_mut(&id)
    }

    pub fn tell_source(&mut self, run: ServerRun, id: u32, input: SourceInput) {
        let Some(moving) = self.moving(run, id) else { return };
        let peer = moving.peer;
        let Machine::Source(machine) = &mut moving.machine else { return };
        let mut out = Vec::new();
        machine.step(input, &mut out);
        for output in out {
            match output {
                SourceOutput::Send(message) => self.send_message(peer, id, &message),
                SourceOutput::Do(action) => self.plan_action(run, id, Action::Source(action)),
            }
        }
    }

    pub fn tell_target(&mut self, run: ServerRun, id: u32, input: TargetInput) {
        let now_us = self.now_us;
        let Some(moving) = self.moving(run, id) else { return };
        let peer = moving.peer;
        let finishes = matches!(
            input,
            TargetInput::Phase(MigrationPhase::Finished)
                | TargetInput::Forgotten(MigrationPhase::Finished)
                | TargetInput::End(
                    TargetEnd::Committed(MigrationPhase::Finished)
                        | TargetEnd::LookedUp(MigrationPhase::Finished, _)
                )
        );
        let Machine::Target(machine) = &mut moving.machine else { return };
        let mut out = Vec::new();
        machine.step(now_us, input, &mut out);
        for output in out {
            match output {
                TargetOutput::Send(message) => self.send_message(peer, id, &message),
                TargetOutput::Do(TargetAction::Wake { hashes }) => {
                    let part = self.moving(run, id).and_then(|moving| moving.part.clone());
                    if let Some(part) = part {
                        part.not_pulled(&hashes);
                        self.wake(run, &part, Some(&hashes));
                    }
                }
                TargetOutput::Do(action) => self.plan_action(run, id, Action::Target(action)),
            }
        }
        let opens = self.moving(run, id).filter(|_| finishes).and_then(Moving::finish);
        if let Some(owning) = opens {
            self.own(run, owning);
        }
    }

    /// A server changes what it owns; clients hear of it with the cut.
    pub fn own(&mut self, run: ServerRun, owning: Owning) {
        let place = self.places.get_mut(&run.server).expect("it is there");
        let Some(node) = place.node.as_mut() else { return };
        if let Some(map) = map_now(&place.member.metadata) {
            node.set_map(map);
        }
        if node.own(owning) {
            self.pass_soon(run);
        }
    }

    fn send_message(&mut self, to: ServerRun, id: u32, message: &Message) {
        for due_us in self.travel() {
            self.at(due_us, Event::Message { run: to, id, bytes: message.encode() });
        }
    }

    pub fn message(&mut self, run: ServerRun, id: u32, bytes: &[u8]) {
        let message = Message::decode(bytes).expect("as it was sent");
        self.tell_source(run, id, SourceInput::Message(message.clone()));
        self.tell_target(run, id, TargetInput::Message(message));
    }

    /// Lets what waits at a server's workers for objects of a part go on.
    fn wake(&mut self, run: ServerRun, part: &store::Table, hashes: Option<&[u64]>) {
        let place = self.places.get_mut(&run.server).expect("it is there");
        if let Some(node) = &mut place.node {
            node.wake(part, hashes);
        }
    }

    /// Time passes for the workers of a server and for its targets.
    pub fn tick(&mut self, run: ServerRun) {
        if !self.is_alive(run) {
            return;
        }
        self.within(TICK_US, Event::Tick(run));
        for worker in 0..self.plan.workers {
            let node = self.places[&run.server].node.as_ref().expect("it lives");
            if node.is_due(worker, self.now_us) {
                self.round(run.server, worker, None);
            }
        }
        let ids: Vec<u32> = self.places[&run.server].movings.keys().copied().collect();
        for id in ids {
            self.tell_of_lease(run, id);
            let Some(moving) = self.moving(run, id).filter(|moving| !moving.is_over()) else { continue };
            let mut wanted = Vec::new();
            if let (Machine::Target(machine), Some(part)) = (&moving.machine, &moving.part) {
                part.take_wanted(machine.wants_free(), &mut wanted);
            }
            wanted.into_iter().for_each(|hash| self.tell_target(run, id, TargetInput::Want(hash)));
            let allowance_bytes = self.random.u64(0..self.pace_bytes(id));
            self.tell_target(run, id, TargetInput::Tick { allowance_bytes });
            self.tell_source(run, id, SourceInput::Tick { now_us: self.now_us, allowance_bytes });
        }
    }

    /// What a migration may ask for at most between two ticks: every other one takes its time.
    fn pace_bytes(&self, id: u32) -> u64 {
        match (id.is_multiple_of(2), self.plan.fill_objects) {
            (true, _) => 60_000,
            (false, 0) => 8,
            (false, _) => 2_000,
        }
    }

    /// Records are read and changed beside; what is done on the store is done one after the other.
    fn plan_action(&mut self, run: ServerRun, id: u32, action: Action) {
        if action == Action::Source(SourceAction::TakeSlot) {
            return self.take_slot(run, Side::Source, id);
        }
        let is_of_records = matches!(
            action,
            Action::Source(SourceAction::LookUp | SourceAction::Commit { .. })
                | Action::Target(TargetAction::LookUp | TargetAction::Commit { .. })
        );
        if is_of_records {
            return self.within(8_000, Event::Act { run, id, action });
        }
        if let Some(moving) = self.moving(run, id) {
            moving.queue.push_back(action);
            self.do_next(run, id);
        }
    }

    fn do_next(&mut self, run: ServerRun, id: u32) {
        let Some(moving) = self.moving(run, id).filter(|moving| moving.doing.is_none()) else { return };
        if let Some(action) = moving.queue.pop_front() {
            moving.doing = Some(action.clone());
            self.within(3_000, Event::Act { run, id, action });
        }
    }

    pub fn act(&mut self, run: ServerRun, id: u32, action: Action) {
        if self.moving(run, id).is_none() {
            return;
        }
        let end = match action {
            Action::Source(SourceAction::LookUp) | Action::Target(TargetAction::LookUp) => {
                let member = &self.places[&run.server].member;
                let (found, lease) = (member.metadata.migration_find(id), member.lease(self.lease_now()));
                return match found {
                    Ok(Some(row)) => {
                        self.within(5_000, Event::Looked { run, id, phase: row.phase, lease });
                    }
                    // It is asked for again, or ends when the server follows the records.
                    Ok(None) | Err(_) => self.within(AGAIN_US, Event::Act { run, id, action }),
                };
            }
            Action::Source(SourceAction::Commit { from, to, is_peer_gone }) => {
                let phase = self.advance(run, id, (from, to), is_peer_gone.then_some(Side::Target));
                phase.map(|phase| End::Source(SourceEnd::Committed(phase)))
            }
            Action::Target(TargetAction::Commit { from, to, is_peer_gone }) => {
                let phase = self.advance(run, id, (from, to), is_peer_gone.then_some(Side::Source));
                phase.map(|phase| End::Target(TargetEnd::Committed(phase)))
            }
            action => return self.act_on_store(run, id, &action),
        };
        match end {
            Some(end) => self.within(5_000, Event::Said { run, id, end }),
            None => self.within(AGAIN_US, Event::Act { run, id, action }),
        }
    }

    /// What the records say then; `None` when they do not answer.
    fn advance(
        &mut self,
        run: ServerRun,
        id: u32,
        (from, to): (MigrationPhase, MigrationPhase),
        gone: Option<Side>,
    ) -> Option<MigrationPhase> {
        let before = self.standings();
        let metadata = &self.places[&run.server].member.metadata;
        let advanced = match gone {
            Some(side) => metadata.migration_advance_without(side, id, from, to),
            None => metadata.migration_advance(id, from, to),
        };
        if gone.is_some() {
            self.note_what_was_taken(&before);
        }
        // Where there is none of this number any more the server finds out when it follows the records.
        advanced.ok().map(|row| row.phase)
    }

    /// What the records said to a machine.
    pub fn looked(&mut self, run: ServerRun, id: u32, phase: MigrationPhase, lease: Option<LeaseId>) {
        if !self.is_alive(run) {
            return;
        }
        let is_registered =
            lease.is_some() && self.places[&run.server].member.lease(self.lease_now()) == lease;
        let end = SourceEnd::LookedUp(phase, is_registered);
        self.tell_source(run, id, SourceInput::End(end));
        self.tell_target(run, id, TargetInput::End(TargetEnd::LookedUp(phase, is_registered)));
    }

    /// Tells a machine whether its server is registered, if that is news.
    pub fn tell_of_lease(&mut self, run: ServerRun, id: u32) {
        let lease = self.places[&run.server].member.lease(self.lease_now());
        let keeps_on = self.plan.fault == Fault::ServesWithoutALease;
        let Some(moving) = self.moving(run, id).filter(|_| !keeps_on) else { return };
        if let Some(is_registered) = moving.tenure.turn(lease) {
            self.tell_source(run, id, SourceInput::Registered(is_registered));
            self.tell_target(run, id, TargetInput::Registered(is_registered));
        }
    }

    fn act_on_store(&mut self, run: ServerRun, id: u32, action: &Action) {
        let fault = self.plan.fault;
        let place = self.places.get_mut(&run.server).expect("it is there");
        let (Some(node), Some(moving)) = (place.node.as_mut(), place.movings.get_mut(&id)) else { return };
        match moving.act(node, action, fault) {
            Acted::Ended(end) => {
                let part = moving.part.clone();
                let gives_up = matches!(action, Action::Target(TargetAction::GiveUpRest));
                if let Some(part) = part.filter(|_| gives_up) {
                    self.wake(run, &part, None);
                }
                self.ended(run, id, end);
            }
            Acted::Later => self.within(AGAIN_US, Event::Act { run, id, action: action.clone() }),
            Acted::Waits => self.await_disk(run, id),
            Acted::Owns(owning) => {
                let is_early = owning.then.is_none();
                let early = if is_early { moving.end_of(action) } else { None };
                self.own(run, owning);
                if is_early {
                    assert_eq!(fault, Fault::ServesAfterTheCut);
                    self.ended(run, id, early);
                }
            }
        }
    }

    /// A change of what is owned that a machine has asked for has gone through.
    pub fn owned(&mut self, run: ServerRun, id: u32) {
        let Some(moving) = self.moving(run, id) else { return };
        // Another server will show the effects of what was executed here.
        if moving.is_durable && moving.doing == Some(Action::Source(SourceAction::Cut)) {
            return self.await_disk(run, id);
        }
        self.done(run, id);
    }

    /// What a machine has asked for is done.
    pub fn done(&mut self, run: ServerRun, id: u32) {
        let Some(moving) = self.moving(run, id) else { return };
        let action = moving.doing.as_ref().expect("it is being done");
        let end = moving.end_of(action);
        self.ended(run, id, end);
    }

    fn ended(&mut self, run: ServerRun, id: u32, end: Option<End>) {
        if let Some(moving) = self.moving(run, id) {
            moving.doing = None;
        }
        if let Some(end) = end {
            self.within(1_000, Event::Said { run, id, end });
        }
        self.do_next(run, id);
    }

    pub fn said(&mut self, run: ServerRun, id: u32, end: End) {
        match end {
            End::Source(end) => self.tell_source(run, id, SourceInput::End(end)),
            End::Target(end) => self.tell_target(run, id, TargetInput::End(end)),
        }
    }

    /// Machines that are over leave their records.
    pub fn leave_what_is_over(&mut self, run: ServerRun) {
        let place = self.places.get_mut(&run.server).expect("it is there");
        let mut left = Vec::new();
        for moving in place.movings.values_mut().filter(|moving| moving.is_over() && !moving.is_left) {
            moving.part.iter().for_each(|part| part.end_notes());
            moving.close();
            moving.is_left = place.member.metadata.migration_leave(moving.id, moving.side()).is_ok();
            left.push((moving.id, moving.side()));
        }
        for (id, side) in left {
            self.leave_slot(run, side, id);
            self.note_that_it_is_over(id, side);
        }
    }

    /// A side of a migration waits for a slot of its server.
    pub fn take_slot(&mut self, run: ServerRun, side: Side, id: u32) {
        let place = self.places.get_mut(&run.server).expect("it is there");
        place.admissions[side as usize].ask(id);
        self.admit(run, side);
        self.tally.queued +=
            u64::from(self.places[&run.server].admissions[side as usize].ahead_of(id).is_some());
    }

    pub fn leave_slot(&mut self, run: ServerRun, side: Side, id: u32) {
        let place = self.places.get_mut(&run.server).expect("it is there");
        place.admissions[side as usize].leave(id);
        self.admit(run, side);
    }

    fn admit(&mut self, run: ServerRun, side: Side) {
        let admitted =
            |world: &mut Self| world.places.get_mut(&run.server)?.admissions[side as usize].admit();
        while let Some((id, _)) = admitted(self) {
            self.within(3_000, Event::Admitted { run, id });
        }
    }

    pub fn admitted(&mut self, run: ServerRun, id: u32) {
        self.tell_source(run, id, SourceInput::Admitted);
        self.tell_target(run, id, TargetInput::Admitted);
    }
}
