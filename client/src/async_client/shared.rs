//! What the futures of an async client and its driver share: the session, and the requests from submission until their
//! futures have taken the replies.

use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use wire::{Completion, CompletionError, Request, RequestDurability, Status};

use crate::answers::KeyChunks;
use crate::{Error, Session};

/// Capacity of a buffer for replies that is kept for the next request.
const KEPT_BYTES: usize = 16 << 10;
/// Requests that leave together, before the driver's turn: while many tasks submit, the server is at work already.
const FLUSH_AT: usize = 24;

/// See the file's head.
pub(super) struct SharedSession {
    state: Mutex<SharedState>,
    /// Notified when there is room in the window again.
    room: Notify,
    /// Number of futures that wait for that.
    waiting: AtomicUsize,
    call_timeout: Duration,
}

/// What is behind the lock.
pub(super) struct SharedState {
    /// `None` while it is being reopened, and after the end.
    pub(super) session: Option<Box<Session>>,
    pub(super) replies: Replies,
    /// The driver's waker, while it sleeps.
    pub(super) sleeping: Option<Waker>,
    /// Number of requests that were submitted since the driver looked at the session.
    pub(super) submitted: usize,
    /// No client is left, or the driver is gone.
    pub(super) has_ended: bool,
    pub(super) chunks: KeyChunks,
}

impl SharedSession {
    pub(super) fn new(session: Session, call_timeout: Duration) -> SharedSession {
        let state = SharedState {
            session: Some(Box::new(session)),
            replies: Replies::default(),
            sleeping: None,
            submitted: 0,
            has_ended: false,
            chunks: KeyChunks::new(),
        };
        SharedSession {
            state: Mutex::new(state),
            room: Notify::new(),
            waiting: AtomicUsize::new(0),
            call_timeout,
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, SharedState> {
        // Nothing that is done under the lock can panic halfway.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Submits a request; `None` if the window is full, or the session is being reopened.
    fn submit(
        &self,
        request: &Request<'_>,
        durability: RequestDurability,
    ) -> Result<Option<Reply<'_>>, Error> {
        let mut state = self.state();
        let SharedState { session, replies, sleeping, submitted, has_ended, .. } = &mut *state;
        if *has_ended {
            return Err(ended());
        }
        let Some(session) = session else { return Ok(None) };
        let index = replies.reserve();
        session.set_durability(durability);
        if let Err(error) = session.submit(request, index.into()) {
            replies.all[index as usize].is_outstanding = false;
            replies.release(index);
            return if matches!(error, Error::Full) { Ok(None) } else { Err(error) };
        }
        *submitted += 1;
        if submitted.is_multiple_of(FLUSH_AT) {
            // A failure of the port is the driver's.
            let _ = session.flush();
        }
        let driver = sleeping.take();
        drop(state);
        driver.into_iter().for_each(Waker::wake);
        Ok(Some(Reply { shared: self, index: Some(index) }))
    }

    /// Submits a request; waits while the window is full, or the session is being reopened.
    pub(super) async fn submit_waiting(
        &self,
        request: &Request<'_>,
        durability: RequestDurability,
    ) -> Result<Reply<'_>, Error> {
        if let Some(reply) = self.submit(request, durability)? {
            return Ok(reply);
        }
        let (_waiting, since) = (RoomWaiter::begin(&self.waiting), Instant::now());
        loop {
            let mut room = pin!(self.room.notified());
            // Whatever makes room from now on counts.
            room.as_mut().enable();
            match self.submit(request, durability) {
                Ok(Some(reply)) => return Ok(reply),
                // The driver wakes those who wait from time to time.
                Ok(None) if since.elapsed() < self.call_timeout => room.await,
                ended => {
                    // The room is for somebody else.
                    self.room.notify_one();
                    return Err(ended.err().unwrap_or(Error::NotSent));
                }
            }
        }
    }

    /// Returns whether futures wait for room.
    pub(super) fn has_waiting(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) > 0
    }

    /// Wakes as many of those who wait as there is room for.
    pub(super) fn make_room(&self, places: usize) {
        for _ in 0..places.min(self.waiting.load(Ordering::SeqCst)) {
            self.room.notify_one();
        }
    }

    /// Wakes all who wait for room.
    pub(super) fn wake_all(&self) {
        self.room.notify_waiters();
    }

    /// Ends the driver, and the session with it.
    pub(super) fn end(&self) {
        let mut state = self.state();
        state.has_ended = true;
        let driver = state.sleeping.take();
        drop(state);
        driver.into_iter().for_each(Waker::wake);
    }
}

/// A future among those that wait for room.
struct RoomWaiter<'c>(&'c AtomicUsize);

impl RoomWaiter<'_> {
    fn begin(waiting: &AtomicUsize) -> RoomWaiter<'_> {
        waiting.fetch_add(1, Ordering::SeqCst);
        RoomWaiter(waiting)
    }
}

impl Drop for RoomWaiter<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Returns the error of a request that finds no driver: its runtime has ended.
pub(super) fn ended() -> Error {
    Error::Port { error: std::io::Error::other("the runtime in which the client was made has ended") }
}

/// The reply to a request, for the future that waits for it. Whoever drops it does not want it.
pub(super) struct Reply<'c> {
    shared: &'c SharedSession,
    /// `None` after it was taken.
    index: Option<u32>,
}

impl Reply<'_> {
    /// Waits for the reply, and passes it to `take`.
    pub(super) async fn take<T>(mut self, take: impl FnOnce(Result<Status, Error>, &[u8]) -> T) -> T {
        let mut take = Some(take);
        let reply = &mut self;
        std::future::poll_fn(|context| {
            let mut state = reply.shared.state();
            let (Some(index), Some(taker)) = (reply.index, take.take()) else { return Poll::Pending };
            let Some((status, body)) = state.replies.poll(index, context) else {
                take = Some(taker);
                return Poll::Pending;
            };
            let taken = taker(status.map_err(Error::from), body);
            state.replies.release(index);
            reply.index = None;
            Poll::Ready(taken)
        })
        .await
    }
}

impl Drop for Reply<'_> {
    fn drop(&mut self) {
        if let Some(index) = self.index {
            self.shared.state().replies.release(index);
        }
    }
}

/// The requests whose replies are still to come, or to be taken. Their indices are the tags of their requests.
#[derive(Default)]
pub(super) struct Replies {
    all: Vec<ReplyPlace>,
    free: Vec<u32>,
}

struct ReplyPlace {
    stage: Stage,
    /// The session still has a request with this tag.
    is_outstanding: bool,
    /// Of the reply; keeps its memory.
    body: Vec<u8>,
}

enum Stage {
    /// There is no such request, or nobody waits for its reply.
    Unwanted,
    /// The future that waits, if it was polled.
    Awaited(Option<Waker>),
    Answered(Result<Status, CompletionError>),
}

impl Replies {
    fn reserve(&mut self) -> u32 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.all.push(ReplyPlace { stage: Stage::Unwanted, is_outstanding: false, body: Vec::new() });
            self.all.len() as u32 - 1
        });
        let ReplyPlace { stage, is_outstanding, .. } = &mut self.all[index as usize];
        (*stage, *is_outstanding) = (Stage::Awaited(None), true);
        index
    }

    /// Notes that nobody waits for a reply any more. Its place is free when it has come.
    fn release(&mut self, index: u32) {
        let ReplyPlace { stage, is_outstanding, body } = &mut self.all[index as usize];
        *stage = Stage::Unwanted;
        if body.capacity() > KEPT_BYTES {
            *body = Vec::new();
        }
        if !*is_outstanding {
            self.free.push(index);
        }
    }

    fn poll(
        &mut self,
        index: u32,
        context: &Context<'_>,
    ) -> Option<(Result<Status, CompletionError>, &[u8])> {
        let ReplyPlace { stage, body, .. } = &mut self.all[index as usize];
        match stage {
            Stage::Answered(status) => Some((*status, body)),
            Stage::Awaited(Some(waker)) if waker.will_wake(context.waker()) => None,
            stage => {
                *stage = Stage::Awaited(Some(context.waker().clone()));
                None
            }
        }
    }

    /// Notes a reply; adds whom to wake to `ready`.
    pub(super) fn complete(&mut self, completion: &Completion<'_>, ready: &mut Vec<Waker>) {
        let Some(place) = self.all.get_mut(completion.tag as usize) else { return };
        let ReplyPlace { stage, is_outstanding, body } = place;
        *is_outstanding = false;
        match stage {
            Stage::Awaited(waker) => {
                ready.extend(waker.take());
                body.clear();
                body.extend_from_slice(completion.body);
                *stage = Stage::Answered(completion.status);
            }
            Stage::Unwanted => self.release(completion.tag as u32),
            // It was given up before.
            Stage::Answered(_) => {}
        }
    }

    /// Ends all that wait: what became of their requests is unknown.
    pub(super) fn fail(&mut self, ready: &mut Vec<Waker>) {
        for ReplyPlace { stage, body, .. } in &mut self.all {
            if let Stage::Awaited(waker) = stage {
                ready.extend(waker.take());
                body.clear();
                *stage = Stage::Answered(Err(CompletionError::Closed));
            }
        }
    }
}
