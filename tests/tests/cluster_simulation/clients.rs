//! The clients of the simulated cluster: what they wish, the sessions that they open, and what they ask for.

use tests::history::{Action, Operation, Outcome};

use super::log::{Durable, Log};
use super::{Event, World, client_address, server_address};
use crate::caller::{Caller, Wish};

/// Whether what is put there may be there for a while only.
fn is_mortal(key: u64) -> bool {
    key % 3 == 2
}

impl World {
    /// Does something with a client, and what it wishes then.
    pub fn drive(&mut self, client: u32, act: impl FnOnce(&mut Caller, u64, &mut Vec<Wish>)) {
        let (now_us, mut wishes) = (self.now_us, Vec::new());
        let caller = &mut self.callers[client as usize];
        act(caller, now_us, &mut wishes);
        let frames = caller.go_on(now_us, &mut self.random, &mut wishes);
        for (server, frame) in frames {
            self.send_frame(client_address(client), server_address(server), &frame);
        }
        let mut wake_us = u64::MAX;
        for wish in wishes {
            match wish {
                Wish::Open(server) => self.within(5_000, Event::Open { client, server }),
                Wish::Map(server) => self.within(5_000, Event::Map { client, server }),
                Wish::Wake(due_us) => wake_us = wake_us.min(due_us.max(now_us + 1)),
                Wish::Over(operation) => {
                    self.history.push(operation);
                    self.expire(operation);
                    self.within(self.plan.rest_us, Event::Begin(client));
                }
                Wish::Transacted(seen) => {
                    self.note_transaction(seen);
                    self.within(self.plan.rest_us, Event::Begin(client));
                }
                Wish::Refused => self.within(self.plan.rest_us, Event::Begin(client)),
            }
        }
        if wake_us < u64::MAX {
            self.at(wake_us, Event::Caller(client));
        }
    }

    pub fn open(&mut self, client: u32, server: u32) {
        let known: Vec<u32> = self.places.keys().copied().collect();
        let any = *self.random.choice(&known).expect("there are servers");
        let server = if server == u32::MAX { any } else { server };
        let (token, now_us) = (self.next_token, self.now_us);
        self.next_token += 1;
        let place = self.places.get_mut(&server).expect("it has been there");
        let has_settled = |log: &Durable| log.log.as_ref().is_some_and(Log::has_settled);
        let is_ready = place.durable.as_ref().is_none_or(has_settled);
        match place.node.as_mut().filter(|_| is_ready).map(|node| node.open(token, now_us)) {
            Some(view) => self.within(5_000, Event::Opened { client, server, token, view }),
            None => self.within(20_000, Event::NotOpened(client)),
        }
    }

    pub fn begin_operation(&mut self, client: u32) {
        if !self.is_active() || !self.callers[client as usize].is_idle() {
            return;
        }
        if self.plan.lists > 0 && self.random.u8(0..4) == 0 {
            return self.begin_transaction(client);
        }
        if self.random.u8(0..6) == 0 {
            return self.begin_many(client);
        }
        let key = self.random.u64(0..self.plan.keys);
        let action = match self.draw(key) {
            // It would not be known for how long the sum is there.
            Action::Add(_) if is_mortal(key) => Action::Get,
            action => action,
        };
        self.begin(client, key, action);
    }

    /// Notes when what was put for a while is gone: to the millisecond, as far as it is known when it was put.
    fn expire(&mut self, put: Operation) {
        let Action::Put(value, _) = put.action else { return };
        let (Some(ttl_us), Outcome::Done(_) | Outcome::Unknown) = (self.ttls_us.remove(&value), put.outcome)
        else {
            return;
        };
        let (call, end) = (put.call + ttl_us - 1_000, put.end.map(|end| end + ttl_us + 1_000));
        let (action, outcome) = (Action::Expire(value), Outcome::Unknown);
        self.history.push(Operation { client: u32::MAX, key: put.key, call, end, action, outcome });
    }

    /// Reads several keys at once.
    fn begin_many(&mut self, client: u32) {
        let keys = self.random.choose_multiple(0..self.plan.keys, 5);
        let named: Vec<(u64, Vec<u8>)> =
            keys.iter().map(|&key| (key, self.keys[key as usize].clone())).collect();
        let Some(((key, name), beside)) = named.split_first() else { return };
        let (call, action, outcome) = (self.now_us, Action::Get, Outcome::Unknown);
        let operation = Operation { client, key: *key, call, end: None, action, outcome };
        self.drive(client, |caller, _, _| caller.begin_many(operation, name.clone(), beside.to_vec()));
    }

    fn begin(&mut self, client: u32, key: u64, action: Action) {
        let (call, name) = (self.now_us, self.keys[key as usize].clone());
        let operation = Operation { client, key, call, end: None, action, outcome: Outcome::Unknown };
        let ttl_ms = match action {
            Action::Put(value, _) if is_mortal(key) && self.random.bool() => {
                let ttl_ms = self.random.u64(2..500);
                self.ttls_us.insert(value, ttl_ms * 1_000);
                Some(ttl_ms)
            }
            _ => None,
        };
        self.drive(client, |caller, _, _| caller.begin_for(operation, name, ttl_ms));
    }

    /// Every key once more, when nothing changes any more, and then every list. Whether there is nothing more to read.
    pub fn read_more(&mut self) -> bool {
        if self.next_read == self.plan.keys {
            return self.read_lists();
        }
        for client in 0..self.plan.clients {
            if self.next_read < self.plan.keys {
                self.begin(client, self.next_read, Action::Get);
                self.next_read += 1;
            }
        }
        false
    }
}
