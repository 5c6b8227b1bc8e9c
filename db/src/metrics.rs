//! Counters of one worker, each written only by that worker and read by any thread.
//!
//! A counter is a relaxed atomic with one writer, so counting is a load, an addition and a store without a bus lock;
//! the counters of two workers never share a cache line. Sums over the workers may miss concurrent events, never
//! earlier ones. The control plane sums them for statistics and shows them on the metrics port.

use std::sync::atomic::{AtomicU64, Ordering};

/// Declares an enum of counters, each with its name in statistics and its comment as help text.
macro_rules! counted {
    (#[doc = $what:literal] $kind:ident: $($(#[doc = $doc:literal])+ $variant:ident = $name:literal,)*) => {
        #[doc = $what]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $kind { $($(#[doc = $doc])+ $variant,)* }

        impl $kind {
            /// All variants in the order of their declaration.
            pub const ALL: &'static [$kind] = &[$($kind::$variant,)*];

            /// Returns the name in statistics.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $($kind::$variant => $name,)* }
            }

            /// Returns the help text, one sentence.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self { $($kind::$variant => concat!($($doc),+).trim_ascii(),)* }
            }
        }
    };
}
pub(crate) use counted;

/// Adds to a counter that only this thread writes, without a bus lock.
#[inline]
pub fn add_alone(counter: &AtomicU64, amount: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
}

counted! {
    /// A counter of a worker.
    Counter:
    /// Frames that arrived.
    FramesReceived = "frames_received",
    /// Frames taken from the port of another worker.
    FramesStolen = "frames_stolen",
    /// Frames lost by the kernel or the port before the worker could take them.
    FramesDropped = "frames_dropped",
    /// Frames passed to the port.
    FramesSent = "frames_sent",
    /// Frames with a wrong head, or with inconsistent groups or messages.
    FramesMalformed = "frames_malformed",
    /// Groups whose token belongs to no session and, as far as remembered, never did.
    GroupsUnauthenticated = "groups_unauthenticated",
    /// Groups whose token belongs to a session that has ended.
    GroupsOfEndedSessions = "groups_of_ended_sessions",
    /// Groups of both kinds without a reply, because their source exceeded its rate.
    GroupsUnanswered = "groups_unanswered",
    /// Payload bytes that arrived in frames.
    BytesReceived = "bytes_received",
    /// Payload bytes sent in frames.
    BytesSent = "bytes_sent",
    /// Requests of sessions, over frames and streams.
    Requests = "requests",
    /// Requests that came over a stream.
    StreamRequests = "stream_requests",
    /// Pings.
    Pings = "pings",
    /// Gets.
    Gets = "gets",
    /// Puts.
    Puts = "puts",
    /// Deletes.
    Deletes = "deletes",
    /// Increments.
    Increments = "increments",
    /// Multi-gets.
    MultiGets = "multi_gets",
    /// Commits of clients.
    Commits = "commits",
    /// Steps of enumerations.
    Enumerates = "enumerates",
    /// Steps of scans.
    Scans = "scans",
    /// Steps of verifications.
    Verifies = "verifies",
    /// Corrupted objects found by enumerations and verifications.
    ObjectsCorrupted = "objects_corrupted",
    /// Started invocations.
    Invocations = "invocations",
    /// Invocations accepted by another worker and run by this one.
    InvocationsStolen = "invocations_stolen",
    /// Invocations that got an instance of their extension's WebAssembly module; the others run as machine code.
    InvocationsWasm = "invocations_wasm",
    /// Instances of WebAssembly modules made for invocations.
    InstancesMade = "instances_made",
    /// Instances that were dropped: unused for long, of a removed version, or not renewed after a trap.
    InstancesDropped = "instances_dropped",
    /// Invocations that succeeded.
    InvocationsSucceeded = "invocations_succeeded",
    /// Invocations that returned an error of their own.
    InvocationsFailed = "invocations_failed",
    /// Invocations that panicked.
    InvocationsPanicked = "invocations_panicked",
    /// Invocations that used up their memory or their stack.
    InvocationsOutOfMemory = "invocations_out_of_memory",
    /// Invocations ended for another reason.
    InvocationsKilled = "invocations_killed",
    /// Invocations that their clients were told to run.
    InvocationsPushedBack = "invocations_pushed_back",
    /// Times that an invocation used up its slice and was parked.
    Preemptions = "preemptions",
    /// Invocations that used up their processor time.
    KilledCpu = "killed_cpu",
    /// Invocations that exceeded their maximum age.
    KilledWall = "killed_wall",
    /// Invocations that yielded too often.
    KilledYields = "killed_yields",
    /// Invocations ended because too many were parked.
    KilledParked = "killed_parked",
    /// Invocations that would have held more memory than their tenant may while waiting.
    KilledHeld = "killed_held",
    /// Time of turns of invocations: polls, commits and replies.
    InvocationCycles = "invocation_cycles",
    /// Commits of invocations retried after a conflict.
    CommitConflicts = "commit_conflicts",
    /// Mutations answered from their stored reply.
    Replayed = "replayed",
    /// Duplicates that arrived while their original was executing.
    DuplicatesInFlight = "duplicates_in_flight",
    /// Requests below the exactly-once window.
    Expired = "expired",
    /// Requests refused with a typed status.
    Refused = "refused",
    /// Requests answered with a retry.
    Retries = "retries",
    /// Unread messages beyond the number that a batch may bring of one session or tenant.
    MessagesDropped = "messages_dropped",
    /// Requests refused temporarily by a limit of their tenant.
    Throttled = "throttled",
    /// Answers that waited until what they show was stable on the disk.
    AnswersHeld = "answers_held",
    /// Short answers that were not held, since too many waited for the disk: the next copy of the request is answered.
    AnswersDropped = "answers_dropped",
    /// Requests that waited for objects in transit.
    RequestsParked = "requests_parked",
    /// Times that an invocation waited for an object in transit.
    InvocationsLacking = "invocations_lacking",
    /// Objects that invocations read at other servers.
    RemoteReads = "remote_reads",
    /// Bytes of the keys and values of those.
    RemoteReadBytes = "remote_read_bytes",
    /// Reads at other servers refused because the tenant is `local_only` or too many were in flight.
    RemoteReadsRefused = "remote_reads_refused",
    /// Reads at other servers without an answer in time.
    RemoteReadsUnanswered = "remote_reads_unanswered",
    /// Times that an invocation waited for another server.
    InvocationsAsking = "invocations_asking",
    /// Reads answered to invocations of other servers, found or not.
    RemoteReadsServed = "remote_reads_served",
    /// Bytes of the values of those.
    RemoteReadBytesServed = "remote_read_bytes_served",
    /// Requests answered with a retry because too many wait.
    RequestsNotParked = "requests_not_parked",
    /// Requests answered with a retry because they had waited too long.
    RequestsOverdue = "requests_overdue",
    /// Replies that did not fit a frame.
    UseStream = "use_stream",
    /// Replies sent in parts, in several datagrams.
    RepliesInParts = "replies_in_parts",
    /// Applied changes of the catalog.
    Changes = "changes",
    /// Tenants whose home moved away from the worker. Counted by the housekeeping thread only.
    HomesMoved = "homes_moved",
    /// Time in rounds with work, in microseconds.
    BusyUs = "busy_us",
    /// Times that the worker went to sleep.
    Sleeps = "sleeps",
}

/// The counters of one worker.
#[derive(Debug)]
#[repr(align(128))]
pub struct WorkerMetrics {
    values: [AtomicU64; Counter::ALL.len()],
    waits: Waits,
}

impl WorkerMetrics {
    /// Creates counters at zero.
    #[must_use]
    pub fn new() -> Self {
        Self { values: [const { AtomicU64::new(0) }; Counter::ALL.len()], waits: Waits::new() }
    }

    /// Adds `amount`. Called by the owning worker only.
    #[inline]
    pub fn add(&self, counter: Counter, amount: u64) {
        add_alone(&self.values[counter as usize], amount);
    }

    /// Adds one. Called by the owning worker only.
    #[inline]
    pub fn count(&self, counter: Counter) {
        self.add(counter, 1);
    }

    /// Sets a value that is counted elsewhere. Called by the owning worker only.
    #[inline]
    pub fn set(&self, counter: Counter, value: u64) {
        self.values[counter as usize].store(value, Ordering::Relaxed);
    }

    /// Returns the number and durations of waits for objects.
    #[must_use]
    pub fn waits(&self) -> &Waits {
        &self.waits
    }

    /// Returns the current value.
    #[must_use]
    pub fn value(&self, counter: Counter) -> u64 {
        self.values[counter as usize].load(Ordering::Relaxed)
    }
}

impl Default for WorkerMetrics {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns the sum of one counter over several workers.
#[must_use]
pub fn total<'a>(workers: impl IntoIterator<Item = &'a WorkerMetrics>, counter: Counter) -> u64 {
    workers.into_iter().map(|worker| worker.value(counter)).sum()
}

const STEPS_PER_DOUBLING: u64 = 8;
const STEP_BITS: u32 = STEPS_PER_DOUBLING.trailing_zeros();
/// The begin of the last step: 2^24 microseconds, 16 seconds.
const WAIT_US_MAX: u64 = 1 << 24;
const STEPS: usize = ((WAIT_US_MAX.trailing_zeros() - STEP_BITS + 1) as u64 * STEPS_PER_DOUBLING) as usize;

/// The durations of requests' waits for objects in transit, and the number of waiting requests.
///
/// A histogram of eight steps per doubling, in microseconds: a quantile is accurate within a sixteenth.
#[derive(Debug)]
pub struct Waits {
    waiting: AtomicU64,
    steps: [AtomicU64; STEPS],
}

fn step_of(wait_us: u64) -> usize {
    let wait_us = wait_us.min(WAIT_US_MAX - 1);
    let shift = (u64::BITS - 1 - (wait_us | STEPS_PER_DOUBLING).leading_zeros()) - STEP_BITS;
    (u64::from(shift) * STEPS_PER_DOUBLING + (wait_us >> shift)) as usize
}

/// Returns the longest wait of a step.
fn last_of(step: usize) -> u64 {
    let shift = (step as u64 / STEPS_PER_DOUBLING).saturating_sub(1);
    let first = (step as u64 - shift * STEPS_PER_DOUBLING) << shift;
    first + ((1 << shift) - 1)
}

impl Waits {
    /// Creates an empty histogram.
    #[must_use]
    pub const fn new() -> Self {
        Self { waiting: AtomicU64::new(0), steps: [const { AtomicU64::new(0) }; STEPS] }
    }

    /// Adds a wait.
    pub fn note(&self, wait_us: u64) {
        add_alone(&self.steps[step_of(wait_us)], 1);
    }

    /// Sets the number of waiting requests.
    pub fn set_waiting(&self, waiting: u64) {
        self.waiting.store(waiting, Ordering::Relaxed);
    }

    /// Returns the number of waiting requests.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Returns the number of finished waits.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.steps.iter().map(|step| step.load(Ordering::Relaxed)).sum()
    }

    /// Returns the duration that this many thousandths of the waits do not exceed, in microseconds; 0 without waits.
    #[must_use]
    pub fn quantile_us(&self, thousandths: u64) -> u64 {
        let (mut left, count) = (0, self.count());
        let wanted = (count * thousandths).div_ceil(1000).max(1);
        let mut steps = self.steps.iter().enumerate();
        let step = steps.find(|(_, step)| {
            left += step.load(Ordering::Relaxed);
            left >= wanted
        });
        step.map_or(0, |(step, _)| last_of(step))
    }
}

impl Default for Waits {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::{Counter, WAIT_US_MAX, Waits, WorkerMetrics, last_of, step_of, total};

    #[test]
    fn a_counter_counts_itself_alone() {
        let metrics = [WorkerMetrics::new(), WorkerMetrics::new()];
        metrics[0].count(Counter::Gets);
        metrics[1].add(Counter::Gets, 4);
        assert_eq!(total(&metrics, Counter::Gets), 5);
        assert_eq!(total(&metrics, Counter::Puts), 0);
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<_> = Counter::ALL.iter().map(|counter| counter.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Counter::ALL.len());
    }

    #[test]
    fn each_wait_is_in_a_step_that_ends_close_behind_it() {
        let mut waits: Vec<u64> = (0..5_000).chain((0..24).map(|bits| (1 << bits) + 3)).collect();
        waits.sort_unstable();
        for wait_us in waits.into_iter().filter(|&wait_us| wait_us < WAIT_US_MAX) {
            let last = last_of(step_of(wait_us));
            assert!(last >= wait_us && (last - wait_us) * 8 <= wait_us, "{wait_us} in a step up to {last}");
            assert_eq!(step_of(last + 1), step_of(wait_us) + 1);
        }
        assert_eq!(step_of(u64::MAX), step_of(WAIT_US_MAX - 1));
    }

    #[test]
    fn quantiles_are_those_of_what_was_noted() {
        let waits = Waits::new();
        assert_eq!((waits.count(), waits.quantile_us(990)), (0, 0));
        (0..99).for_each(|_| waits.note(7));
        waits.note(1_000);
        assert_eq!((waits.count(), waits.quantile_us(500), waits.quantile_us(990)), (100, 7, 7));
        assert!((1_000..1_125).contains(&waits.quantile_us(1_000)));
    }
}
