//! Counters of one worker, each written by that worker alone and read by anybody.
//!
//! A counter is a relaxed atomic with one writer, so counting is a load, an addition and a store without a
//! bus lock; the counters of two workers never share a cache line. Sums over the workers may miss what
//! happens meanwhile, never what happened before. The control plane adds them up for statistics and shows them
//! on the metrics port.

mod waits;

pub use waits::Waits;

use std::sync::atomic::{AtomicU64, Ordering};

/// An enum of what is counted, each variant with its name in statistics and its comment as a sentence for people.
macro_rules! counted {
    (#[doc = $what:literal] $kind:ident: $($(#[doc = $doc:literal])+ $variant:ident = $name:literal,)*) => {
        #[doc = $what]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $kind { $($(#[doc = $doc])+ $variant,)* }

        impl $kind {
            /// All of them in the order of their declaration.
            pub const ALL: &'static [$kind] = &[$($kind::$variant,)*];

            /// The name under which statistics show it.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $($kind::$variant => $name,)* }
            }

            /// One sentence for people.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self { $($kind::$variant => concat!($($doc),+).trim_ascii(),)* }
            }
        }
    };
}
pub(crate) use counted;

/// Adds to a counter that this thread alone writes: no bus lock.
#[inline]
pub fn add_alone(counter: &AtomicU64, amount: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
}

counted! {
    /// What a worker counts.
    Counter:
    /// Frames that arrived.
    FramesReceived = "frames_received",
    /// Frames that were taken from the port of another worker.
    FramesStolen = "frames_stolen",
    /// Frames that the kernel or the port lost before the worker could take them.
    FramesDropped = "frames_dropped",
    /// Frames that were handed to the port.
    FramesSent = "frames_sent",
    /// Frames with a wrong head, or with groups or messages that do not add up.
    FramesMalformed = "frames_malformed",
    /// Groups whose token belongs to no session and, as far as is remembered, never did.
    GroupsUnauthenticated = "groups_unauthenticated",
    /// Groups whose token is that of a session which has ended.
    GroupsOfEndedSessions = "groups_of_ended_sessions",
    /// Groups of both kinds that got no answer, since their source asked too often.
    GroupsUnanswered = "groups_unanswered",
    /// Payload bytes that arrived in frames.
    BytesReceived = "bytes_received",
    /// Payload bytes that were sent in frames.
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
    /// Corrupted objects that enumerations and verifications met.
    ObjectsCorrupted = "objects_corrupted",
    /// Invocations that were started.
    Invocations = "invocations",
    /// Invocations that another worker had accepted and this one ran.
    InvocationsStolen = "invocations_stolen",
    /// Invocations that ended well.
    InvocationsSucceeded = "invocations_succeeded",
    /// Invocations that answered an error of their own.
    InvocationsFailed = "invocations_failed",
    /// Invocations that panicked.
    InvocationsPanicked = "invocations_panicked",
    /// Invocations that used up their memory or their stack.
    InvocationsOutOfMemory = "invocations_out_of_memory",
    /// Invocations that were ended for another reason.
    InvocationsKilled = "invocations_killed",
    /// Times that an invocation had used up its slice and was parked.
    Preemptions = "preemptions",
    /// Invocations that used up their time on the processor.
    KilledCpu = "killed_cpu",
    /// Invocations that grew too old.
    KilledWall = "killed_wall",
    /// Invocations that yielded too often.
    KilledYields = "killed_yields",
    /// Invocations that found too many others parked.
    KilledParked = "killed_parked",
    /// Invocations that would have held more memory while they wait than their tenant may.
    KilledHeld = "killed_held",
    /// Time of turns of invocations: polls, commits and answers.
    InvocationCycles = "invocation_cycles",
    /// Commits of invocations that were tried again after a conflict.
    CommitConflicts = "commit_conflicts",
    /// Mutations that were answered from their stored reply.
    Replayed = "replayed",
    /// Duplicates that arrived while their original was executing.
    DuplicatesInFlight = "duplicates_in_flight",
    /// Requests below the exactly-once window.
    Expired = "expired",
    /// Requests that were refused with a typed status.
    Refused = "refused",
    /// Requests that were told to come again.
    Retries = "retries",
    /// Messages beyond those that a batch may bring of one session or tenant, that were not read.
    MessagesDropped = "messages_dropped",
    /// Requests that a limit of their tenant held off.
    Throttled = "throttled",
    /// Requests that had to wait for objects which had still to arrive.
    RequestsParked = "requests_parked",
    /// Times that an invocation had to wait for an object which had still to arrive.
    InvocationsLacking = "invocations_lacking",
    /// Objects that invocations read at other servers.
    RemoteReads = "remote_reads",
    /// Bytes of the keys and values of those.
    RemoteReadBytes = "remote_read_bytes",
    /// Reads at other servers that were refused, since the tenant is `local_only` or too many were under way.
    RemoteReadsRefused = "remote_reads_refused",
    /// Reads at other servers that nobody answered in time.
    RemoteReadsUnanswered = "remote_reads_unanswered",
    /// Times that an invocation had to wait for another server.
    InvocationsAsking = "invocations_asking",
    /// Reads that were answered to invocations of other servers, found or not.
    RemoteReadsServed = "remote_reads_served",
    /// Bytes of the values of those.
    RemoteReadBytesServed = "remote_read_bytes_served",
    /// Requests that were told to come again, since too many wait.
    RequestsNotParked = "requests_not_parked",
    /// Requests that were told to come again, since they had waited for too long.
    RequestsOverdue = "requests_overdue",
    /// Replies that did not fit a frame.
    UseStream = "use_stream",
    /// Replies that went in parts, in several datagrams.
    RepliesInParts = "replies_in_parts",
    /// Changes of the catalog that were applied.
    Changes = "changes",
    /// Tenants whose home moved away from the worker. Counted by the housekeeping thread alone.
    HomesMoved = "homes_moved",
    /// Time in rounds that had something to do, in microseconds.
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
    /// All counters at zero.
    #[must_use]
    pub fn new() -> Self {
        Self { values: [const { AtomicU64::new(0) }; Counter::ALL.len()], waits: Waits::new() }
    }

    /// Adds `amount`. Called by the owning worker alone.
    #[inline]
    pub fn add(&self, counter: Counter, amount: u64) {
        add_alone(&self.values[counter as usize], amount);
    }

    /// Adds one. Called by the owning worker alone.
    #[inline]
    pub fn count(&self, counter: Counter) {
        self.add(counter, 1);
    }

    /// Sets what is counted elsewhere. Called by the owning worker alone.
    #[inline]
    pub fn set(&self, counter: Counter, value: u64) {
        self.values[counter as usize].store(value, Ordering::Relaxed);
    }

    /// What waits for objects, and for how long.
    #[must_use]
    pub fn waits(&self) -> &Waits {
        &self.waits
    }

    /// The value now.
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

/// The sum of one counter over several workers.
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
