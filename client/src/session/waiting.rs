//! Blocking calls of a session, and the completions of others that they set aside.
//!
//! The two highest bits of a tag identify the kind of a request: a caller's, a blocking call's, an invocation's of
//! [`crate::Local`], or the router's, which is internal. Each poll takes the completions of its own kind and keeps the
//! others for their own poll.

use std::time::{Duration, Instant};

use control::{AdminRequest, DeserializeOwned};
use net::IdleAction;
use wire::{Completion, CompletionError, Request, Status};

use super::Session;
use crate::Error;
use crate::admin_call::{AdminCall, decode_answer};

/// Bits of a tag that belong to the caller. The two above name the kind of request.
const TAG_BITS: u32 = 62;
/// Tags of callers.
pub(super) const CALLERS_TAGS: u64 = 0;
/// Tags of blocking calls.
const OWN_TAGS: u64 = 1 << 63;
/// Longest sleep of a blocking call. Its waker may be lost with a thread.
const SLEEP_MAX: Duration = Duration::from_millis(20);

/// A completion for a later poll, which came during a blocking call.
pub(super) struct Parked {
    tag: u64,
    sequence: u64,
    status: Result<Status, CompletionError>,
    body: Vec<u8>,
}

impl Parked {
    fn copy(completion: &Completion<'_>) -> Parked {
        let Completion { tag, sequence, status, body } = *completion;
        Parked { tag, sequence, status, body: body.to_vec() }
    }
}

impl Session {
    /// Polls as [`Session::poll`] until something completes; returns 0 if nothing is outstanding.
    ///
    /// # Errors
    /// As [`Session::poll`].
    pub fn poll_waiting(&mut self, complete: &mut impl FnMut(Completion<'_>)) -> Result<usize, Error> {
        let since = Instant::now();
        loop {
            let completed = self.poll(complete)?;
            if completed > 0 || self.router.outstanding() == 0 {
                return Ok(completed);
            }
            self.idle(since)?;
        }
    }

    /// Submits a request and waits for its reply. Returns the status, and the body in `body`.
    ///
    /// # Errors
    /// If there is no reply; a refusal is a reply.
    pub fn call(&mut self, request: &Request<'_>, body: &mut Vec<u8>) -> Result<Status, Error> {
        let tag = self.own_tags(1);
        let mut answer = None;
        let mut take = |completion: Completion<'_>| {
            if completion.tag == tag {
                body.clear();
                body.extend_from_slice(completion.body);
                answer = Some(completion.status);
            }
        };
        self.submit_own(request, tag, &mut take)?;
        self.await_own(&mut take)?;
        match answer {
            Some(status) => Ok(status?),
            None => Err(Error::NotSent),
        }
    }

    /// Reserves `count` tags for a blocking call; returns the first.
    pub(crate) fn own_tags(&mut self, count: usize) -> u64 {
        let first = OWN_TAGS | self.own_tags;
        self.own_tags += count as u64;
        first
    }

    /// Submits under a tag of [`Session::own_tags`]; waits while the window is full.
    pub(crate) fn submit_own(
        &mut self,
        request: &Request<'_>,
        tag: u64,
        take: &mut impl FnMut(Completion<'_>),
    ) -> Result<(), Error> {
        self.watch.forget_queued();
        let since = Instant::now();
        loop {
            match self.submit(request, tag) {
                Ok(()) => {
                    self.own_outstanding += 1;
                    return Ok(());
                }
                Err(Error::Full) => self.advance_own(take)?,
                Err(error) => return Err(error),
            }
            self.idle(since)?;
        }
    }

    /// Waits until all requests of [`Session::submit_own`] have completed.
    pub(crate) fn await_own(&mut self, take: &mut impl FnMut(Completion<'_>)) -> Result<(), Error> {
        let mut since = Instant::now();
        loop {
            let received = self.statistics.frames_received;
            self.advance_own(take)?;
            if self.own_outstanding == 0 {
                return Ok(());
            }
            if self.statistics.frames_received != received {
                since = Instant::now();
            }
            self.idle(since)?;
        }
    }

    /// Advances for blocking calls: their completions go to `take`; others are kept.
    fn advance_own(&mut self, take: &mut impl FnMut(Completion<'_>)) -> Result<(), Error> {
        let mut taken = 0;
        let advanced = self.poll_some(OWN_TAGS, &mut |completion| {
            taken += 1;
            take(completion);
        });
        self.own_outstanding = self.own_outstanding.saturating_sub(taken);
        // A completion counts more than an error of the same poll.
        if taken > 0 { Ok(()) } else { advanced }
    }

    /// Advances. Completions whose tags start like `tags` go to `take`; others are kept.
    #[inline]
    pub(crate) fn poll_some(
        &mut self,
        tags: u64,
        take: &mut impl FnMut(Completion<'_>),
    ) -> Result<(), Error> {
        let mut parked = std::mem::take(&mut self.parked);
        if !parked.is_empty() {
            take_parked(&mut parked, tags, take);
        }
        let advanced = self.advance(&mut |completion| {
            if completion.tag >> TAG_BITS == tags >> TAG_BITS {
                take(completion);
            } else {
                parked.push(Parked::copy(&completion));
            }
        });
        self.parked = parked;
        advanced
    }

    /// Makes an administrative request over the session's stream and decodes its reply.
    pub(crate) fn administer<T: DeserializeOwned>(&mut self, request: &AdminRequest<'_>) -> Result<T, Error> {
        let call = AdminCall::new(request, &self.settings().config)?;
        let now_us = self.watch.look();
        let Session { router, parked, statistics, .. } = self;
        let answer = router.administer(now_us, &call, statistics, &mut |completion| {
            parked.push(Parked::copy(&completion));
        })?;
        decode_answer(answer)
    }

    /// Spins, yields or sleeps, depending on the time since the last work.
    pub(crate) fn idle(&mut self, since: Instant) -> Result<(), Error> {
        match self.settings().config.idle.next(since.elapsed().as_micros() as u64) {
            IdleAction::Spin => std::hint::spin_loop(),
            IdleAction::Yield => std::thread::yield_now(),
            IdleAction::Sleep => self.wait(SLEEP_MAX)?,
        }
        Ok(())
    }
}

/// Delivers the kept completions whose tags start like `tags`.
#[cold]
fn take_parked(parked: &mut Vec<Parked>, tags: u64, take: &mut impl FnMut(Completion<'_>)) {
    for Parked { tag, sequence, status, body } in
        parked.extract_if(.., |it| it.tag >> TAG_BITS == tags >> TAG_BITS)
    {
        take(Completion { tag, sequence, status, body: &body });
    }
}
