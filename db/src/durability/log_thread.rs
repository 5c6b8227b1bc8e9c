//! The thread that writes the log, off the workers' cores, and how workers and it wake each other.
//!
//! ```text
//!   worker:      holds answers, gathers ── wake ──► thread: cut, write, stable ── waker ──► worker: sends them
//!                of written tables, with backups ─► thread: cut, send, received ─ waker ──► worker: sends them
//!   any write:   on the disk when the thread looks next, after the flush interval at the latest
//!   grower:      adds frames to the file ahead of their use, since that takes milliseconds
//! ```
//! The thread blocks in the kernel and never spins: it runs at real-time priority where the kernel permits that, so
//! that a core's other threads do not make every write wait for their time slices (4 to 8 ms).

use std::fmt::Display;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use disk::DiskError;
use net::{Duplex, Sleeper, Waker};
use store::{Admission, AwaitedCuts, Store};

use super::figures::LogFigures;
use super::log_writer::{LogWriter, Sent, Snapshot, Step};
use crate::limits::{
    BACKUPS_STOP_MS, GROUP_WAIT_CUTS, GROUP_WAIT_US_MAX, SHORT_INTERVAL_MS, SNAPSHOT_WAIT_MS, STABLE_LOOK_US,
};
use crate::process::{self, RealTime};

/// State shared with those that wake the thread.
#[derive(Debug, Default)]
struct Bell {
    is_wanted: AtomicBool,
    is_receipt_wanted: AtomicBool,
    is_asleep: AtomicBool,
    is_stopping: AtomicBool,
    has_failed: AtomicBool,
    has_settled: AtomicBool,
    is_complete: AtomicBool,
}

/// Wakes the log's thread. Cheap to clone, usable from every thread.
#[derive(Clone, Debug)]
pub struct LogWaker {
    bell: Arc<Bell>,
    sleeper: Waker,
    figures: Arc<LogFigures>,
}

impl LogWaker {
    /// Makes the thread write soon what was appended before this call. Costs a system call if the thread sleeps.
    #[inline]
    pub fn wake(&self) {
        self.ring(&self.bell.is_wanted);
    }

    /// Makes the thread send soon to backups what was appended before this call, without the disk; without backups, write it.
    #[inline]
    pub fn wake_for_receipts(&self) {
        self.ring(&self.bell.is_receipt_wanted);
    }

    #[inline]
    fn ring(&self, wanted: &AtomicBool) {
        wanted.store(true, Ordering::SeqCst);
        if self.bell.is_asleep.load(Ordering::SeqCst) && self.bell.is_asleep.swap(false, Ordering::SeqCst) {
            self.sleeper.wake();
        }
    }

    /// Returns the longest time that answers may be gathered before the thread is woken for them, in microseconds.
    #[inline]
    #[must_use]
    pub fn group_wait_us(&self) -> u64 {
        (self.figures.cut_us() * GROUP_WAIT_CUTS).min(GROUP_WAIT_US_MAX)
    }

    /// The same of answers that wait for backups to receive what they show.
    #[inline]
    #[must_use]
    pub fn receipt_wait_us(&self) -> u64 {
        (self.figures.receipt_us() * GROUP_WAIT_CUTS).min(GROUP_WAIT_US_MAX)
    }

    /// Returns whether the disk has failed, so that nothing becomes stable any more.
    #[inline]
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.bell.has_failed.load(Ordering::Acquire)
    }

    /// Ends all acknowledgements, as a failure of the disk does.
    pub fn fail(&self, store: &Store) {
        store.admit_durable(Admission::Failed);
        self.bell.has_failed.store(true, Ordering::Release);
        self.wake();
    }

    /// Returns whether what the start found is at as many backups as are promised: only then it may be shown to anybody.
    #[must_use]
    pub fn has_settled(&self) -> bool {
        self.bell.has_settled.load(Ordering::Acquire)
    }

    /// Returns whether the thread was stopped and has written all of durable tables before it ended.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.bell.is_complete.load(Ordering::Acquire)
    }
}

/// Gets a snapshot.
type SnapshotSender = SyncSender<Result<Snapshot, DiskError>>;

/// What others know of a running log.
#[derive(Clone, Debug)]
pub struct LogHandle {
    /// Wakes the thread.
    pub waker: LogWaker,
    /// Its figures.
    pub figures: Arc<LogFigures>,
    /// Whether the disk held no log when the server started.
    pub is_new: bool,
    snapshots: Sender<SnapshotSender>,
}

impl LogHandle {
    /// Returns the log as of a cut that includes everything written before the call; of a full disk, as of the latest
    /// cut that is on it. Waits for the log's thread, some milliseconds.
    ///
    /// # Errors
    /// [`DiskError`]; `None` if the thread does not answer, as after a failure of the disk.
    pub fn snapshot(&self) -> Result<Snapshot, Option<DiskError>> {
        let (sender, receiver) = sync_channel(1);
        self.snapshots.send(sender).map_err(|_| None)?;
        self.waker.wake();
        let answer = receiver.recv_timeout(Duration::from_millis(SNAPSHOT_WAIT_MS));
        answer.map_err(|_| None)?.map_err(Some)
    }
}

/// The reason why a cut is not stable.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum NotStable {
    /// The disk has failed.
    Failed,
    /// It takes too long, as on a full disk.
    Late,
}

impl LogHandle {
    /// Wakes the thread for whichever of these cuts is not reached.
    pub fn wake_for(&self, store: &Store, cuts: AwaitedCuts) {
        if cuts.stable > store.stable_cut() {
            self.waker.wake();
        } else if !cuts.are_reached(store.reached_cuts()) {
            self.waker.wake_for_receipts();
        }
    }

    /// Waits until cuts of the store's log are reached. For control threads.
    ///
    /// # Errors
    /// [`NotStable`]
    pub fn await_cuts(&self, store: &Store, cuts: AwaitedCuts, patience: Duration) -> Result<(), NotStable> {
        let until = Instant::now() + patience;
        while !cuts.are_reached(store.reached_cuts()) {
            if self.waker.has_failed() {
                return Err(NotStable::Failed);
            }
            if Instant::now() > until {
                return Err(NotStable::Late);
            }
            self.wake_for(store, cuts);
            thread::sleep(Duration::from_micros(STABLE_LOOK_US));
        }
        Ok(())
    }
}

/// The running thread.
#[derive(Debug)]
pub struct LogThread {
    handle: LogHandle,
    thread: JoinHandle<()>,
}

impl LogThread {
    /// Starts the thread, off the workers' CPUs. It calls `on_stable` after each cut that became stable, and when the disk
    /// has failed.
    ///
    /// # Errors
    /// If the kernel gives no thread, or no descriptors.
    pub fn start(
        writer: LogWriter,
        (flush_interval, workers_cpus): (Duration, Vec<usize>),
        on_stable: impl Fn() + Send + 'static,
    ) -> std::io::Result<Self> {
        let bell = Arc::new(Bell::default());
        let (own, figures) = (Arc::clone(&bell), writer.figures());
        let (snapshots, wanted) = channel();
        let sleeper = Sleeper::alone()?;
        let waker = LogWaker { bell, sleeper: sleeper.waker(), figures: Arc::clone(&figures) };
        let thread = thread::Builder::new().name("log".to_owned()).spawn(move || {
            if let Err(error) = process::stay_off(&workers_cpus) {
                tracing::debug!(%error, "the log's thread may use the workers' CPUs");
            }
            let store = Arc::clone(writer.store());
            let write = || write_all(writer, (flush_interval, &sleeper), (&own, &wanted), &on_stable);
            if panic::catch_unwind(AssertUnwindSafe(write)).is_err() {
                fail(&store, &own, &"its thread ended", &on_stable);
            }
        })?;
        Ok(Self { handle: LogHandle { waker, figures, is_new: false, snapshots }, thread })
    }

    /// Returns what others may know of the log, which the disk did not hold at the start if it `is_new`.
    #[must_use]
    pub fn handle(&self, is_new: bool) -> LogHandle {
        LogHandle { is_new, ..self.handle.clone() }
    }

    /// Makes the thread write all that was appended and end.
    pub fn stop(self) -> JoinHandle<()> {
        self.handle.waker.bell.is_stopping.store(true, Ordering::SeqCst);
        self.handle.waker.wake();
        self.handle.waker.sleeper.wake();
        self.thread
    }
}

fn write_all(
    mut writer: LogWriter,
    (flush_interval, sleeper): (Duration, &Sleeper),
    (bell, wanted): (&Bell, &Receiver<SnapshotSender>),
    on_stable: &impl Fn(),
) {
    let mut real_time = prepare(&mut writer);
    let mut was_full = false;
    let (mut is_last, mut began, mut snapshots) = (false, Instant::now(), Vec::new());
    let (mut wanted_disk, mut wanted_receipts, mut told) = (true, false, writer.store().reached_cuts());
    while !bell.has_failed.load(Ordering::Acquire) {
        real_time.iter_mut().for_each(RealTime::look);
        wanted_disk |= bell.is_wanted.swap(false, Ordering::SeqCst);
        wanted_receipts |= bell.is_receipt_wanted.swap(false, Ordering::SeqCst);
        let interval = interval_of(&writer, flush_interval);
        let mut is_due = !writer.has_backups()
            || writer.is_waiting()
            || wanted_disk
            || writer.needs_disk()
            || began.elapsed() >= interval;
        if !is_due {
            writer.tend_backups();
            let sent = if wanted_receipts { writer.send_ahead() } else { Sent::Now };
            (wanted_receipts, is_due) = (sent != Sent::Now, sent == Sent::WithDisk);
        }
        if is_due {
            if !writer.is_waiting() {
                (is_last, began) = (bell.is_stopping.load(Ordering::SeqCst), Instant::now());
                // Requested before the cut, so that it includes what was written before the request.
                snapshots = wanted.try_iter().collect();
                (wanted_disk, wanted_receipts) = (false, false);
            }
            match writer.step() {
                // Whatever comes of backups wakes it.
                Ok(Step::Waiting) => {
                    if is_last && began.elapsed() > Duration::from_millis(BACKUPS_STOP_MS) {
                        return tracing::error!("the last writes of durable tables are not at other servers");
                    }
                    wanted_receipts = wanted_receipts && writer.send_ahead() != Sent::Now;
                }
                Ok(step) => {
                    bell.has_settled.fetch_or(writer.has_settled(), Ordering::Release);
                    for sender in snapshots.drain(..) {
                        // The requester may have given up waiting.
                        let _ = sender.send(writer.snapshot());
                    }
                    tell_if_full(&mut was_full, step);
                    if is_last {
                        return end(writer, step, bell, on_stable);
                    }
                }
                Err(error) => return fail(writer.store(), bell, &writer.cause_of(error), on_stable),
            }
        }
        if writer.store().reached_cuts() != told {
            told = writer.store().reached_cuts();
            on_stable();
        }
        writer.flush_backups();
        // Receipts that came too late for a step are sent now.
        let is_owed = (wanted_disk || is_due && wanted_receipts) && !writer.is_waiting();
        let is_ahead = writer.has_backups() && !writer.is_waiting();
        let passed = if is_ahead { began.elapsed() } else { Duration::ZERO };
        sleep(&writer, bell, is_owed, (sleeper, interval.saturating_sub(passed)));
    }
    on_stable();
}

/// Returns the time from one cut of the disk to the next one for which nobody asks.
fn interval_of(writer: &LogWriter, flush_interval: Duration) -> Duration {
    // Cores that wait for frames do not wake the thread.
    let short = Duration::from_millis(SHORT_INTERVAL_MS);
    if writer.is_short() { flush_interval.min(short) } else { flush_interval }
}

/// Sleeps until somebody wants something, or backups have sent something, or this time has passed.
fn sleep(writer: &LogWriter, bell: &Bell, is_owed: bool, (sleeper, time): (&Sleeper, Duration)) {
    bell.is_asleep.store(true, Ordering::SeqCst);
    let is_stopping = bell.is_stopping.load(Ordering::SeqCst) && !writer.is_waiting();
    let is_rung =
        [&bell.is_wanted, &bell.is_receipt_wanted].iter().any(|wanted| wanted.load(Ordering::SeqCst));
    if !is_rung
        && !is_owed
        && !is_stopping
        && let Err(error) = Duplex::sleep_over(sleeper, writer.sockets(), time)
    {
        tracing::warn!(%error, "the log's thread cannot wait for backups");
        thread::sleep(Duration::from_millis(SHORT_INTERVAL_MS));
    }
    bell.is_asleep.store(false, Ordering::SeqCst);
}

/// Ends the log after its last step.
fn end(mut writer: LogWriter, step: Step, bell: &Bell, on_stable: &impl Fn()) {
    if step == Step::Full {
        let bytes = writer.store().unstable_bytes();
        return tracing::error!(bytes, "no space on the disk for the last writes of durable tables");
    }
    on_stable();
    match writer.finish() {
        Ok(()) => bell.is_complete.store(true, Ordering::Release),
        Err(error) => fail(writer.store(), bell, &error, on_stable),
    }
}

/// Takes what the thread needs; without it, it works all the same.
fn prepare(writer: &mut LogWriter) -> Option<RealTime> {
    if let Err(error) = writer.grow_ahead() {
        tracing::warn!(%error, "the log grows on its own thread: some writes take milliseconds");
    }
    let taken = RealTime::take().inspect_err(|error| {
        tracing::warn!(
            %error,
            "the log's thread gets no real-time priority: where other programs use the processors, durable writes take \
             milliseconds; allow it with `ulimit -r 1` or CAP_SYS_NICE"
        );
    });
    taken.ok()
}

fn tell_if_full(was_full: &mut bool, step: Step) {
    let is_full = step == Step::Full;
    if is_full && !*was_full {
        tracing::error!("no space on the disk: durable writes wait until cleaning has freed some");
    }
    *was_full = is_full;
}

/// Ends all acknowledgements. The text comes last, since nobody knows where it goes: perhaps to the disk that failed.
fn fail(store: &Store, bell: &Bell, error: &dyn Display, on_stable: &impl Fn()) {
    store.admit_durable(Admission::Failed);
    bell.has_failed.store(true, Ordering::Release);
    on_stable();
    tracing::error!(
        %error,
        "the disk failed: durable tables admit no writes until the server is restarted, and what was not answered may be \
         lost"
    );
}
