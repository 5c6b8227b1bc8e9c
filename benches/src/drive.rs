//! The loop of a run: draw, send when due, poll, check, count.
//!
//! In a closed loop each session has a fixed number of places, and a place is used again as soon as its
//! request is answered. In an open loop a clock that does not care about answers says when a request is due: gaps are
//! exponential, so requests arrive as a Poisson process of the given rate. A request waits for a place if there is none,
//! and its latency counts from when it was due: a server that stalls is charged for everybody who had to wait. Every
//! answer is checked against what the data set says. One thread, which never sleeps while requests are outstanding.
//! [`Drive::turn`] is one turn of the loop, so that one thread can drive several in turn, as [`crate::neighbour`] does.

use std::time::{Duration, Instant};

use client::{Completion, SessionStatistics, Status, reply};
use fastrand::Rng;

use crate::absences::Absences;
use crate::dataset::index_of;
use crate::fleet::Fleet;
use crate::measure::{Figures, Measure, Times};
use crate::options::RunSettings;
use crate::workload::{Expected, Generator, Source};

/// Without an answer for so long the thread offers its core to others after each poll.
const YIELD_AFTER: Duration = Duration::from_millis(1);

/// Looks without an answer between two looks at the clock, which would be most of what a waiting thread does.
const LOOKS_PER_CLOCK: u32 = 64;
/// Turns of a closed loop without an answer between two looks at the clock.
const TURNS_PER_CLOCK: u32 = 16;

/// Offers the core to others when nothing has come for a while; else a load that shares its core with the server
/// would wait for itself.
#[derive(Default)]
pub struct Patience {
    /// Since when nothing has come, looked at some time after that.
    silent_since: Option<Instant>,
    /// Looks since the last answer.
    looks: u32,
}

impl Patience {
    /// So many answers came with the latest look.
    #[inline]
    pub fn saw(&mut self, answers: usize) {
        if answers > 0 {
            (self.silent_since, self.looks) = (None, 0);
            return;
        }
        self.looks = self.looks.wrapping_add(1);
        if self.looks.is_multiple_of(LOOKS_PER_CLOCK) {
            self.consider();
        }
    }

    /// Whether it has been silent for long.
    #[cold]
    fn consider(&mut self) {
        let since = *self.silent_since.get_or_insert_with(Instant::now);
        if since.elapsed() > YIELD_AFTER {
            std::thread::yield_now();
            // The next look may be the one that finds something.
            self.looks = LOOKS_PER_CLOCK - 1;
        }
    }
}

/// Nanoseconds since `start`.
pub fn ns_since(start: Instant) -> u64 {
    start.elapsed().as_nanos() as u64
}

/// Takes turns until `end_ns`; returns for how long there was work.
///
/// All times are nanoseconds since `start`. `turn` gets the time and says how much there was to do: so one thread drives
/// several loads, and looks at what it likes.
pub fn take_turns(
    start: Instant,
    end_ns: u64,
    mut turn: impl FnMut(u64) -> Result<usize, String>,
) -> Result<u64, String> {
    let (mut now_ns, mut busy_ns, mut patience) = (ns_since(start), 0, Patience::default());
    while now_ns < end_ns {
        let done = turn(now_ns)?;
        patience.saw(done);
        let before_ns = std::mem::replace(&mut now_ns, ns_since(start));
        if done > 0 {
            busy_ns += now_ns - before_ns;
        }
    }
    Ok(busy_ns)
}

/// Shorter absences of the load's thread are not noted in a run, in nanoseconds: a get takes as long.
const ABSENCE_NS: u64 = 5_000;

/// How long requests that were due before the end may still be answered, in an open loop.
const DRAIN: Duration = Duration::from_secs(5);

/// A request that is under way.
#[derive(Clone, Copy)]
struct Pending {
    due_ns: u64,
    expected: Expected,
}

/// The schedule of an open loop; times are nanoseconds since the start of the run.
#[derive(Clone, Debug)]
struct Arrivals {
    gap_ns: f64,
    due_ns: f64,
}

impl Arrivals {
    /// Arrivals at `rate` requests a second on average, from `start_ns` on.
    fn new(rate: f64, start_ns: u64) -> Result<Self, String> {
        if !(rate > 0.0 && rate.is_finite()) {
            return Err(format!("a rate is a positive number of requests a second, not {rate}"));
        }
        Ok(Self { gap_ns: 1e9 / rate, due_ns: start_ns as f64 })
    }

    /// When the next request is due.
    fn due_ns(&self) -> u64 {
        self.due_ns as u64
    }

    /// Moves on to the request after the next one.
    fn advance(&mut self, random: &mut Rng) {
        // 1 - f64() lies in (0, 1], so that the logarithm is finite.
        self.due_ns -= self.gap_ns * (1.0 - random.f64()).ln();
    }
}

/// A load under way: sessions, what they ask for, and what came back.
pub struct Drive<'a, S: Source> {
    fleet: &'a mut Fleet,
    source: S,
    /// What was seen so far.
    pub measure: Measure,
    /// Of each request that succeeded since it was made some.
    pub times: Option<Vec<Times>>,
    /// Looks in each turn whether the thread was kept from running, where that is asked for.
    absences: Option<Absences>,
    start: Instant,
    /// The latest look at the clock.
    seen_ns: u64,
    arrivals: Option<(Arrivals, Rng)>,
    /// Requests under way by tag; a free place is named in `free`.
    pending: Vec<Pending>,
    free: Vec<u32>,
    /// A session for each place that waits for a request.
    idle: Vec<u32>,
    /// How many requests are sent together, in a loop of frames.
    together: Option<usize>,
}

/// Runs a workload to its end.
pub fn run(fleet: &mut Fleet, generator: Generator, settings: &RunSettings) -> Result<Figures, String> {
    settings.check()?;
    let mut drive = Drive::new(fleet, generator, settings.outstanding, Instant::now());
    if let Some(rate) = settings.rate {
        drive.open_loop(rate, settings.seed ^ 0x5ee5)?;
    }
    if settings.undisturbed {
        drive.absences = Some(Absences::new(settings.server_process, ABSENCE_NS, drive.now_ns()));
    }
    let seconds = drive.warm_up_and_measure(settings.warmup, settings.seconds)?;
    if settings.rate.is_some() {
        drive.drain()?;
    }
    let undisturbed =
        drive.absences.as_ref().map(|absences| absences.without(drive.times.as_deref().unwrap_or_default()));
    Ok(Figures { undisturbed, ..drive.measure.figures(seconds) })
}

impl<'a, S: Source> Drive<'a, S> {
    /// A closed loop of `outstanding` requests in each session, whose times count from `start`.
    pub fn new(fleet: &'a mut Fleet, source: S, outstanding: usize, start: Instant) -> Self {
        let sessions = 0..fleet.sessions() as u32;
        let idle = (0..outstanding).flat_map(|_| sessions.clone()).collect();
        Self::over(fleet, source, idle, start)
    }

    /// A closed loop with a session for each request that is to be outstanding.
    fn over(fleet: &'a mut Fleet, source: S, idle: Vec<u32>, start: Instant) -> Self {
        let places = idle.len();
        Self {
            source,
            measure: Measure::default(),
            times: None,
            absences: None,
            start,
            seen_ns: 0,
            arrivals: None,
            pending: vec![Pending { due_ns: 0, expected: Expected::Anything }; places],
            free: (0..places as u32).rev().collect(),
            idle,
            together: None,
            fleet,
        }
    }

    /// A closed loop that sends `together` requests at a time; the source says whose each is.
    pub fn in_frames(
        fleet: &'a mut Fleet,
        source: S,
        (outstanding, together): (usize, usize),
        start: Instant,
    ) -> Self {
        Self { together: Some(together), ..Self::over(fleet, source, vec![0; outstanding], start) }
    }

    /// A closed loop of one request, in the first session.
    pub fn alone(fleet: &'a mut Fleet, source: S, start: Instant) -> Self {
        Self::over(fleet, source, vec![0], start)
    }

    /// What the sessions have moved so far.
    pub fn statistics(&self) -> SessionStatistics {
        self.fleet.statistics()
    }

    /// Makes it an open loop of `rate` requests a second from now on.
    pub fn open_loop(&mut self, rate: f64, seed: u64) -> Result<(), String> {
        self.arrivals = Some((Arrivals::new(rate, self.now_ns())?, Rng::with_seed(seed)));
        Ok(())
    }

    /// Runs for `warmup` seconds, forgets what was seen, and measures; returns the seconds that were measured.
    pub fn warm_up_and_measure(&mut self, warmup: f64, seconds: f64) -> Result<f64, String> {
        self.until(self.now_ns() + (warmup * 1e9) as u64)?;
        self.measure.clear();
        self.times = self.absences.is_some().then(Vec::new);
        let measured_from = self.now_ns();
        self.until(measured_from + (seconds * 1e9) as u64)?;
        Ok((self.now_ns() - measured_from) as f64 / 1e9)
    }

    fn now_ns(&self) -> u64 {
        ns_since(self.start)
    }

    /// Sends and receives until `end_ns`.
    fn until(&mut self, end_ns: u64) -> Result<(), String> {
        let (mut patience, mut turns) = (Patience::default(), 0_u32);
        self.seen_ns = self.now_ns();
        loop {
            // What answers set free is sent at the time that they were taken at.
            if self.arrivals.is_some() || turns.is_multiple_of(TURNS_PER_CLOCK) {
                self.seen_ns = self.now_ns();
            }
            if self.seen_ns >= end_ns {
                return Ok(());
            }
            let answers = self.turn(self.seen_ns)?;
            if let Some(absences) = &mut self.absences {
                absences.look(ns_since(self.start));
            }
            turns = if answers > 0 { 1 } else { turns.wrapping_add(1) };
            patience.saw(answers);
        }
    }

    /// Sends what is due at `now_ns`, takes what has arrived; returns the number of answers.
    pub fn turn(&mut self, now_ns: u64) -> Result<usize, String> {
        match self.together {
            _ if self.arrivals.is_some() => {}
            None => while !self.idle.is_empty() && self.send(now_ns)? {},
            // A popular session takes no more: another one is drawn.
            Some(count) if self.idle.len() >= count => {
                (0..count).try_for_each(|_| self.send(now_ns).map(drop))?;
            }
            Some(_) => {}
        }
        while let Some(due_ns) = self.due(now_ns) {
            if self.idle.is_empty() || !self.send(due_ns)? {
                break;
            }
            if let Some((arrivals, random)) = &mut self.arrivals {
                arrivals.advance(random);
            }
        }
        self.poll()
    }

    /// When the next request of an open loop was due, if it is late.
    fn due(&self, now_ns: u64) -> Option<u64> {
        let (arrivals, _) = self.arrivals.as_ref()?;
        (arrivals.due_ns() <= now_ns).then(|| arrivals.due_ns())
    }

    /// Waits for what is under way; what is not answered in time counts as `NoAnswer`.
    pub fn drain(&mut self) -> Result<(), String> {
        let (deadline, mut patience) = (Instant::now() + DRAIN, Patience::default());
        while self.under_way() > 0 {
            if Instant::now() > deadline {
                for _ in 0..self.under_way() {
                    self.measure.failed("NoAnswer");
                }
                return Ok(());
            }
            patience.saw(self.poll()?);
        }
        Ok(())
    }

    /// Draws a request that was due at `due_ns` and queues it; false when no session takes one more.
    fn send(&mut self, due_ns: u64) -> Result<bool, String> {
        let (Some(session), Some(tag)) = (self.idle.pop(), self.free.pop()) else { return Ok(false) };
        let Self { fleet, source, pending, arrivals, start, .. } = self;
        // What it takes to draw a request is the load's own; among many outstanding it is hidden behind the others.
        let is_alone = pending.len() == 1 && arrivals.is_none();
        let chosen = source.session(session as usize);
        let sent = source.next(|request, expected| {
            let due_ns = if is_alone { ns_since(*start) } else { due_ns };
            pending[tag as usize] = Pending { due_ns, expected };
            fleet.submit(chosen, request, u64::from(tag))
        })?;
        if !sent {
            self.idle.push(session);
            self.free.push(tag);
        }
        Ok(sent)
    }

    /// Requests that have no answer yet.
    pub fn under_way(&self) -> usize {
        self.pending.len() - self.free.len()
    }

    /// Takes what has arrived; returns the number of answers.
    pub fn poll(&mut self) -> Result<usize, String> {
        let Self { fleet, source, measure, times, start, seen_ns, pending, free, idle, .. } = self;
        let objects = source.objects();
        // One look at the clock serves all answers of a poll.
        let mut now_ns = 0;
        fleet.poll(&mut |session, completion| {
            if now_ns == 0 {
                now_ns = ns_since(*start);
                *seen_ns = now_ns;
            }
            let request = pending[completion.tag as usize];
            free.push(completion.tag as u32);
            idle.push(session as u32);
            match verdict(&completion, request.expected) {
                None => {
                    measure.answered(now_ns.saturating_sub(request.due_ns), objects);
                    if let Some(times) = times {
                        times.push(Times { due_ns: request.due_ns.min(now_ns), answered_ns: now_ns });
                    }
                }
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
        Expected::Ordered(first, count) => reply::Scanned::decode(body).is_ok_and(|objects| {
            objects.len() == count
                && objects.zip(first..).all(|(object, index)| index_of(object.value) == Some(index))
        }),
        Expected::Value(index) => index_of(body) == Some(index),
        Expected::Sum(sum) => index_of(body) == Some(sum),
    };
    (!right).then_some("WrongAnswer")
}

#[cfg(test)]
mod tests {
    use super::Arrivals;
    use fastrand::Rng;

    #[test]
    fn arrivals_keep_the_rate_and_vary_like_a_poisson_process() {
        let mut random = Rng::with_seed(3);
        let mut arrivals = Arrivals::new(100_000.0, 0).unwrap();
        let mut gaps = Vec::new();
        for _ in 0..100_000 {
            let before = arrivals.due_ns();
            arrivals.advance(&mut random);
            gaps.push((arrivals.due_ns() - before) as f64);
        }
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((mean - 10_000.0).abs() < 200.0, "mean gap {mean} ns");
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.05, "an exponential gap deviates by its mean");
    }

    #[test]
    fn a_rate_of_zero_is_refused() {
        assert!(Arrivals::new(0.0, 0).is_err());
        assert!(Arrivals::new(f64::NAN, 0).is_err());
    }
}
