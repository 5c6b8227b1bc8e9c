//! The loop of a run: draw, send when due, poll, check, count.
//!
//! In a closed loop each session has a fixed number of places, and a place is used again as soon as its
//! request is answered. In an open loop the clock says when a request is due; it waits for a place if there
//! is none, and its latency counts from when it was due. Every answer is checked against what the data set
//! says. One thread, which never sleeps while requests are outstanding.

use std::time::{Duration, Instant};

use client::{Completion, Status, reply};
use fastrand::Rng;

use crate::arrival::Arrivals;
use crate::dataset::index_of;
use crate::fleet::Fleet;
use crate::measure::{Figures, Measure};
use crate::options::RunSettings;
use crate::workload::{Expected, Generator};

/// Without an answer for so long the thread offers its core to others after each poll.
const YIELD_AFTER: Duration = Duration::from_millis(1);

/// How long requests that were due before the end may still be answered, in an open loop.
const DRAIN: Duration = Duration::from_secs(5);

/// A request that is under way.
#[derive(Clone, Copy)]
struct Pending {
    due_ns: u64,
    expected: Expected,
}

/// A run.
struct Drive<'a> {
    fleet: &'a mut Fleet,
    generator: Generator,
    measure: Measure,
    start: Instant,
    /// Requests under way by tag; a free place is named in `free`.
    pending: Vec<Pending>,
    free: Vec<u32>,
    /// A session for each place that waits for a request.
    idle: Vec<u32>,
}

/// Runs a workload to its end.
pub fn run(fleet: &mut Fleet, generator: Generator, settings: &RunSettings) -> Result<Figures, String> {
    settings.check()?;
    let places = fleet.len() * settings.outstanding;
    let sessions = 0..fleet.len() as u32;
    let mut drive = Drive {
        generator,
        measure: Measure::new(),
        start: Instant::now(),
        pending: vec![Pending { due_ns: 0, expected: Expected::Anything }; places],
        free: (0..places as u32).rev().collect(),
        idle: (0..settings.outstanding).flat_map(|_| sessions.clone()).collect(),
        fleet,
    };
    let warmup_ns = (settings.warmup * 1e9) as u64;
    let end_ns = warmup_ns + (settings.seconds * 1e9) as u64;
    let mut random = Rng::with_seed(settings.seed ^ 0x5ee5);
    let mut arrivals = settings.rate.map(|rate| Arrivals::new(rate, 0)).transpose()?;
    drive.until(warmup_ns, &mut arrivals, &mut random)?;
    drive.measure.clear();
    let measured_from = drive.now_ns();
    drive.until(end_ns, &mut arrivals, &mut random)?;
    let seconds = (drive.now_ns() - measured_from) as f64 / 1e9;
    if arrivals.is_some() {
        drive.drain()?;
    }
    Ok(drive.measure.figures(seconds))
}

impl Drive<'_> {
    fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    /// Sends and receives until `end_ns`.
    fn until(
        &mut self,
        end_ns: u64,
        arrivals: &mut Option<Arrivals>,
        random: &mut Rng,
    ) -> Result<(), String> {
        let mut answered = Instant::now();
        loop {
            let now_ns = self.now_ns();
            if now_ns >= end_ns {
                return Ok(());
            }
            match arrivals {
                None => while !self.idle.is_empty() && self.send(now_ns)? {},
                Some(arrivals) => {
                    while arrivals.due_ns() <= now_ns && !self.idle.is_empty() {
                        if !self.send(arrivals.due_ns())? {
                            break;
                        }
                        arrivals.advance(random);
                    }
                }
            }
            if self.poll()? > 0 {
                answered = Instant::now();
            } else if answered.elapsed() > YIELD_AFTER {
                std::thread::yield_now();
            }
        }
    }

    /// Waits for what is under way.
    fn drain(&mut self) -> Result<(), String> {
        let deadline = Instant::now() + DRAIN;
        while self.free.len() < self.pending.len() {
            if Instant::now() > deadline {
                for _ in self.free.len()..self.pending.len() {
                    self.measure.failed("NoAnswer");
                }
                return Ok(());
            }
            self.poll()?;
        }
        Ok(())
    }

    /// Draws a request that was due at `due_ns` and queues it; false when no session takes one more.
    fn send(&mut self, due_ns: u64) -> Result<bool, String> {
        let (Some(session), Some(tag)) = (self.idle.pop(), self.free.pop()) else { return Ok(false) };
        let Self { fleet, generator, pending, .. } = self;
        let sent = generator.next(|request, expected| {
            pending[tag as usize] = Pending { due_ns, expected };
            fleet.submit(session as usize, request, u64::from(tag))
        })?;
        if !sent {
            self.idle.push(session);
            self.free.push(tag);
        }
        Ok(sent)
    }

    fn poll(&mut self) -> Result<usize, String> {
        let Self { fleet, generator, measure, start, pending, free, idle } = self;
        let objects = generator.objects();
        // One look at the clock serves all answers of a poll.
        let mut now_ns = 0;
        fleet.poll(&mut |session, completion| {
            if now_ns == 0 {
                now_ns = start.elapsed().as_nanos() as u64;
            }
            let request = pending[completion.tag as usize];
            free.push(completion.tag as u32);
            idle.push(session as u32);
            match verdict(&completion, request.expected) {
                None => measure.answered(now_ns.saturating_sub(request.due_ns), objects),
                Some(failure) => measure.failed(failure),
            }
        })
    }
}

/// What is wrong with an answer, if anything is.
fn verdict(completion: &Completion<'_>, expected: Expected) -> Option<&'static str> {
    let body = completion.body;
    match completion.status {
        Ok(Status::Ok) => {}
        Ok(status) => return Some(status.name()),
        Err(_) => return Some("NoAnswer"),
    }
    let right = match expected {
        Expected::Anything => true,
        Expected::Object(index) => {
            reply::Object::decode(body).is_ok_and(|object| index_of(object.value) == Some(index))
        }
        Expected::Objects(count) => reply::Objects::decode(body).is_ok_and(|mut objects| {
            objects.len() == count && objects.all(|object| object.status == Status::Ok)
        }),
        Expected::Value(index) => index_of(body) == Some(index),
        Expected::Sum(sum) => index_of(body) == Some(sum),
    };
    (!right).then_some("WrongAnswer")
}
