//! What a run may use of the client, and has used.

use std::cell::Cell;

use wire::limits::COMMIT_WRITES_MAX;

use super::OPERATIONS_MAX;

/// Bytes lent to one run at most.
const LENT_BYTES_MAX: usize = 256 << 20;
/// Bytes of keys and cursors that one run may ask for.
const ASKED_BYTES_MAX: usize = 16 << 20;
/// Unknown names of tables that one run may look up: each is a round trip, during which the executor runs nothing else.
const LOOKUPS_MAX: usize = 64;
/// Log lines that are kept of one run.
const LINES_MAX: usize = 100;

/// What one invocation may read and write.
#[derive(Clone, Copy)]
pub(in crate::local) struct TaskLimits {
    /// Objects read.
    pub(in crate::local) reads: usize,
    /// Bytes of all objects read, and of the input.
    pub(in crate::local) read_bytes: usize,
    pub(in crate::local) writes: usize,
    /// Bytes of keys and values written, an overwritten value too.
    pub(in crate::local) write_bytes: usize,
}

impl TaskLimits {
    /// Those of the program's own functions.
    pub(in crate::local) const OWN: TaskLimits = TaskLimits {
        reads: OPERATIONS_MAX,
        read_bytes: LENT_BYTES_MAX,
        writes: COMMIT_WRITES_MAX,
        write_bytes: usize::MAX,
    };
}

/// What a run has used. Each method returns whether that is within the limits.
pub(super) struct Spending {
    limits: Cell<TaskLimits>,
    reads: Cell<usize>,
    written_bytes: Cell<usize>,
    asked_bytes: Cell<usize>,
    lookups: Cell<usize>,
    lines: Cell<usize>,
}

impl Spending {
    pub(super) fn new() -> Spending {
        let zero = || Cell::new(0);
        let limits = Cell::new(TaskLimits::OWN);
        let (reads, written_bytes, asked_bytes) = (zero(), zero(), zero());
        Spending { limits, reads, written_bytes, asked_bytes, lookups: zero(), lines: zero() }
    }

    pub(super) fn allow(&self, limits: TaskLimits) {
        self.limits.set(limits);
    }

    pub(super) fn limits(&self) -> TaskLimits {
        self.limits.get()
    }

    /// Begins another run. Returns the bytes that the last one asked for.
    pub(super) fn begin(&self) -> usize {
        for used in [&self.reads, &self.written_bytes, &self.lookups, &self.lines] {
            used.set(0);
        }
        self.asked_bytes.replace(0)
    }

    pub(super) fn reads(&self, objects: usize) -> bool {
        self.reads.set(self.reads.get() + objects);
        self.reads.get() <= self.limits.get().reads
    }

    /// Whether as many bytes as these may have been lent.
    pub(super) fn may_be_lent(&self, bytes: usize) -> bool {
        bytes <= self.limits.get().read_bytes
    }

    pub(super) fn writes(&self, bytes: usize) -> bool {
        self.written_bytes.set(self.written_bytes.get().saturating_add(bytes));
        self.written_bytes.get() <= self.limits.get().write_bytes
    }

    pub(super) fn asks(&self, bytes: usize) -> bool {
        self.asked_bytes.set(self.asked_bytes.get() + bytes);
        self.asked_bytes.get() <= ASKED_BYTES_MAX
    }

    pub(super) fn looks_up(&self) -> bool {
        self.lookups.set(self.lookups.get() + 1);
        self.lookups.get() <= LOOKUPS_MAX
    }

    pub(super) fn logs(&self) -> bool {
        self.lines.set(self.lines.get() + 1);
        self.lines.get() <= LINES_MAX
    }
}
