//! Pipelined requests over one session, with a maximum number outstanding.

use super::failure::Failure;
use client::{Completion, Error, Session, Status};
use std::collections::VecDeque;

/// The next step after an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// The request is complete.
    Done,
    /// Send the request again: it conflicted with others.
    Again,
}

/// Sends the requests 0 to `total` - 1 with at most `outstanding` at a time.
///
/// `submit` queues the request of an index under that index as its tag; `answer` takes its completion.
/// Requests are not ordered among each other.
pub fn run(
    session: &mut Session,
    total: u64,
    outstanding: usize,
    mut submit: impl FnMut(&mut Session, u64) -> Result<(), Error>,
    mut answer: impl FnMut(&Completion<'_>) -> Result<Then, Failure>,
) -> Result<(), Failure> {
    let mut again: VecDeque<u64> = VecDeque::new();
    let (mut next, mut waiting) = (0, 0);
    let mut failure = None;
    while next < total || waiting > 0 || !again.is_empty() {
        while waiting < outstanding && (next < total || !again.is_empty()) {
            let index = again.front().copied().unwrap_or(next);
            match submit(session, index) {
                Ok(()) if again.pop_front().is_some() => {}
                Ok(()) => next += 1,
                Err(Error::Full) if waiting > 0 => break,
                Err(error) => return Err(error.into()),
            }
            waiting += 1;
        }
        session.poll_waiting(&mut |completion| {
            waiting -= 1;
            match answer(&completion) {
                Ok(Then::Done) => {}
                Ok(Then::Again) => again.push_back(completion.tag),
                Err(error) => drop(failure.get_or_insert(error)),
            }
        })?;
        if let Some(failure) = failure {
            return Err(failure);
        }
    }
    Ok(())
}

/// Returns whether a completion reports a conflict with others, so that the request can be repeated.
pub fn is_conflict(completion: &Completion<'_>) -> bool {
    completion.status == Ok(Status::Conflict)
}
