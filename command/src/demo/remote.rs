//! The extension and hybrid methods: one invocation per question, followed by multi-gets of objects in the hybrid.

use super::question::{Answered, Functions, Question, Remote, Way};
use crate::failure::Failure;
use crate::tao::{failure_of, unintelligible};
use client::{Completion, Error, Keys, Request, Session, SessionStatistics, Status, reply};
use std::collections::VecDeque;
use std::ops::Range;

/// Number of tag bits that identify the requests of one question.
const PART_BITS: u32 = 16;
/// Number of objects per multi-get: this many of about 100 bytes fit into a datagram.
const OBJECTS_AT_ONCE: usize = 10;

/// Asks the server.
pub struct RemoteWay {
    session: Session,
    desk: Desk,
}

/// The outstanding questions.
struct Desk {
    functions: Functions,
    hybrid: bool,
    asked: Vec<AskedQuestion>,
    free: Vec<usize>,
    /// Requests to send: a question and the number of its part.
    unsent: VecDeque<(usize, usize)>,
}

/// An outstanding question. Part 0 is the question itself, the others are multi-gets of its objects.
#[derive(Default)]
struct AskedQuestion {
    index: u64,
    table: u32,
    remote: Remote,
    /// Finds the objects that a reply names, if they must be read.
    question: Option<Question>,
    reply: Vec<u8>,
    keys: Vec<Vec<u8>>,
    objects: Vec<Option<Vec<u8>>>,
    waiting: usize,
    round_trips: u32,
}

impl RemoteWay {
    /// Returns the method over a session; with `hybrid`, plain gets read the objects.
    pub fn new(session: Session, functions: Functions, hybrid: bool) -> RemoteWay {
        let (asked, free, unsent) = (Vec::new(), Vec::new(), VecDeque::new());
        RemoteWay { session, desk: Desk { functions, hybrid, asked, free, unsent } }
    }
}

impl Way for RemoteWay {
    fn start(&mut self, index: u64, question: &Question) -> Result<(), Failure> {
        self.desk.begin(index, question);
        self.desk.send_unsent(&mut self.session)
    }

    fn poll(&mut self, answered: &mut dyn FnMut(Answered<'_>)) -> Result<(), Failure> {
        let RemoteWay { session, desk } = self;
        desk.send_unsent(session)?;
        let mut failure = None;
        session.poll_waiting(&mut |completion| match desk.take(&completion) {
            Ok(Some(place)) => desk.finish(place, answered),
            Ok(None) => {}
            Err(error) => drop(failure.get_or_insert(error)),
        })?;
        failure.map_or(Ok(()), Err)
    }

    fn statistics(&mut self) -> SessionStatistics {
        self.session.statistics()
    }
}

impl Desk {
    fn begin(&mut self, index: u64, question: &Question) {
        let place = self.free.pop().unwrap_or_else(|| {
            self.asked.push(AskedQuestion::default());
            self.asked.len() - 1
        });
        let asked = &mut self.asked[place];
        match self.hybrid {
            true => question.hybrid(&mut asked.remote),
            false => question.pushed_down(&mut asked.remote),
        }
        asked.question = asked.remote.fetch.then(|| question.clone());
        (asked.index, asked.table) = (index, question.table);
        (asked.waiting, asked.round_trips) = (1, 1);
        self.unsent.push_back((place, 0));
    }

    /// Sends queued requests, as many as the session's window allows.
    fn send_unsent(&mut self, session: &mut Session) -> Result<(), Failure> {
        while let Some(&(place, part)) = self.unsent.front() {
            match self.submit(session, place, part) {
                Ok(()) => drop(self.unsent.pop_front()),
                Err(Error::Full) => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn submit(&self, session: &mut Session, place: usize, part: usize) -> Result<(), Error> {
        let AskedQuestion { table, remote, keys, .. } = &self.asked[place];
        let tag = (place as u64) << PART_BITS | part as u64;
        if part > 0 {
            let mut some: [&[u8]; OBJECTS_AT_ONCE] = [&[]; OBJECTS_AT_ONCE];
            let keys = &keys[objects_of(part, keys.len())];
            some.iter_mut().zip(keys).for_each(|(slot, key)| *slot = key);
            let keys = Keys::from_slices(&some[..keys.len()]);
            return session.submit(&Request::MultiGet { table: *table, keys }, tag);
        }
        let Remote { function, key, arguments, .. } = remote;
        match function {
            Some(name) => session.submit(&self.functions.get(name).request(*table, key, arguments), tag),
            None => session.submit(&Request::Get { table: *table, key }, tag),
        }
    }

    /// Takes the answer to one part; returns the slot of the question after its last part.
    fn take(&mut self, completion: &Completion<'_>) -> Result<Option<usize>, Failure> {
        let place = (completion.tag >> PART_BITS) as usize;
        let part = (completion.tag & ((1 << PART_BITS) - 1)) as usize;
        let asked = &mut self.asked[place];
        asked.waiting -= 1;
        if part > 0 {
            let body = Error::check(completion)?;
            let entries = reply::Objects::decode(body).map_err(|_| unintelligible())?;
            let range = objects_of(part, asked.objects.len());
            for (object, entry) in asked.objects[range].iter_mut().zip(entries) {
                *object = (entry.status == Status::Ok).then(|| entry.value.to_vec());
            }
            return Ok((asked.waiting == 0).then_some(place));
        }
        let value = match (Error::check(completion), asked.remote.function) {
            (Ok(body), Some(_)) => body,
            (Ok(body), None) => reply::Object::decode(body).map_err(|_| unintelligible())?.value,
            (Err(Error::Refused { status: Status::NotFound, .. }), None) => &[],
            (Err(error), _) => return Err(failure_of(error)),
        };
        asked.reply.clear();
        asked.reply.extend_from_slice(value);
        let Some(question) = &asked.question else { return Ok(Some(place)) };
        asked.keys = question.keys_in(&asked.reply).ok_or_else(unintelligible)?;
        asked.objects.clear();
        asked.objects.resize(asked.keys.len(), None);
        if asked.keys.is_empty() {
            return Ok(Some(place));
        }
        asked.waiting = asked.keys.len().div_ceil(OBJECTS_AT_ONCE);
        asked.round_trips += 1;
        self.unsent.extend((1..=asked.waiting).map(|part| (place, part)));
        Ok(None)
    }

    fn finish(&mut self, place: usize, answered: &mut dyn FnMut(Answered<'_>)) {
        let asked = &mut self.asked[place];
        if let Some(question) = &asked.question {
            question.complete(&mut asked.reply, &asked.objects);
        }
        let (index, round_trips) = (asked.index, asked.round_trips);
        answered(Answered { index, answer: &asked.reply, round_trips });
        self.free.push(place);
    }
}

/// Returns which of `count` objects a part reads.
fn objects_of(part: usize, count: usize) -> Range<usize> {
    let first = (part - 1) * OBJECTS_AT_ONCE;
    first..count.min(first + OBJECTS_AT_ONCE)
}
