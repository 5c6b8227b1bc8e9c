//! The watchdog: a thread that checks the heartbeats of all workers of the process.
//!
//! Preemption makes polls short, so a worker that stays in one poll lost a signal or is stuck in a host call. If the
//! watchdog finds a worker in the same poll twice, it sends the signal again, which the handler takes like any other.
//! If that does not help, it logs and counts the event. It changes nothing else; its owner may let other workers serve
//! the requests that wait for that one.
//!
//! A worker also stays in a poll while something else has its core. The kernel tells how long the thread was ready and
//! waited; if that was most of the time, nothing is stuck, and the watchdog logs that instead.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use std::{fs, io};

use super::heartbeat::Heartbeat;
use super::signal;
use crate::limits::{WATCHDOG_LOOK_MS, WATCHDOG_LOOKS_TO_REPORT};

/// The watched threads.
static THREADS: Mutex<Vec<Thread>> = Mutex::new(Vec::new());

/// The number of signals sent to workers that stayed in one poll.
static NUDGES: AtomicU64 = AtomicU64::new(0);

/// The number of times that a worker stayed in one poll despite the signal.
static STALLS: AtomicU64 = AtomicU64::new(0);

struct Thread {
    id: libc::pid_t,
    heartbeat: Arc<Heartbeat>,
    seen: Option<u64>,
    /// The number of checks that found `seen` again.
    looks: u32,
    /// What the kernel had counted at the first of those checks.
    before: CoreTime,
    /// Whether the log already says that this poll waits for a core.
    is_starved: bool,
}

/// The registration of a watched thread, which ends on drop.
#[derive(Debug)]
pub struct Watched {
    heartbeat: Arc<Heartbeat>,
}

impl Watched {
    /// Returns the heartbeat of the thread.
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

/// Watches the thread with this id. The result must be dropped on that thread, before it ends.
#[must_use]
pub fn watch(id: libc::pid_t) -> Watched {
    let heartbeat = Arc::new(Heartbeat::default());
    let thread = Thread {
        id,
        heartbeat: Arc::clone(&heartbeat),
        seen: None,
        looks: 0,
        before: CoreTime::default(),
        is_starved: false,
    };
    threads().push(thread);
    Watched { heartbeat }
}

/// Returns how many signals the watchdog has sent, and how many did not help, since the start.
#[must_use]
pub fn counts() -> (u64, u64) {
    (NUDGES.load(Ordering::Relaxed), STALLS.load(Ordering::Relaxed))
}

/// The watchdog's thread, which ends on drop.
#[derive(Debug)]
pub struct Watchdog {
    stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    /// Starts the thread; calls `looked` after every check.
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
            // A panic of the thread was already reported.
            let _ = thread.join();
        }
    }
}

fn look() {
    for thread in threads().iter_mut() {
        let busy = thread.heartbeat.busy();
        if busy.is_none() || busy != thread.seen {
            (thread.seen, thread.looks, thread.is_starved) = (busy, 0, false);
            continue;
        }
        thread.looks = thread.looks.saturating_add(1);
        nudge(thread.id);
        if thread.looks == 1 {
            thread.before = CoreTime::of(thread.id);
        } else if thread.looks == WATCHDOG_LOOKS_TO_REPORT {
            thread.report();
        }
    }
}

impl Thread {
    /// Reports a thread found in the same poll by several checks.
    fn report(&mut self) {
        let for_ms = WATCHDOG_LOOK_MS * u64::from(self.looks);
        let CoreTime { run_ms, delayed_ms } = CoreTime::of(self.id).since(self.before);
        if delayed_ms < for_ms / 2 {
            STALLS.fetch_add(1, Ordering::Relaxed);
            // What is left of the time it slept: for a page of a file, say, or a lock.
            tracing::error!(
                thread = self.id,
                for_ms,
                run_ms,
                delayed_ms,
                "a worker does not come back from an extension"
            );
            return;
        }
        if !std::mem::replace(&mut self.is_starved, true) {
            tracing::warn!(
                thread = self.id,
                for_ms,
                delayed_ms,
                "a worker has no core: something else runs there"
            );
        }
        // Once the thread has a core again, its checks start over.
        self.looks = 0;
    }
}

/// How long a thread ran, and how long it was ready without a core, in milliseconds.
#[derive(Clone, Copy, Debug, Default)]
struct CoreTime {
    run_ms: u64,
    delayed_ms: u64,
}

impl CoreTime {
    /// Returns the times of a thread of this process; 0 if the kernel does not tell.
    fn of(thread: libc::pid_t) -> Self {
        let text = fs::read_to_string(format!("/proc/self/task/{thread}/schedstat")).unwrap_or_default();
        let mut times = text.split_whitespace().map(|word| word.parse::<u64>().unwrap_or(0) / 1_000_000);
        Self { run_ms: times.next().unwrap_or(0), delayed_ms: times.next().unwrap_or(0) }
    }

    fn since(self, before: Self) -> Self {
        Self {
            run_ms: self.run_ms.saturating_sub(before.run_ms),
            delayed_ms: self.delayed_ms.saturating_sub(before.delayed_ms),
        }
    }
}

/// Signals a thread, which is still alive: before it ends, it removes itself from the list, whose lock is held.
fn nudge(thread: libc::pid_t) {
    NUDGES.fetch_add(1, Ordering::Relaxed);
    // SAFETY: sends a signal with an installed handler to a thread of this process.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, signal::NUMBER) };
}

fn threads() -> MutexGuard<'static, Vec<Thread>> {
    THREADS.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;
    use std::time::{Duration, Instant};

    use super::{CoreTime, Thread};
    use crate::limits::{WATCHDOG_LOOK_MS, WATCHDOG_LOOKS_TO_REPORT};

    /// Pins the calling thread to the first CPU that it may use.
    fn pin() {
        // SAFETY: a CPU set of zeros is valid and empty.
        let (mut allowed, mut one) = unsafe { std::mem::zeroed::<(libc::cpu_set_t, libc::cpu_set_t)>() };
        let bytes = size_of::<libc::cpu_set_t>();
        // SAFETY: both sets are live and have this size; the numbers are valid for a set.
        unsafe {
            assert_eq!(libc::sched_getaffinity(0, bytes, &raw mut allowed), 0);
            let first = (0..libc::CPU_SETSIZE as usize).find(|cpu| libc::CPU_ISSET(*cpu, &allowed));
            libc::CPU_SET(first.expect("a thread has a CPU"), &mut one);
            assert_eq!(libc::sched_setaffinity(0, bytes, &raw const one), 0);
        }
    }

    /// Sets the flag on drop, so that the threads stop even if an assertion fails.
    struct Stop(Arc<AtomicBool>);

    impl Drop for Stop {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    /// Calls `holds` until it returns true; fails the test if it never does.
    fn comes(mut holds: impl FnMut() -> bool, never: &str) {
        let began = Instant::now();
        while !holds() {
            assert!(began.elapsed() < Duration::from_secs(60), "{never}");
        }
    }

    #[test]
    fn a_worker_whose_core_something_else_has_is_not_taken_for_a_stuck_one() {
        let stop = Stop(Arc::new(AtomicBool::new(false)));
        let stopped = Arc::clone(&stop.0);
        let hog = thread::spawn(move || {
            pin();
            while !stopped.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        thread::spawn(move || {
            pin();
            // SAFETY: returns the id of this thread.
            let id = unsafe { libc::gettid() };
            let (heartbeat, looks) = (Arc::default(), WATCHDOG_LOOKS_TO_REPORT);
            let mut thread =
                Thread { id, heartbeat, seen: None, looks, before: CoreTime::of(id), is_starved: false };
            let for_ms = WATCHDOG_LOOK_MS * u64::from(looks);
            let delayed_ms = |before| CoreTime::of(id).since(before).delayed_ms;
            comes(|| delayed_ms(thread.before) >= for_ms, "it is never delayed");
            thread.report();
            assert!(thread.is_starved && thread.looks == 0, "it is looked at anew");
            // A report of a stuck thread, once the thread has had the core between two checks.
            let is_stuck = || {
                (thread.looks, thread.before) = (looks, CoreTime::of(id));
                thread.report();
                thread.looks > 0
            };
            comes(is_stuck, "it is never taken for a stuck one");
        })
        .join()
        .expect("no assertion fails");
        drop(stop);
        hog.join().expect("it ends");
    }
}
