//! The task that moves the frames of an async client's session, and wakes the futures whose replies have come.
//!
//! ```text
//! future: lock, submit ──► (wake the driver, if it sleeps)
//! driver: lock, poll the session ──► wake the futures of the completions ──► again, behind the tasks that are ready
//!            │ nothing has come for a while, or nothing is outstanding
//!            └► sleep until the port is readable, a timer is due, or a future has submitted
//! ```
//! While replies are due the driver looks for them again and again, as a blocking session does: each time behind all tasks
//! that are ready, so what these submit shares frames. A lost session is reopened on another thread.

use std::future::Future;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use net::{IdleAction, IdleStrategy};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::oneshot::error::RecvError;
use tokio::sync::oneshot::{Receiver, channel};
use tokio::time::{Instant as Deadline, Sleep, sleep};
use wire::{Completion, CompletionError, Status};

use super::shared::{SharedSession, SharedState};
use crate::{Error, Session};

/// Longest sleep while requests are outstanding: a waker may be lost with a thread.
const SLEEP_MAX: Duration = Duration::from_millis(20);
/// Pause after a failure of the port.
const FAILURE_PAUSE: Duration = Duration::from_millis(10);
/// From one time that all who wait for room are woken to the next.
const SWEEP_EVERY: Duration = Duration::from_millis(100);
/// Polls without a completion from one look at the clock to the next, and at least so many before a sleep: one looks at some of the
/// port's sources.
const POLLS_PER_LOOK: u32 = 8;

/// A session after its reopening, and the completions of meanwhile: tag, status, body.
struct ReopenedSession {
    session: Box<Session>,
    completions: Vec<(u64, Result<Status, CompletionError>, Vec<u8>)>,
}

/// See the file's head.
pub(super) struct Driver {
    shared: Arc<SharedSession>,
    readable: Option<AsyncFd<OwnedFd>>,
    timer: Pin<Box<Sleep>>,
    idle: IdleStrategy,
    /// When something came last.
    since: Instant,
    /// Polls since then.
    polls: u32,
    /// When all who waited for room were woken last.
    swept: Instant,
    sleeps: bool,
    reopening: Option<Receiver<ReopenedSession>>,
    /// Futures to wake; empty between polls.
    ready: Vec<Waker>,
}

/// The result of a look at the session.
enum Turn {
    /// Look again, behind the tasks that are ready.
    Again,
    /// Nothing is to be expected soon.
    Rest,
    /// The port has failed.
    Failed,
    /// The session is lost; it is reopened.
    Reopens,
    /// No client is left.
    Ends,
}

impl Driver {
    /// Returns the driver of a session.
    ///
    /// # Errors
    /// If the process is out of descriptors.
    ///
    /// # Panics
    /// Outside of a runtime with I/O and time.
    pub(super) fn new(shared: Arc<SharedSession>, idle: IdleStrategy) -> Result<Driver, Error> {
        let descriptor = shared.state().session.as_ref().map_or(Ok(None), |session| session.descriptor())?;
        #[expect(
            deprecated,
            reason = "it is unsound for descriptors that their owner may close, and an `OwnedFd` keeps its own"
        )]
        let watch = |descriptor| AsyncFd::with_interest(descriptor, Interest::READABLE);
        Ok(Driver {
            readable: descriptor.map(watch).transpose().map_err(|error| Error::Port { error })?,
            timer: Box::pin(sleep(Duration::ZERO)),
            shared,
            idle,
            since: Instant::now(),
            polls: 0,
            swept: Instant::now(),
            sleeps: false,
            reopening: None,
            ready: Vec::new(),
        })
    }

    /// Polls the session once.
    fn turn(&mut self) -> Turn {
        let mut state = self.shared.state();
        let SharedState { session, replies, sleeping, submitted, has_ended, .. } = &mut *state;
        if *has_ended {
            return Turn::Ends;
        }
        let has_news = std::mem::take(submitted) > 0;
        let Some(open) = session else { return Turn::Ends };
        if std::mem::take(&mut self.sleeps) {
            *sleeping = None;
            open.end_wait();
            if has_news {
                (self.since, self.polls) = (Instant::now(), 0);
            }
        }
        let ready = &mut self.ready;
        let polled = open.poll(&mut |completion: Completion<'_>| replies.complete(&completion, ready));
        if polled.is_err() {
            replies.fail(ready);
        }
        if open.awaits_reopening() {
            self.reopening = session.take().map(reopen);
            return Turn::Reopens;
        }
        let is_due = open.outstanding() > 0;
        let places = usize::from(open.credits()).saturating_sub(open.outstanding());
        drop(state);
        self.make_room(places);
        match polled {
            Err(_) => Turn::Failed,
            Ok(0) if !is_due || !self.looks_again() => Turn::Rest,
            Ok(0) => Turn::Again,
            Ok(_) => {
                (self.since, self.polls) = (Instant::now(), 0);
                Turn::Again
            }
        }
    }

    /// Wakes those who wait for room, as many as there is some for; from time to time all of them, who may have waited long enough.
    fn make_room(&mut self, places: usize) {
        if !self.shared.has_waiting() {
            return;
        }
        self.shared.make_room(places);
        if self.swept.elapsed() >= SWEEP_EVERY {
            self.swept = Instant::now();
            self.shared.wake_all();
        }
    }

    /// Returns whether to look again after a poll without a completion.
    fn looks_again(&mut self) -> bool {
        self.polls += 1;
        !self.polls.is_multiple_of(POLLS_PER_LOOK)
            || self.idle.next(self.since.elapsed().as_micros() as u64) != IdleAction::Sleep
    }

    /// Announces a sleep; returns false if there is something to do at once.
    fn falls_asleep(&mut self, context: &mut Context<'_>) -> bool {
        let mut state = self.shared.state();
        let SharedState { session: Some(session), sleeping, submitted: 0, has_ended: false, .. } =
            &mut *state
        else {
            return false;
        };
        let most = (session.outstanding() > 0).then_some(SLEEP_MAX);
        let timer = session.next_timer().into_iter().chain(most).min();
        self.sleeps = true;
        if !session.begin_wait() {
            return false;
        }
        *sleeping = Some(context.waker().clone());
        drop(state);
        let Some(readable) = &self.readable else { return false };
        if let Poll::Ready(Ok(mut guard)) = readable.poll_read_ready(context) {
            guard.clear_ready();
            return false;
        }
        timer.is_none_or(|timer| self.waits(context, timer))
    }

    /// Sets the timer; returns false if it is over.
    fn waits(&mut self, context: &mut Context<'_>, time: Duration) -> bool {
        self.timer.as_mut().reset(Deadline::now() + time);
        self.timer.as_mut().poll(context).is_pending()
    }

    /// Goes on with a session that was reopened, or could not be.
    fn take_back(&mut self, reopened: Result<ReopenedSession, RecvError>) {
        let mut state = self.shared.state();
        let SharedState { session, replies, has_ended, .. } = &mut *state;
        match reopened {
            Ok(ReopenedSession { session: open, completions }) => {
                for (tag, status, body) in completions {
                    let completion = Completion { tag, sequence: 0, status, body: &body };
                    replies.complete(&completion, &mut self.ready);
                }
                *session = Some(open);
            }
            // The thread has panicked.
            Err(_) => *has_ended = true,
        }
        drop(state);
        self.shared.wake_all();
    }
}

impl Future for Driver {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let driver = self.get_mut();
        loop {
            if let Some(reopening) = &mut driver.reopening {
                let Poll::Ready(reopened) = Pin::new(reopening).poll(context) else { return Poll::Pending };
                driver.reopening = None;
                driver.take_back(reopened);
            }
            let turn = driver.turn();
            driver.ready.drain(..).for_each(Waker::wake);
            let rests = match turn {
                Turn::Ends => return Poll::Ready(()),
                Turn::Reopens => continue,
                Turn::Rest => driver.falls_asleep(context),
                Turn::Failed => driver.waits(context, FAILURE_PAUSE),
                Turn::Again => false,
            };
            if !rests {
                context.waker().wake_by_ref();
            }
            return Poll::Pending;
        }
    }
}

/// The session ends with its driver, and so does the waiting of all futures.
impl Drop for Driver {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.has_ended = true;
        state.replies.fail(&mut self.ready);
        let session = state.session.take();
        drop(state);
        drop(session);
        self.ready.drain(..).for_each(Waker::wake);
        self.shared.wake_all();
    }
}

/// Reopens a lost session on a thread of its own: for one that blocks for long the runtime would wait at its end.
fn reopen(mut session: Box<Session>) -> Receiver<ReopenedSession> {
    let (sender, reopened) = channel();
    thread::spawn(move || {
        let mut completions = Vec::new();
        // Without success all requests have completed with errors.
        let _ = session.reopen(&mut |Completion { tag, status, body, .. }| {
            completions.push((tag, status, body.to_vec()));
        });
        // Without a driver the session ends here.
        let _ = sender.send(ReopenedSession { session, completions });
    });
    reopened
}
