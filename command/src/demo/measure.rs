//! Asks the questions of a plan by every method, measures, and compares all answers.

use super::Ways;
use super::figures::{Comparison, Latencies, Series, WayFigures as Figures};
use super::question::{Question, Way};
use crate::failure::Failure;
use std::time::{Duration, Instant};

/// Number of unmeasured questions before a series, to warm up caches.
const WARMING: usize = 200;

/// Questions, and how to ask them.
#[derive(Debug)]
pub struct Plan {
    /// Description of the questions in the report.
    pub question: String,
    /// Names of the methods in the report.
    pub names: [&'static str; 3],
    /// The questions.
    pub questions: Vec<Question>,
    /// Number of questions asked one at a time.
    pub one_at_a_time: usize,
    /// Maximum number of outstanding questions in the pipelined series.
    pub outstanding: usize,
}

/// A running plan.
pub struct Measure<'p> {
    plan: &'p Plan,
    series_max: Duration,
    /// The first answer to each question.
    answers: Vec<Option<Box<[u8]>>>,
    compared: u64,
    different: u64,
}

impl<'p> Measure<'p> {
    /// Returns a run that has asked nothing yet. A series asks nothing more after `series_max`, which bounds the time
    /// on a slow machine.
    pub fn new(plan: &'p Plan, series_max: Duration) -> Measure<'p> {
        Measure { plan, series_max, answers: vec![None; plan.questions.len()], compared: 0, different: 0 }
    }

    /// Asks by every method.
    pub fn compare(mut self, ways: &mut Ways) -> Result<Comparison, Failure> {
        let mut figures = Vec::new();
        for (way, name) in ways.all.iter_mut().zip(self.plan.names) {
            figures.push(self.ask(way.as_mut(), name)?);
        }
        Ok(Comparison {
            question: self.plan.question.clone(),
            answers_equal: self.different == 0,
            answers_compared: self.compared,
            outstanding: self.plan.outstanding,
            ways: figures,
        })
    }

    fn ask(&mut self, way: &mut dyn Way, name: &'static str) -> Result<Figures, Failure> {
        let few = self.plan.one_at_a_time.clamp(1, self.plan.questions.len());
        self.series(way, few.min(WARMING), 1)?;
        let before = way.statistics();
        let (one_at_a_time, round_trips) = self.series(way, few, 1)?;
        let after = way.statistics();
        let bytes = |of: client::SessionStatistics| of.bytes_sent + of.bytes_received + of.stream_bytes;
        // An answer that turned out to exceed a datagram took another round trip, over the stream.
        let again = after.stream_requests - before.stream_requests;
        let (pipelined, _) = self.series(way, self.plan.questions.len(), self.plan.outstanding)?;
        Ok(Figures {
            way: name,
            round_trips: (round_trips + again) as f64 / one_at_a_time.operations as f64,
            bytes: (bytes(after) - bytes(before)) as f64 / one_at_a_time.operations as f64,
            one_at_a_time,
            pipelined,
        })
    }

    /// Asks the first `count` questions, or as many as time allows; also returns their round trips.
    fn series(
        &mut self,
        way: &mut dyn Way,
        count: usize,
        outstanding: usize,
    ) -> Result<(Series, u64), Failure> {
        let questions = &self.plan.questions[..count];
        let mut latencies = Latencies::new();
        let mut started = Vec::with_capacity(count);
        let (mut answered, mut round_trips) = (0, 0);
        let began = Instant::now();
        let mut late = false;
        while answered < started.len() || (started.len() < count && !late) {
            while started.len() < count && started.len() - answered < outstanding && !late {
                let (index, now) = (started.len(), Instant::now());
                started.push(now);
                way.start(index as u64, &questions[index])?;
                late = now - began > self.series_max;
            }
            way.poll(&mut |answer| {
                let index = answer.index as usize;
                latencies.record(started[index].elapsed());
                answered += 1;
                round_trips += u64::from(answer.round_trips);
                self.check(index, answer.answer);
            })?;
        }
        Ok((latencies.series(began.elapsed()), round_trips))
    }

    /// Compares an answer with the first one to the same question.
    fn check(&mut self, index: usize, answer: &[u8]) {
        match &self.answers[index] {
            None => self.answers[index] = Some(answer.into()),
            Some(first) => {
                self.compared += 1;
                self.different += u64::from(**first != *answer);
            }
        }
    }
}
