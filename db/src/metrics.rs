//! Counters of one worker, each written only by that worker and read by any thread.
//!
//! A counter is a relaxed atomic with one writer, so counting is a load, an addition and a store without a bus lock;
//! the counters of two workers never share a cache line. Sums over the workers may miss concurrent events, never
//! earlier ones. The control plane sums them for statistics and shows them on the metrics port.

mod waits;

pub use waits::Waits;

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

#[cfg(test)]
mod tests {
    use super::{Counter, WorkerMetrics, total};

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
}
