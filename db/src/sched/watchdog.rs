//! The watchdog: a thread that looks at the heartbeats of all workers of the process.
//!
//! Preemption makes polls short, so a worker that stays in one poll lost a signal, or is stuck in a host
//! call. Found in the same poll twice, it gets the signal once more, which the handler takes like any other;
//! if that does not help, the watchdog says so and counts it. It changes nothing else; whoever starts it may
//! have other workers look after what waits for that one.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::heartbeat::Heartbeat;
use super::signal;
use crate::limits::{WATCHDOG_LOOK_MS, WATCHDOG_LOOKS_TO_REPORT};

/// The threads that are looked at.
static THREADS: Mutex<Vec<Thread>> = Mutex::new(Vec::new());

/// Times that a worker got a signal since it stayed in one poll.
static NUDGES: AtomicU64 = AtomicU64::new(0);

/// Times that a worker stayed in one poll in spite of that.
static STALLS: AtomicU64 = AtomicU64::new(0);

struct Thread {
    id: libc::pid_t,
    heartbeat: Arc<Heartbeat>,
    seen: Option<u64>,
    /// Looks that found `seen` again.
    looks: u32,
}

/// A thread is looked at for as long as this lives.
#[derive(Debug)]
pub struct Watched {
    heartbeat: Arc<Heartbeat>,
}

impl Watched {
    /// Where the thread shows that it comes back.
    #[must_use]
    pub fn heartbeat(&self) -> *const Heartbeat {
        Arc::as_ptr(&self.heartbeat)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        threads().retain(|thread| !Arc::ptr_eq(&thread.heartbeat, &self.heartbeat));
    }
}

/// Looks at the thread of this id from now on. To be dropped on that thread, before it ends.
#[must_use]
pub fn watch(id: libc::pid_t) -> Watched {
    let heartbeat = Arc::new(Heartbeat::default());
    threads().push(Thread { id, heartbeat: Arc::clone(&heartbeat), seen: None, looks: 0 });
    Watched { heartbeat }
}

/// How often the watchdog signalled a worker again, and how often that did not help, since the start.
#[must_use]
pub fn counts() -> (u64, u64) {
    (NUDGES.load(Ordering::Relaxed), STALLS.load(Ordering::Relaxed))
}

/// The thread of the watchdog; ends when this is dropped.
#[derive(Debug)]
pub struct Watchdog {
    stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    /// Starts to look; calls `looked` after every look.
    ///
    /// # Errors
    /// When the kernel starts no thread.
    pub fn start(looked: impl Fn() + Send + 'static) -> io::Result<Self> {
        let stopping = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&stopping);
        let thread = thread::Builder::new().name("watchdog".to_owned()).spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                thread::park_timeout(Duration::from_millis(WATCHDOG_LOOK_MS));
                look();
                looked();
            }
        })?;
        Ok(Self { stopping, thread: Some(thread) })
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A thread that panicked has said so.
            let _ = thread.join();
        }
    }
}

fn look() {
    for thread in threads().iter_mut() {
        let busy = thread.heartbeat.busy();
        if busy.is_none() || busy != thread.seen {
            (thread.seen, thread.looks) = (busy, 0);
            continue;
        }
        thread.looks = thread.looks.saturating_add(1);
        nudge(thread.id);
        if thread.looks == WATCHDOG_LOOKS_TO_REPORT {
            STALLS.fetch_add(1, Ordering::Relaxed);
            let for_ms = WATCHDOG_LOOK_MS * u64::from(thread.looks);
            tracing::error!(thread = thread.id, for_ms, "a worker does not come back from an extension");
        }
    }
}

/// The thread lives: it takes itself out of the list, whose lock is held, before it ends.
fn nudge(thread: libc::pid_t) {
    NUDGES.fetch_add(1, Ordering::Relaxed);
    // SAFETY: sends a signal whose handler stands to a thread of this process.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, signal::NUMBER) };
}

fn threads() -> MutexGuard<'static, Vec<Thread>> {
    THREADS.lock().unwrap_or_else(PoisonError::into_inner)
}
