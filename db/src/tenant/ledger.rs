//! What a tenant's requests came to: how many of which kind, how they were answered, bytes, time.
//!
//! ```text
//!   worker 0 ─▶ page ─┐
//!   worker 1 ─▶ page ─┼─ added up by whoever shows the tenant's counters  ─▶ Sums
//! ```
//! Each worker has a page of its own in each tenant's ledger, made at the tenant's first request there and
//! written by that worker alone with a load, an addition and a store; so nothing is contended, and nothing is
//! allocated later. A get or an invocation that ends well writes one cache line.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use store::prefetch_value;
use wire::{Request, Status};

use super::arrivals::Arrivals;
use crate::limits::CORES_MAX;
use crate::metrics::{add_alone, counted};

counted! {
    /// What is counted of a tenant.
    Entry:
    /// Requests of the tenant, over frames and streams, copies included.
    Requests = "requests",
    /// Bytes of the requests' bodies.
    BytesReceived = "bytes_received",
    /// Bytes of the answers' bodies.
    BytesSent = "bytes_sent",
    /// Time on the processor that the tenant was charged for its invocations.
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
    /// Reads at other servers that were refused, since the tenant is `local_only` or too many were under way.
    RemoteReadsRefused = "remote_reads_refused",
    /// Reads at other servers that nobody answered in time.
    RemoteReadsUnanswered = "remote_reads_unanswered",
}

/// Entries on the first line of a page.
const FIRST_LINE_ENTRIES: usize = Entry::Gets as usize + 1;

impl Entry {
    /// What a request counts as.
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
            Request::Invoke { .. } => Self::Invokes,
        }
    }
}

/// What one worker counts for a tenant.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Page {
    /// Of the tenant, in one round of the worker.
    pub arrivals: Arrivals,
    /// Answers that were `Ok`: of all statuses the one on the first line.
    answers_ok: AtomicU64,
    entries: [AtomicU64; Entry::ALL.len()],
    /// The place of `Ok` is not used.
    answers: [AtomicU64; Status::ALL.len()],
}

const _: () = assert!(std::mem::offset_of!(Page, entries) + FIRST_LINE_ENTRIES * 8 <= 64);

impl Page {
    /// Adds to an entry. Called by the owning worker alone.
    #[inline]
    pub fn add(&self, entry: Entry, amount: u64) {
        add_alone(&self.entries[entry as usize], amount);
    }

    /// Counts an answer and the bytes of its body. Called by the owning worker alone.
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

/// See the file's head.
#[derive(Debug)]
pub struct Ledger {
    pages: [OnceLock<Box<Page>>; CORES_MAX],
}

/// What all workers counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sums {
    entries: [u64; Entry::ALL.len()],
    answers: [u64; Status::ALL.len()],
}

impl Ledger {
    /// Nothing counted yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { pages: [const { OnceLock::new() }; CORES_MAX] }
    }

    /// The page of a worker.
    ///
    /// # Panics
    /// When there is no such worker.
    #[inline]
    #[must_use]
    pub fn page(&self, worker: usize) -> &Page {
        self.pages[worker].get_or_init(Page::new)
    }

    /// Asks for where the page of a worker is.
    #[inline]
    pub fn prefetch_place(&self, worker: usize) {
        prefetch_value(&self.pages[worker]);
    }

    /// Asks for what each request changes of the page of a worker.
    #[inline]
    pub fn prefetch(&self, worker: usize) {
        if let Some(page) = self.pages[worker].get() {
            prefetch_value(&page.arrivals);
        }
    }

    /// What all workers counted until now.
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
    /// An entry.
    #[must_use]
    pub const fn of(&self, entry: Entry) -> u64 {
        self.entries[entry as usize]
    }

    /// The statuses that were answered, and how often.
    pub fn answers(&self) -> impl Iterator<Item = (Status, u64)> {
        Status::ALL.iter().copied().zip(self.answers).filter(|(_, count)| *count > 0)
    }
}

impl Default for Sums {
    fn default() -> Self {
        Self { entries: [0; Entry::ALL.len()], answers: [0; Status::ALL.len()] }
    }
}

/// The name of a status as counters have it: `not_found`.
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

#[cfg(test)]
mod tests {
    use wire::{Request, Status};

    use super::{Entry, Ledger, status_name};

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
}
