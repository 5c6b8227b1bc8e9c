//! Preemption: the signal of a worker's timer parks an extension that has used up its slice.
//!
//! ```text
//!   worker                     extension's stack              kernel
//!   watch ─ arms the timer ──────────────────────────────▶ one-shot timer
//!   run ──────────────────────▶ loop {}                       │
//!                               ┌ signal frame ◀──────────────┘ slice over
//!                               │ handler: park ─┐
//!   run returns "parked" ◀──────┼────────────────┘
//!   … resume ──────────────────▶│ handler returns: the kernel restores every register
//! ```
//! The handler acts only if an extension has the thread, its slice is over by the cycle counter, the stack pointer lies
//! on its stack, no host call is in progress, and a module is interrupted in its own code. If only the last three fail,
//! the preemption is *pending*. Between the polls of a turn the handler only sets its timer again. So a signal that
//! comes late, twice, or from outside has no wrong effect.
//!
//! A firing timer costs up to 20 us on a virtual machine, arming it for a slice up to 9 us. So it is not armed per poll
//! but kept ahead of the polls: by one to two slices for unknown code and by more for code with short polls, so that it
//! does not fire while polls are short. When turns are rare it is stopped after each.

use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::io;
use std::mem;
use std::ptr;
use std::rc::{Rc, Weak};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst, compiler_fence};

use super::cycles;
use super::lost::LostTime;
use super::running::{self, ThreadState};
use super::signal;
use super::watchdog::{self, Watched};

/// The `si_code` of signals raised by a timer.
const FROM_TIMER: i32 = -2;

/// The timer of this thread, as the handler sees it.
struct Alarm {
    id: Cell<libc::timer_t>,
    /// When it fires, in cycles; 0 if it is stopped.
    fires_at: AtomicU64,
    /// Polls are about to begin: if the timer fires before, the handler must not drop it.
    expecting: AtomicBool,
    slice: AtomicU64,
    cycles_per_us: AtomicU64,
}

thread_local! {
    static ALARM: Alarm = const {
        Alarm {
            id: Cell::new(ptr::null_mut()),
            fires_at: AtomicU64::new(0),
            expecting: AtomicBool::new(false),
            slice: AtomicU64::new(0),
            cycles_per_us: AtomicU64::new(1),
        }
    };
    static TIMER: RefCell<Weak<Timer>> = const { RefCell::new(Weak::new()) };
}

impl Alarm {
    /// Makes the timer fire `after` cycles from `now`. One system call, allowed in a signal handler.
    fn arm(&self, now: u64, after: u64) {
        self.fires_at.store(now + after, Relaxed);
        self.set((after * 1000 / self.cycles_per_us.load(Relaxed)).max(1));
    }

    fn stop(&self) {
        self.fires_at.store(0, Relaxed);
        self.set(0);
    }

    fn set(&self, after_ns: u64) {
        // SAFETY: a `itimerspec` of zeros is valid.
        let mut time: libc::itimerspec = unsafe { mem::zeroed() };
        time.it_value.tv_sec = (after_ns / 1_000_000_000) as i64;
        time.it_value.tv_nsec = (after_ns % 1_000_000_000) as i64;
        // SAFETY: the timer of this thread, which exists as long as its id is stored here, so the call cannot fail.
        unsafe { libc::timer_settime(self.id.get(), 0, &raw const time, ptr::null_mut()) };
    }
}

/// The kernel's timer of one thread, shared by all preemptions on it.
#[derive(Debug)]
struct Timer {
    id: libc::timer_t,
    /// The watchdog's registration of this thread.
    _watched: Watched,
}

impl Timer {
    fn of_this_thread() -> io::Result<Rc<Self>> {
        if let Some(timer) = TIMER.with(|timer| timer.borrow().upgrade()) {
            return Ok(timer);
        }
        install()?;
        // SAFETY: returns the id of this thread.
        let thread = unsafe { libc::gettid() };
        // SAFETY: a `sigevent` of zeros is valid.
        let mut event: libc::sigevent = unsafe { mem::zeroed() };
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = signal::NUMBER;
        event.sigev_notify_thread_id = thread;
        let mut id: libc::timer_t = ptr::null_mut();
        // SAFETY: a valid event, and a live local for the id.
        if unsafe { libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut id) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let timer = Rc::new(Self { id, _watched: watchdog::watch(thread) });
        // SAFETY: `drop` unsets the heartbeat before the heartbeat's end.
        unsafe { running::set_heartbeat(timer._watched.heartbeat()) };
        ALARM.with(|alarm| {
            alarm.id.set(id);
            alarm.fires_at.store(0, Relaxed);
            alarm.cycles_per_us.store(cycles::per_us(), Relaxed);
        });
        TIMER.with(|slot| *slot.borrow_mut() = Rc::downgrade(&timer));
        Ok(timer)
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        // SAFETY: null is always valid.
        unsafe { running::set_heartbeat(ptr::null()) };
        // SAFETY: this value owns the timer and ends it here. A pending signal finds the thread not lent.
        unsafe { libc::timer_delete(self.id) };
    }
}

/// The preemption of code that uses up its slice on this thread. Stays on its thread.
#[derive(Debug)]
pub struct Preemption {
    slice: u64,
    /// The end of the last turn.
    last_turn: Cell<u64>,
    /// Whether this turn began long after that.
    turns_are_rare: Cell<bool>,
    lost: LostTime,
    _timer: Rc<Timer>,
}

/// The slices after which the clocks of [`LostTime`] are read again.
const LOST_SLICES: u64 = 20;

impl Preemption {
    /// Gives this thread its timer; the first call in the process installs the handler. `slice` is in cycles.
    ///
    /// # Errors
    /// The kernel's error if it has no timer left.
    pub fn new(slice: u64) -> io::Result<Self> {
        Ok(Self {
            slice,
            last_turn: Cell::new(0),
            turns_are_rare: Cell::new(true),
            lost: LostTime::new(LOST_SLICES.saturating_mul(slice)),
            _timer: Timer::of_this_thread()?,
        })
    }

    /// Returns the slice in cycles.
    #[inline]
    #[must_use]
    pub fn slice(&self) -> u64 {
        self.slice
    }

    /// Begins a turn of polls at `now`: until [`Preemption::rest`], a timer that fires before the first poll is set
    /// again. If something waited to run (`had_work`), the thread has not rested since the last turn.
    #[inline]
    pub fn begin(&self, now: u64, had_work: bool) {
        let since_last = now.wrapping_sub(self.last_turn.get());
        self.turns_are_rare.set(since_last > 2 * self.slice);
        self.lost.works(now, since_last > self.slice && !had_work);
        ALARM.with(|alarm| alarm.expecting.store(true, Relaxed));
        compiler_fence(SeqCst);
    }

    /// Ensures that a poll beginning at `now` is checked after one slice at the earliest and twice `slices` at the
    /// latest.
    #[inline]
    pub fn watch(&self, now: u64, slices: u64) {
        let fires_at = ALARM.with(|alarm| alarm.fires_at.load(Relaxed));
        let ahead = slices * self.slice;
        // A timer less than a slice ahead wraps around, so one comparison is enough.
        if fires_at.wrapping_sub(now + self.slice) > 2 * ahead - self.slice {
            self.arm(now, if fires_at == 0 { ahead } else { 2 * ahead });
        }
    }

    /// Ensures that a poll beginning at `now` is checked after one slice.
    pub fn watch_closely(&self, now: u64) {
        self.arm(now, self.slice);
    }

    /// Returns how long the thread lost its core during turns of the last milliseconds until `now`; reports each time
    /// only once.
    pub fn lost(&self, now: u64) -> u64 {
        self.lost.take(now)
    }

    /// Returns the total time for which the thread lost its core while it had work. Exact when a turn begins and after
    /// [`Preemption::lost`].
    #[inline]
    pub fn lost_in_all(&self) -> u64 {
        self.lost.total()
    }

    /// Ends a turn of polls at `now`: stops the timer if turns are rare, so that it does not interrupt other code.
    #[inline]
    pub fn rest(&self, now: u64) {
        ALARM.with(|alarm| alarm.expecting.store(false, Relaxed));
        self.last_turn.set(now);
        if self.turns_are_rare.get() {
            ALARM.with(|alarm| {
                if alarm.fires_at.load(Relaxed) != 0 {
                    alarm.stop();
                }
            });
        }
    }

    #[cold]
    fn arm(&self, now: u64, after: u64) {
        ALARM.with(|alarm| {
            alarm.slice.store(self.slice, Relaxed);
            alarm.arm(now, after);
        });
    }
}

fn install() -> io::Result<()> {
    static ONCE: Once = Once::new();
    let mut result = Ok(());
    ONCE.call_once(|| {
        let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut c_void) = on_signal;
        // SAFETY: a `sigaction` of zeros is valid: the default handler.
        let mut action: libc::sigaction = unsafe { mem::zeroed() };
        action.sa_sigaction = handler as usize;
        // The handler runs on the interrupted stack, so that its frame is parked too; its signal is blocked meanwhile.
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        // SAFETY: the handler has the signature that SA_SIGINFO requires, and does only what a handler may: it reads
        // thread-local records without a destructor, arms a timer, and switches stacks.
        if unsafe { libc::sigaction(signal::NUMBER, &raw const action, ptr::null_mut()) } != 0 {
            result = Err(io::Error::last_os_error());
        }
    });
    result
}

extern "C" fn on_signal(_: i32, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: returns the address of this thread's `errno`.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { *errno };
    // SAFETY: the kernel passes a valid record and a valid context.
    let (code, place) = unsafe {
        let registers = &(*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs;
        let [instruction, stack_pointer] =
            [libc::REG_RIP, libc::REG_RSP].map(|register| registers[register as usize] as usize);
        ((*info).si_code, Place { instruction, stack_pointer })
    };
    running::with(|running| ALARM.with(|alarm| look(running, alarm, place, code == FROM_TIMER)));
    // SAFETY: as above; a parked stack is resumed on its own thread.
    unsafe { *errno = before };
}

/// Where the signal interrupted the thread.
struct Place {
    instruction: usize,
    stack_pointer: usize,
}

/// Applies the rules of the file's head.
fn look(running: &ThreadState, alarm: &Alarm, place: Place, fired: bool) {
    if fired {
        alarm.fires_at.store(0, Relaxed);
    }
    let (now, ends) = (cycles::now(), running.slice_ends());
    if !running.is_lent() {
        if fired && alarm.expecting.load(Relaxed) {
            alarm.arm(now, alarm.slice.load(Relaxed));
        }
        return;
    }
    let slice = alarm.slice.load(Relaxed);
    // The rest of a slice is worth a timer only if it is longer than the timer's cost.
    if now + slice / 4 < ends {
        if fired {
            alarm.arm(now, ends - now);
        }
        return;
    }
    let (bottom, top) = running.bounds();
    let is_on_its_stack = (bottom..top).contains(&place.stack_pointer);
    if running.may_be_left() && is_on_its_stack && running.may_be_parked_at(place.instruction) {
        alarm.fires_at.store(0, Relaxed);
        // SAFETY: the caller is the handler, and the checks above ensure that the interrupted stack may be parked.
        unsafe { running.park_by_signal() };
    } else {
        running.set_pending();
        if fired {
            alarm.arm(now, slice);
        }
    }
}
