//! The counters of a tenant's requests: number by kind, replies, bytes, time.
//!
//! ```text
//!   worker 0 ─▶ page ─┐
//!   worker 1 ─▶ page ─┼─ summed when the tenant's counters are shown  ─▶ Sums
//! ```
//! Each worker has its own page in each tenant's ledger, allocated at the tenant's first request there and written only
//! by that worker, with a load, an addition and a store; so there is no contention and no later allocation. A get or a
//! successful invocation writes one cache line.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use store::prefetch_value;
use wire::{Request, Status};

use crate::limits::CORES_MAX;
use crate::metrics::{add_alone, counted};

counted! {
    /// A counter of a tenant.
    Entry:
    /// Requests of the tenant, over frames and streams, including copies.
    Requests = "requests",
    /// Bytes of the requests' bodies.
    BytesReceived = "bytes_received",
    /// Bytes of the replies' bodies.
    BytesSent = "bytes_sent",
    /// Processor time charged to the tenant for its invocations.
    InvocationCycles = "invocation_cycles",
    /// Requests to invoke.
    Invokes = "invokes",
    /// Gets.
    Gets = "gets",
    /// Pings.
    Pings = "pings",
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
    /// Requests for the tablets of a table.
    TabletMaps = "tablet_maps",
    /// Objects that invocations of the tenant read at other servers.
    RemoteReads = "remote_reads",
    /// Bytes of the keys and values of those.
    RemoteReadBytes = "remote_read_bytes",
    /// Reads at other servers refused because the tenant is `local_only` or too many were in flight.
    RemoteReadsRefused = "remote_reads_refused",
    /// Reads at other servers without an answer in time.
    RemoteReadsUnanswered = "remote_reads_unanswered",
}

/// Entries on the first line of a page.
const FIRST_LINE_ENTRIES: usize = Entry::Gets as usize + 1;

impl Entry {
    /// Returns the counter of a request.
    #[inline]
    #[must_use]
    pub const fn of(request: &Request<'_>) -> Self {
        match request {
            Request::Ping => Self::Pings,
            Request::Get { .. } | Request::GetNow { .. } => Self::Gets,
            Request::Put { .. } | Request::PutFor { .. } => Self::Puts,
            Request::Delete { .. } => Self::Deletes,
            Request::Increment { .. } | Request::IncrementFloat { .. } => Self::Increments,
            Request::Enumerate { .. } => Self::Enumerates,
            Request::Scan { .. } => Self::Scans,
            Request::Verify { .. } => Self::Verifies,
            Request::Tablets { .. } => Self::TabletMaps,
            Request::MultiGet { .. } => Self::MultiGets,
            Request::Commit { .. } => Self::Commits,
            Request::Invoke { .. } => Self::Invokes,
        }
    }
}

/// One worker's counters of a tenant.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Page {
    /// The tenant's messages in one round of the worker.
    pub arrivals: Arrivals,
    /// `Ok` replies, the only status on the first line.
    answers_ok: AtomicU64,
    entries: [AtomicU64; Entry::ALL.len()],
    /// Replies by status; the entry of `Ok` is unused.
    answers: [AtomicU64; Status::ALL.len()],
}

const _: () = assert!(std::mem::offset_of!(Page, entries) + FIRST_LINE_ENTRIES * 8 <= 64);

impl Page {
    /// Adds to an entry. Called by the owning worker only.
    #[inline]
    pub fn add(&self, entry: Entry, amount: u64) {
        add_alone(&self.entries[entry as usize], amount);
    }

    /// Counts a reply and the bytes of its body. Called by the owning worker only.
    #[inline]
    pub fn answered(&self, status: Status, body_bytes: usize) {
        if status == Status::Ok {
            add_alone(&self.answers_ok, 1);
        } else {
            add_alone(&self.answers[status as usize], 1);
        }
        self.add(Entry::BytesSent, body_bytes as u64);
    }

    #[cold]
    fn new() -> Box<Self> {
        Box::new(Self {
            arrivals: Arrivals::new(),
            answers_ok: AtomicU64::new(0),
            entries: [const { AtomicU64::new(0) }; Entry::ALL.len()],
            answers: [const { AtomicU64::new(0) }; Status::ALL.len()],
        })
    }
}

/// The counters of one tenant, one page per worker.
#[derive(Debug)]
pub struct Ledger {
    pages: [OnceLock<Box<Page>>; CORES_MAX],
}

/// The sums over all workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sums {
    entries: [u64; Entry::ALL.len()],
    answers: [u64; Status::ALL.len()],
}

impl Ledger {
    /// Creates a ledger with all counts at zero.
    #[must_use]
    pub const fn new() -> Self {
        Self { pages: [const { OnceLock::new() }; CORES_MAX] }
    }

    /// Returns the page of a worker.
    ///
    /// # Panics
    /// When the worker does not exist.
    #[inline]
    #[must_use]
    pub fn page(&self, worker: usize) -> &Page {
        self.pages[worker].get_or_init(Page::new)
    }

    /// Prefetches the pointer to a worker's page.
    #[inline]
    pub fn prefetch_place(&self, worker: usize) {
        prefetch_value(&self.pages[worker]);
    }

    /// Prefetches the fields of a worker's page that every request changes.
    #[inline]
    pub fn prefetch(&self, worker: usize) {
        if let Some(page) = self.pages[worker].get() {
            prefetch_value(&page.arrivals);
        }
    }

    /// Returns the sums over all workers.
    #[must_use]
    pub fn sums(&self) -> Sums {
        let mut sums = Sums::default();
        for page in self.pages.iter().filter_map(OnceLock::get) {
            for (sum, count) in sums.entries.iter_mut().zip(&page.entries) {
                *sum += count.load(Ordering::Relaxed);
            }
            for (sum, count) in sums.answers.iter_mut().zip(&page.answers) {
                *sum += count.load(Ordering::Relaxed);
            }
            sums.answers[Status::Ok as usize] += page.answers_ok.load(Ordering::Relaxed);
        }
        sums
    }
}

impl Default for Ledger {
    fn default() -> Self {
        Self::new()
    }
}

impl Sums {
    /// Returns one entry.
    #[must_use]
    pub const fn of(&self, entry: Entry) -> u64 {
        self.entries[entry as usize]
    }

    /// Returns the statuses of replies, and how often each was sent.
    pub fn answers(&self) -> impl Iterator<Item = (Status, u64)> {
        Status::ALL.iter().copied().zip(self.answers).filter(|(_, count)| *count > 0)
    }
}

impl Default for Sums {
    fn default() -> Self {
        Self { entries: [0; Entry::ALL.len()], answers: [0; Status::ALL.len()] }
    }
}

/// Returns the name of a status as used by counters: `not_found`.
#[must_use]
pub fn status_name(status: Status) -> String {
    let mut name = String::new();
    for letter in status.name().chars() {
        if letter.is_ascii_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(letter.to_ascii_lowercase());
    }
    name
}

/// Counts messages per round of one worker, with a stamp instead of a reset.
///
/// The stamp in the upper half, the count below. Any serving worker writes it without a lock: two at once may lose each
/// other's counts.
#[derive(Debug, Default)]
pub struct Arrivals(AtomicU64);

impl Arrivals {
    /// Creates a count of zero.
    #[must_use]
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Counts `messages` under a stamp; returns the earlier count of that stamp.
    #[inline]
    pub fn add(&self, stamp: u32, messages: u64) -> u64 {
        let known = self.0.load(Ordering::Relaxed);
        let before = if (known >> 32) as u32 == stamp { known & u64::from(u32::MAX) } else { 0 };
        let after = (before + messages).min(u64::from(u32::MAX));
        self.0.store(u64::from(stamp) << 32 | after, Ordering::Relaxed);
        before
    }
}

#[cfg(test)]
mod tests {
    use wire::{Request, Status};

    use super::{Arrivals, Entry, Ledger, status_name};

    #[test]
    fn workers_are_added_up() {
        let ledger = Ledger::new();
        for worker in [0, 0, 63] {
            ledger.page(worker).add(Entry::of(&Request::Ping), 1);
            ledger.page(worker).answered(Status::NotFound, 7);
        }
        ledger.page(5).answered(Status::Ok, 0);
        let sums = ledger.sums();
        assert_eq!((sums.of(Entry::Pings), sums.of(Entry::BytesSent), sums.of(Entry::Gets)), (3, 21, 0));
        assert_eq!(sums.answers().collect::<Vec<_>>(), [(Status::Ok, 1), (Status::NotFound, 3)]);
        assert_eq!(status_name(Status::NotFound), "not_found");
    }

    #[test]
    fn a_count_begins_anew_with_each_stamp_and_stays_in_its_half() {
        let arrivals = Arrivals::new();
        assert_eq!((arrivals.add(7, 3), arrivals.add(7, 4), arrivals.add(7, 0)), (0, 3, 7));
        assert_eq!((arrivals.add(8, u64::from(u32::MAX)), arrivals.add(8, 5)), (0, u64::from(u32::MAX)));
        assert_eq!(arrivals.add(8, 1), u64::from(u32::MAX));
        assert_eq!(arrivals.add(9, 1), 0);
    }
}
