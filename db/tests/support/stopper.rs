//! Stops a thread wherever it is, as the kernel does that gives its core to somebody else, until others have got on.
//!
//! A signal's handler keeps the thread. What it holds at that moment, a lock or a half-made entry of a queue, it goes on
//! holding. Where that is is a matter of chance, so tests stop a thread many times.
//!
//! The allocator is one under which threads do not meet: that of the system has locks of its own, which are not what is
//! tested here. It gives nothing back.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const RUNS: u32 = 0;
const IS_ASKED: u32 = 1;
const STANDS: u32 = 2;
const MAY_GO: u32 = 3;

static STATE: AtomicU32 = AtomicU32::new(RUNS);

/// One test at a time stops threads.
static TURN: Mutex<()> = Mutex::new(());

/// How long others may take to get on: far longer than they need on a machine that does other things too.
const PATIENCE: Duration = Duration::from_secs(20);

extern "C" fn stand(_: libc::c_int) {
    if STATE.compare_exchange(IS_ASKED, STANDS, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        return;
    }
    let nap = libc::timespec { tv_sec: 0, tv_nsec: 20_000 };
    while STATE.load(Ordering::Acquire) != MAY_GO {
        // SAFETY: may be called by a handler; the time is live.
        unsafe { libc::nanosleep(&raw const nap, ptr::null_mut()) };
    }
    STATE.store(RUNS, Ordering::Release);
}

/// The number of the calling thread.
pub fn own_thread() -> libc::pid_t {
    // SAFETY: asks for a number.
    unsafe { libc::gettid() }
}

/// Stops threads, and is the only one that does.
pub struct Stopper {
    _turn: MutexGuard<'static, ()>,
}

impl Stopper {
    pub fn new() -> Self {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: zeroes are an action without flags; the handler makes calls alone that a handler may make.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = stand as extern "C" fn(libc::c_int) as usize;
            action.sa_flags = libc::SA_RESTART;
            assert_eq!(libc::sigaction(libc::SIGUSR2, &raw const action, ptr::null_mut()), 0);
        }
        Self { _turn: turn }
    }

    /// Stops a thread until `count` has grown by `steps`; false where that does not come.
    #[must_use]
    pub fn others_get_on(&self, thread: libc::pid_t, count: &AtomicU64, steps: u64) -> bool {
        STATE.store(IS_ASKED, Ordering::Release);
        // SAFETY: sends a signal, whose handler stands, to a thread of this process that has not ended.
        unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, libc::SIGUSR2) };
        while STATE.load(Ordering::Acquire) != STANDS {
            std::thread::yield_now();
        }
        let (began, before) = (Instant::now(), count.load(Ordering::Relaxed));
        let is_on = || count.load(Ordering::Relaxed) >= before + steps;
        while !is_on() && began.elapsed() < PATIENCE {
            std::thread::yield_now();
        }
        let are_on = is_on();
        STATE.store(MAY_GO, Ordering::Release);
        while STATE.load(Ordering::Acquire) != RUNS {
            std::thread::yield_now();
        }
        are_on
    }
}

/// See the file's head.
pub struct Bump;

/// Bytes that a thread takes from the system at a time.
const CHUNK_BYTES: usize = 4 << 20;

thread_local! {
    /// What is left of the thread's chunk: from, to.
    static CHUNK: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
}

// SAFETY: each call gets bytes that no other one has had, aligned as it asks for, which stay for good.
unsafe impl GlobalAlloc for Bump {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CHUNK.with(|chunk| {
            let (mut from, mut to) = chunk.get();
            let mut start = from.next_multiple_of(layout.align());
            if from == 0 || start + layout.size() > to {
                let bytes = CHUNK_BYTES.max(layout.size() + layout.align());
                let (access, kind) =
                    (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
                // SAFETY: asks for fresh memory anywhere.
                let mapped = unsafe { libc::mmap(ptr::null_mut(), bytes, access, kind, -1, 0) };
                if mapped == libc::MAP_FAILED {
                    return ptr::null_mut();
                }
                (from, to) = (mapped.addr(), mapped.addr() + bytes);
                start = from.next_multiple_of(layout.align());
            }
            chunk.set((start + layout.size(), to));
            ptr::with_exposed_provenance_mut(start)
        })
    }

    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}
