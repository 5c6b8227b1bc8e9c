//! Ends another thread's sleep; costs two atomic operations if that thread is awake.
//!
//! A [`Sleeper`] belongs to a port and sleeps in `epoll` over an eventfd and, if there are any, the port's socket and
//! the bells of its channels; or it belongs to a thread without a port, which sleeps over its streams. A [`Waker`]
//! raises a flag and writes the eventfd only if the sleeper has announced its sleep. Both flags are sequentially
//! consistent: either the waker sees the announcement, or the sleeper sees the flag and does not sleep; a wake-up is
//! never lost, a spare one may happen.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::sys;

#[derive(Debug)]
struct WakerState {
    event: OwnedFd,
    sleeping: AtomicBool,
    woken: AtomicBool,
}

/// Wakes the port of its origin. Cheap to clone, usable from every thread.
#[derive(Clone, Debug)]
pub struct Waker {
    shared: Arc<WakerState>,
}

impl Waker {
    /// Ends the port's current wait, or makes its next one return at once.
    #[inline]
    pub fn wake(&self) {
        self.shared.woken.store(true, Ordering::SeqCst);
        if self.shared.sleeping.load(Ordering::SeqCst) {
            sys::eventfd_raise(self.shared.event.as_fd());
        }
    }
}

/// The sleeping side.
pub struct Sleeper {
    shared: Arc<WakerState>,
    epoll: Arc<OwnedFd>,
}

/// Adds wake-up sources of a sleeper, from any thread.
#[derive(Clone, Debug)]
pub(crate) struct Watcher {
    epoll: Arc<OwnedFd>,
}

impl Watcher {
    /// Wakes the sleeper each time that `doorbell` is raised, and when its other end goes.
    pub(crate) fn watch(&self, doorbell: BorrowedFd<'_>) -> io::Result<()> {
        sys::epoll_add(self.epoll.as_fd(), doorbell, libc::EPOLLET)
    }

    /// Stops watching `doorbell`. Closing it suffices only if no other process has the doorbell.
    pub(crate) fn forget(&self, doorbell: BorrowedFd<'_>) {
        sys::epoll_remove(self.epoll.as_fd(), doorbell);
    }
}

impl Sleeper {
    /// Creates a sleeper that also wakes when `socket` is readable. `socket` must outlive the sleeper's use.
    pub(crate) fn new(socket: Option<BorrowedFd<'_>>) -> io::Result<Self> {
        let event = sys::eventfd()?;
        let epoll = sys::epoll()?;
        sys::epoll_add(epoll.as_fd(), event.as_fd(), 0)?;
        if let Some(socket) = socket {
            sys::epoll_add(epoll.as_fd(), socket, 0)?;
        }
        let shared =
            Arc::new(WakerState { event, sleeping: AtomicBool::new(false), woken: AtomicBool::new(false) });
        Ok(Self { shared, epoll: Arc::new(epoll) })
    }

    /// Returns a waker that ends its sleep.
    #[must_use]
    pub fn waker(&self) -> Waker {
        Waker { shared: Arc::clone(&self.shared) }
    }

    /// Returns a handle that adds wake-up sources.
    pub(crate) fn watcher(&self) -> Watcher {
        Watcher { epoll: Arc::clone(&self.epoll) }
    }

    /// Sleeps until the socket is readable, the waker is used or `timeout` has passed.
    pub(crate) fn sleep(&self, timeout: Duration) -> io::Result<()> {
        self.sleep_in(|| sys::epoll_sleep(self.epoll.as_fd(), timeout))
    }

    /// Creates a sleeper for a thread without a port.
    ///
    /// # Errors
    /// If the process is out of descriptors.
    pub fn alone() -> io::Result<Self> {
        Self::new(None)
    }

    /// Sleeps until one of the sockets is readable or writable as requested, the waker is used or `timeout` has
    /// passed.
    pub(crate) fn sleep_beside<'s>(
        &self,
        sockets: impl Iterator<Item = (BorrowedFd<'s>, (bool, bool))>,
        timeout: Duration,
    ) -> io::Result<()> {
        self.sleep_in(|| sys::poll_over(self.shared.event.as_fd(), sockets, timeout))
    }

    /// Returns a descriptor that is readable when a sleep would end.
    pub(crate) fn descriptor(&self) -> io::Result<OwnedFd> {
        self.epoll.try_clone()
    }

    /// Announces a sleep; returns false if the waker was used since the last one. [`Sleeper::end`] ends it in either case.
    pub(crate) fn begin(&self) -> bool {
        self.shared.sleeping.store(true, Ordering::SeqCst);
        !self.shared.woken.load(Ordering::SeqCst)
    }

    /// Withdraws the announcement; `slept`: a waker may have raised the eventfd.
    pub(crate) fn end(&self, slept: bool) {
        self.shared.sleeping.store(false, Ordering::SeqCst);
        // A waker may raise the eventfd only now, after the flag was taken: then the next sleep is short and drains it.
        if self.shared.woken.swap(false, Ordering::SeqCst) || slept {
            sys::eventfd_drain(self.shared.event.as_fd());
        }
    }

    fn sleep_in(&self, wait: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let sleeps = self.begin();
        let slept = if sleeps { wait() } else { Ok(()) };
        self.end(sleeps);
        slept
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::time::{Duration, Instant};

    use super::Sleeper;

    #[test]
    fn waker_wakes_a_sleeping_wait() {
        let sleeper = Sleeper::new(None).unwrap();
        let waker = sleeper.waker();
        let started = Instant::now();
        let thread = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(30));
            waker.wake();
        });
        sleeper.sleep(Duration::from_secs(120)).unwrap();
        assert!(started.elapsed() < Duration::from_secs(100));
        thread.join().unwrap();
    }

    #[test]
    fn wake_before_sleep_is_not_lost() {
        let sleeper = Sleeper::new(None).unwrap();
        sleeper.waker().wake();
        let started = Instant::now();
        sleeper.sleep(Duration::from_secs(120)).unwrap();
        assert!(started.elapsed() < Duration::from_secs(100));
    }

    #[test]
    fn a_waker_that_comes_late_ends_one_sleep_and_no_more() {
        let sleeper = Sleeper::new(None).unwrap();
        // As a waker does that was delayed between its check and this, while something else woke the sleeper.
        crate::sys::eventfd_raise(sleeper.shared.event.as_fd());
        sleeper.sleep(Duration::from_secs(10)).unwrap();
        let started = Instant::now();
        sleeper.sleep(Duration::from_millis(5)).unwrap();
        assert!(started.elapsed() >= Duration::from_millis(4));
    }

    #[test]
    fn sleep_without_wake_ends_by_its_timeout() {
        let sleeper = Sleeper::new(None).unwrap();
        for _ in 0..3 {
            sleeper.waker().wake();
            sleeper.sleep(Duration::from_secs(10)).unwrap();
            let started = Instant::now();
            sleeper.sleep(Duration::from_millis(5)).unwrap();
            assert!(started.elapsed() >= Duration::from_millis(4));
        }
    }
}
