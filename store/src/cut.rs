//! Cuts: positions of all log heads such that whatever lies below them depends on nothing above them.
//!
//! ```text
//!   writer:   begin ── seal ── note the cut's number, then the position ── publish in the index ── end
//!   cutter:   number + 1 ── fence ── for each writer: its mark of this number, or its position once it is not writing
//! ```
//! A write that saw an object which lies above a cut must lie above it too. So a writer looks at the number before it
//! publishes: if it is new, the position before this write is the cut's. A writer that has not looked since the number
//! grew either writes nothing (then all it writes later is above the cut, and the position is below), or is in the
//! middle of a write, which takes microseconds; the cutter waits for its end or its mark. `begin` and the cutter each
//! store, fence and load, so at least one of them sees the other. The loom test fails without this fence, and if the
//! cutter does not wait.

use crate::sync::{AtomicBool, AtomicU64, Backoff, Ordering, fence};

/// A place in a head's part of the log: the end of what was appended.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct LogPosition {
    /// The sequence number of a segment; 0 before the first.
    pub sequence: u32,
    /// Bytes from its beginning.
    pub bytes: u32,
}

impl LogPosition {
    pub(crate) fn word(self) -> u64 {
        u64::from(self.sequence) << 32 | u64::from(self.bytes)
    }

    pub(crate) fn from_word(word: u64) -> LogPosition {
        LogPosition { sequence: (word >> 32) as u32, bytes: word as u32 }
    }
}

/// What somebody waits for before it tells of an entry of the log.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Wait {
    #[default]
    Nothing,
    /// Until enough other servers have it in memory.
    Received,
    /// Until the disk has it, and those of enough other servers.
    Stable,
}

impl Wait {
    /// Returns what is awaited of the log up to this cut.
    #[inline]
    pub(crate) fn until(self, cut: u64) -> AwaitedCuts {
        match self {
            Wait::Nothing => AwaitedCuts::default(),
            Wait::Received => AwaitedCuts { received: cut, stable: 0 },
            Wait::Stable => AwaitedCuts { received: 0, stable: cut },
        }
    }
}

/// The cuts that an answer waits for, or those that are reached: [`crate::Store::reached_cuts`]. What is stable was received.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct AwaitedCuts {
    /// Up to where enough other servers have the log in memory.
    pub received: u64,
    /// Up to where the disk has it, and those of enough other servers.
    pub stable: u64,
}

impl AwaitedCuts {
    /// Returns the later ones of both.
    #[inline]
    #[must_use]
    pub fn and(self, other: AwaitedCuts) -> AwaitedCuts {
        AwaitedCuts { received: self.received.max(other.received), stable: self.stable.max(other.stable) }
    }

    /// Returns whether they are reached.
    #[inline]
    #[must_use]
    pub fn are_reached(self, reached: AwaitedCuts) -> bool {
        self.received <= reached.received.max(reached.stable) && self.stable <= reached.stable
    }
}

/// The part of one writer, which alone stores it.
#[repr(align(64))]
struct Writer {
    writing: AtomicBool,
    /// The number of the last cut that it has seen.
    mark_number: AtomicU64,
    /// Its position when it saw it.
    mark: AtomicU64,
    position: AtomicU64,
}

/// The positions of all writers, and the number of the latest cut.
pub(crate) struct Cuts {
    number: AtomicU64,
    writers: Box<[Writer]>,
}

/// A write in progress; ends when dropped.
pub(crate) struct Writing<'a>(&'a Writer);

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.0.writing.store(false, Ordering::Release);
    }
}

impl Cuts {
    pub(crate) fn new(writers: usize) -> Cuts {
        let writer = |_| Writer {
            writing: AtomicBool::new(false),
            mark_number: AtomicU64::new(0),
            mark: AtomicU64::new(0),
            position: AtomicU64::new(0),
        };
        Cuts { number: AtomicU64::new(0), writers: (0..writers).map(writer).collect() }
    }

    /// Begins a write, before its first look at a cut's number.
    #[inline]
    pub(crate) fn begin(&self, writer: usize) -> Writing<'_> {
        let own = &self.writers[writer];
        if cfg!(any(loom_model, miri)) {
            own.writing.store(true, Ordering::Relaxed);
            fence(Ordering::SeqCst);
        } else {
            // A full fence on x86-64, see `sync::store_fenced`.
            own.writing.swap(true, Ordering::SeqCst);
        }
        Writing(own)
    }

    /// Notes the position behind a write, all of whose entries are sealed and none published. Returns the number of the
    /// first cut that is certain to include it.
    #[inline]
    pub(crate) fn advance(&self, writing: &Writing<'_>, position: LogPosition) -> u64 {
        let own = writing.0;
        let number = self.number.load(Ordering::Relaxed);
        if number != own.mark_number.load(Ordering::Relaxed) {
            own.mark.store(own.position.load(Ordering::Relaxed), Ordering::Relaxed);
            own.mark_number.store(number, Ordering::Release);
        }
        own.position.store(position.word(), Ordering::Release);
        number + 1
    }

    /// Moves a writer's position without a write.
    pub(crate) fn reach(&self, writer: usize, position: LogPosition) {
        self.writers[writer].position.store(position.word(), Ordering::Release);
    }

    /// Returns a writer's position.
    pub(crate) fn position(&self, writer: usize) -> LogPosition {
        LogPosition::from_word(self.writers[writer].position.load(Ordering::Acquire))
    }

    /// Returns the number of the first cut that includes all writes that are over.
    pub(crate) fn next(&self) -> u64 {
        self.number.load(Ordering::Relaxed) + 1
    }

    /// Returns the number of writers.
    pub(crate) fn writers(&self) -> usize {
        self.writers.len()
    }

    /// Makes the numbers of later cuts greater than this one, before any write.
    pub(crate) fn begin_above(&self, number: u64) {
        self.number.store(number, Ordering::Relaxed);
        self.writers.iter().for_each(|writer| writer.mark_number.store(number, Ordering::Relaxed));
    }

    /// Makes the next cut: its number, and each writer's position. For one thread at a time, which waits for writes in
    /// progress.
    pub(crate) fn cut(&self, positions: &mut Vec<LogPosition>) -> u64 {
        let number = self.number.load(Ordering::Relaxed) + 1;
        self.number.store(number, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        positions.clear();
        positions
            .extend(self.writers.iter().map(|writer| LogPosition::from_word(position_at(writer, number))));
        number
    }
}

/// Returns a writer's position, once it is not in the middle of a write.
fn position_at(writer: &Writer, number: u64) -> u64 {
    let mut backoff = Backoff::new();
    let marked = || {
        let is_marked = writer.mark_number.load(Ordering::Acquire) >= number;
        is_marked.then(|| writer.mark.load(Ordering::Relaxed))
    };
    loop {
        if let Some(mark) = marked() {
            return mark;
        }
        if !writer.writing.load(Ordering::Acquire) {
            // It was not writing, or the write has ended: the next one sees this number.
            let position = writer.position.load(Ordering::Acquire);
            return marked().unwrap_or(position);
        }
        backoff.wait_asleep();
    }
}

#[cfg(all(test, loom_model))]
mod loom_tests {
    use super::{Cuts, LogPosition};
    use crate::sync::{AtomicU64, Ordering};
    use loom::sync::Arc;

    /// One writer publishes, another writes what depends on it, a third thread cuts.
    #[test]
    fn a_cut_includes_whatever_it_depends_on() {
        loom::model(|| {
            let shared = Arc::new((Cuts::new(2), AtomicU64::new(0)));
            let position = LogPosition { sequence: 1, bytes: 8 };
            let first = {
                let shared = Arc::clone(&shared);
                loom::thread::spawn(move || {
                    let writing = shared.0.begin(0);
                    shared.0.advance(&writing, position);
                    shared.1.store(1, Ordering::Release);
                })
            };
            let second = {
                let shared = Arc::clone(&shared);
                loom::thread::spawn(move || {
                    let writing = shared.0.begin(1);
                    let depends = shared.1.load(Ordering::Acquire) == 1;
                    shared.0.advance(&writing, position);
                    depends
                })
            };
            let mut positions = Vec::new();
            shared.0.cut(&mut positions);
            first.join().expect("it ends");
            let depends = second.join().expect("it ends");
            let [first, second] = [positions[0], positions[1]].map(|at| at == position);
            assert!(!(depends && second && !first), "{positions:?}");
        });
    }
}
