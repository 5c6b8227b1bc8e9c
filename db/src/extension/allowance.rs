//! The limits of one invocation: its tenant's limits at the time when it began; its usage, and the text about a limit
//! that it reached.
//!
//! The values are read from the account once, so a changed limit applies to the next invocation. The access counts the
//! use by host calls ([`Spending`]), the invocation counts the time charged between polls ([`Usage`]), and the arena and
//! the reply count their bytes.

use std::fmt::{self, Write};
use std::sync::LazyLock;

use sandstorm::Error;

use crate::limits::{
    ARENA_BYTES, HELD_BYTES_PER_WORKER, INVOCATION_CPU_US_MAX, INVOCATION_WALL_US_MAX, INVOCATION_YIELDS_MAX,
    PARKED_PER_WORKER_MAX, SLICE_US, TRANSACTION_BYTES, TRANSACTION_READS_MAX, TRANSACTION_WRITES_MAX,
    WARM_BYTES_PER_WORKER,
};
use crate::metrics::Counter;
use crate::ops::transaction::Full;
use crate::tenant::account::Account;
use crate::tenant::limit::TenantLimit;

/// The limits of one invocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// Processor time, in microseconds.
    pub cpu_us: u64,
    /// Age, in microseconds.
    pub wall_us: u64,
    /// Number of yields.
    pub yields: u64,
    /// Bytes of the arena.
    pub arena_bytes: usize,
    /// Number of objects read.
    pub reads: u64,
    /// Bytes of keys and values read.
    pub read_bytes: u64,
    /// Number of objects written.
    pub writes: usize,
    /// Bytes of keys and values written.
    pub write_bytes: usize,
    /// Bytes of the reply.
    pub reply_bytes: usize,
    /// The form of the extension that runs.
    pub sandbox: Sandbox,
}

/// The form in which a tenant's invocations run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sandbox {
    /// Machine code of the server's own process: the language, checked by the builder, is the only wall.
    Native,
    /// A WebAssembly module: it reaches its own linear memory, whatever its code is.
    Wasm,
}

impl Sandbox {
    /// Returns the form for a value of [`TenantLimit::Sandbox`].
    #[must_use]
    pub const fn of(value: u64) -> Self {
        if value == 0 { Self::Native } else { Self::Wasm }
    }

    /// Returns the value of the limit for this form.
    #[must_use]
    pub const fn value(self) -> u64 {
        match self {
            Self::Native => 0,
            Self::Wasm => 1,
        }
    }
}

impl Allowance {
    /// An allowance of nothing.
    pub const NONE: Self = Self {
        cpu_us: 0,
        wall_us: 0,
        yields: 0,
        arena_bytes: 0,
        reads: 0,
        read_bytes: 0,
        writes: 0,
        write_bytes: 0,
        reply_bytes: 0,
        sandbox: Sandbox::Native,
    };

    /// Returns the limits of a tenant's account now, capped by the memory reserved for an invocation.
    #[inline]
    #[must_use]
    pub fn of(account: &Account) -> Self {
        // Most tenants have the defaults, which lie on lines that all of them share.
        static DEFAULT: LazyLock<Allowance> = LazyLock::new(|| Allowance::by(TenantLimit::default_value));
        match account.has_own_limits() {
            true => Self::by(|limit| account.limit(limit)),
            false => Self { sandbox: Sandbox::of(account.limit(TenantLimit::Sandbox)), ..*DEFAULT },
        }
    }

    fn by(limit: impl Fn(TenantLimit) -> u64) -> Self {
        let within = |of, most: usize| limit(of).min(most as u64) as usize;
        Self {
            cpu_us: limit(TenantLimit::InvocationCpuUs),
            wall_us: limit(TenantLimit::InvocationWallUs),
            yields: limit(TenantLimit::InvocationYields),
            arena_bytes: within(TenantLimit::InvocationArenaBytes, ARENA_BYTES),
            reads: limit(TenantLimit::InvocationReads),
            read_bytes: limit(TenantLimit::InvocationReadBytes),
            writes: within(TenantLimit::InvocationWrites, TRANSACTION_WRITES_MAX),
            write_bytes: within(TenantLimit::InvocationWriteBytes, TRANSACTION_BYTES),
            reply_bytes: within(TenantLimit::InvocationReplyBytes, wire::limits::REPLY_BYTES_MAX),
            sandbox: Sandbox::of(limit(TenantLimit::Sandbox)),
        }
    }
}

/// Limits of a worker that replace those of the accounts, for benchmarks and tests; they may exceed what an account
/// accepts. The default equals that of [`crate::limits`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitOverrides {
    /// Time that an invocation may run without a pause before it is parked, in microseconds.
    pub slice_us: u64,
    /// Its processor time, in microseconds.
    pub cpu_us: u64,
    /// Its maximum age, in microseconds.
    pub wall_us: u64,
    /// Its maximum number of yields.
    pub yields: u32,
    /// The maximum number of parked invocations on the worker.
    pub parked: usize,
    /// The bytes that waiting invocations may hold together.
    pub held_bytes: usize,
    /// The bytes that free slots may keep for later invocations.
    pub warm_bytes: usize,
    /// The form in which all tenants' invocations run.
    pub sandbox: Option<Sandbox>,
    /// Whether each host call returns "pending" once before it is done.
    pub stalls: bool,
    /// Yields after which an invocation is pushed back that may be, whatever the load; 0: before its first poll.
    pub push_back_after: Option<u32>,
}

impl Default for LimitOverrides {
    fn default() -> Self {
        Self {
            slice_us: SLICE_US,
            cpu_us: INVOCATION_CPU_US_MAX,
            wall_us: INVOCATION_WALL_US_MAX,
            yields: INVOCATION_YIELDS_MAX,
            parked: PARKED_PER_WORKER_MAX,
            held_bytes: HELD_BYTES_PER_WORKER,
            warm_bytes: WARM_BYTES_PER_WORKER,
            sandbox: None,
            stalls: false,
            push_back_after: None,
        }
    }
}

impl LimitOverrides {
    /// Returns an allowance with its time limits replaced by these.
    pub(super) fn instead_of(&self, allowance: Allowance) -> Allowance {
        let Self { cpu_us, wall_us, .. } = *self;
        Allowance { cpu_us, wall_us, yields: u64::from(self.yields), ..allowance }
    }
}

/// The limit that an invocation reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// A limit of its tenant.
    Tenant(TenantLimit),
    /// Reads recorded for validation at commit.
    NotedReads,
    /// Bytes recorded for the commit: the writes, and the keys that were found absent.
    NotedBytes,
    /// Objects read at other servers.
    RemoteReads,
    /// Bytes of the stack. The excess is unknown.
    StackBytes,
    /// Bytes that host calls copied into a module's memory.
    LentBytes,
    /// Preempted invocations on one core.
    Parked,
    /// Bytes that a tenant's waiting invocations hold on a core: at most half of the bytes that other tenants leave.
    HeldBytes,
}

impl Limit {
    /// Returns the name shown to the caller; for a tenant's limit, the name under which an operator changes it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tenant(limit) => limit.name(),
            Self::NotedReads => "reads_of_a_commit",
            Self::NotedBytes => "bytes_of_a_commit",
            Self::RemoteReads => "remote_reads_of_an_invocation",
            Self::StackBytes => "stack_bytes",
            Self::LentBytes => "lent_bytes_of_an_invocation",
            Self::Parked => "preempted_invocations_of_a_core",
            Self::HeldBytes => "held_bytes_of_a_core",
        }
    }

    /// Returns the extra counter for invocations ended by this limit.
    pub(super) const fn counter(self) -> Option<Counter> {
        match self {
            Self::Tenant(TenantLimit::InvocationCpuUs) => Some(Counter::KilledCpu),
            Self::Tenant(TenantLimit::InvocationWallUs) => Some(Counter::KilledWall),
            Self::Tenant(TenantLimit::InvocationYields) => Some(Counter::KilledYields),
            Self::Parked => Some(Counter::KilledParked),
            Self::HeldBytes => Some(Counter::KilledHeld),
            _ => None,
        }
    }
}

/// A limit that an invocation reached, with its usage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exceeded {
    /// The limit.
    pub limit: Limit,
    /// Its value.
    pub value: u64,
    /// The invocation's usage, including the request that failed.
    pub used: u64,
}

/// The access's usage counters of an invocation, and the limit that it reached last.
#[derive(Debug)]
pub struct Spending {
    allowance: Allowance,
    reads_left: u64,
    read_bytes_left: u64,
    exceeded: Option<Exceeded>,
}

impl Spending {
    /// Creates counters without an allowance.
    #[must_use]
    pub const fn new() -> Self {
        Self { allowance: Allowance::NONE, reads_left: 0, read_bytes_left: 0, exceeded: None }
    }

    /// Sets the allowance of a new invocation.
    #[inline]
    pub fn allow(&mut self, allowance: Allowance) {
        self.allowance = allowance;
    }

    /// Resets the usage to zero.
    #[inline]
    pub fn rewind(&mut self) {
        self.reads_left = self.allowance.reads;
        self.read_bytes_left = self.allowance.read_bytes;
        self.exceeded = None;
    }

    /// Returns the invocation's total allowance.
    #[inline]
    #[must_use]
    pub fn allowance(&self) -> &Allowance {
        &self.allowance
    }

    /// Returns the number of objects read and the bytes of their keys and values.
    #[inline]
    #[must_use]
    pub fn read(&self) -> (u64, u64) {
        (self.allowance.reads - self.reads_left, self.allowance.read_bytes - self.read_bytes_left)
    }

    /// Returns the limit that a host call reported last.
    #[must_use]
    pub fn exceeded(&self) -> Option<Exceeded> {
        self.exceeded
    }

    /// Counts `count` reads.
    ///
    /// # Errors
    /// `LimitExceeded`; then none is counted.
    #[inline(always)]
    pub fn reads(&mut self, count: u64) -> Result<(), Error> {
        match self.reads_left.checked_sub(count) {
            Some(left) => {
                self.reads_left = left;
                Ok(())
            }
            None => {
                let value = self.allowance.reads;
                let used = value - self.reads_left + count;
                Err(self.exceed(Limit::Tenant(TenantLimit::InvocationReads), value, used))
            }
        }
    }

    /// Uncounts reads that will be made later.
    pub fn take_back_reads(&mut self, count: u64) {
        self.reads_left = (self.reads_left + count).min(self.allowance.reads);
    }

    /// Counts the bytes of a key and the value found.
    ///
    /// # Errors
    /// `LimitExceeded`; then they are not counted and must not be lent.
    #[inline(always)]
    pub fn read_bytes(&mut self, bytes: usize) -> Result<(), Error> {
        match self.read_bytes_left.checked_sub(bytes as u64) {
            Some(left) => {
                self.read_bytes_left = left;
                Ok(())
            }
            None => {
                let value = self.allowance.read_bytes;
                let used = value - self.read_bytes_left + bytes as u64;
                Err(self.exceed(Limit::Tenant(TenantLimit::InvocationReadBytes), value, used))
            }
        }
    }

    /// Records that no room was left for another write.
    #[cold]
    pub fn full(&mut self, full: Full) -> Error {
        let Allowance { writes, write_bytes, .. } = self.allowance;
        let (writes, write_bytes) = (writes as u64, write_bytes as u64);
        match full {
            Full::Writes => self.exceed(Limit::Tenant(TenantLimit::InvocationWrites), writes, writes + 1),
            Full::Bytes(used) => {
                self.exceed(Limit::Tenant(TenantLimit::InvocationWriteBytes), write_bytes, used)
            }
            Full::Memory => {
                self.exceed(Limit::NotedBytes, TRANSACTION_BYTES as u64, TRANSACTION_BYTES as u64)
            }
        }
    }

    /// Records that another read could not be recorded for the commit.
    #[cold]
    pub fn too_many_noted(&mut self) -> Error {
        let value = TRANSACTION_READS_MAX as u64;
        self.exceed(Limit::NotedReads, value, value + 1)
    }

    /// Records a request beyond `value`, the value of `limit`.
    #[cold]
    pub fn beyond(&mut self, limit: Limit, value: u64) -> Error {
        self.exceed(limit, value, value.saturating_add(1))
    }

    /// Records a request that reached a limit.
    #[cold]
    pub(super) fn exceed(&mut self, limit: Limit, value: u64, used: u64) -> Error {
        self.exceeded = Some(Exceeded { limit, value, used });
        Error::LimitExceeded
    }
}

impl Default for Spending {
    fn default() -> Self {
        Self::new()
    }
}

/// The usage of an invocation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage {
    pub(super) cpu_us: u64,
    pub(super) wall_us: u64,
    pub(super) yields: u32,
    /// Number of times that it was parked.
    pub(super) slices: u32,
}

/// The limit that an invocation reached; if that ended it, also its usage of the worker's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Overdrawn {
    pub(super) exceeded: Exceeded,
    pub(super) usage: Option<Usage>,
}

/// Returns the time limit that this usage exceeds.
pub(super) fn verdict(allowance: &Allowance, usage: Usage) -> Option<Overdrawn> {
    let (limit, value, used) = if usage.cpu_us > allowance.cpu_us {
        (TenantLimit::InvocationCpuUs, allowance.cpu_us, usage.cpu_us)
    } else if usage.wall_us > allowance.wall_us {
        (TenantLimit::InvocationWallUs, allowance.wall_us, usage.wall_us)
    } else if u64::from(usage.yields) > allowance.yields {
        (TenantLimit::InvocationYields, allowance.yields, u64::from(usage.yields))
    } else {
        return None;
    };
    Some(Overdrawn { exceeded: Exceeded { limit: Limit::Tenant(limit), value, used }, usage: Some(usage) })
}

impl Overdrawn {
    /// Writes the text for the caller into `place`, cut to its length; returns the bytes written.
    pub(super) fn describe(&self, function: &str, extension: &str, version: u32, place: &mut [u8]) -> usize {
        let mut text = FixedText { place, bytes: 0 };
        // A text that is cut short is good enough, and the function's name is what might be too long.
        let _ = self.write(&mut text, function, extension, version);
        text.bytes
    }

    fn write(&self, text: &mut FixedText<'_>, function: &str, extension: &str, version: u32) -> fmt::Result {
        let Exceeded { limit, value, used } = self.exceeded;
        write!(text, "the limit {} = {value} was reached: ", limit.name())?;
        match limit {
            Limit::StackBytes => write!(text, "no stack left for another call")?,
            _ => write!(text, "{used} used or requested")?,
        }
        write!(text, " in {extension}@{version} {function}")?;
        let Some(Usage { cpu_us, wall_us, yields, slices }) = self.usage else { return Ok(()) };
        write!(
            text,
            " ({cpu_us} us on the processor, {wall_us} us since its first poll, {yields} yields, {slices} preemptions)"
        )
    }
}

/// A fixed buffer for a text.
struct FixedText<'p> {
    place: &'p mut [u8],
    bytes: usize,
}

impl Write for FixedText<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let left = &mut self.place[self.bytes..];
        let mut bytes = text.len().min(left.len());
        while !text.is_char_boundary(bytes) {
            bytes -= 1;
        }
        left[..bytes].copy_from_slice(&text.as_bytes()[..bytes]);
        self.bytes += bytes;
        if bytes == text.len() { Ok(()) } else { Err(fmt::Error) }
    }
}

#[cfg(test)]
mod tests {
    use super::{Allowance, Limit, LimitOverrides, Usage, verdict};
    use crate::tenant::limit::TenantLimit;

    #[test]
    fn the_first_limit_that_was_reached_is_named_with_what_was_used() {
        let budget = LimitOverrides { cpu_us: 10, wall_us: 20, yields: 3, ..LimitOverrides::default() };
        let allowance = budget.instead_of(Allowance::NONE);
        let over = |usage| verdict(&allowance, usage);
        assert_eq!(over(Usage { cpu_us: 10, wall_us: 20, yields: 3, slices: 9 }), None);
        let used = over(Usage { cpu_us: 11, wall_us: 25, yields: 1, slices: 2 }).expect("over");
        assert_eq!(used.exceeded.limit, Limit::Tenant(TenantLimit::InvocationCpuUs));
        let mut place = [0; 512];
        let bytes = used.describe("spin", "loops", 3, &mut place);
        assert_eq!(
            str::from_utf8(&place[..bytes]).expect("text"),
            "the limit invocation_cpu_us = 10 was reached: 11 used or requested in loops@3 spin \
             (11 us on the processor, 25 us since its first poll, 1 yields, 2 preemptions)"
        );
        assert_eq!(used.describe("spin", "loops", 3, &mut place[..7]), 7);
        let old = over(Usage { wall_us: 21, ..Usage::default() }).expect("over");
        assert_eq!(old.exceeded.limit, Limit::Tenant(TenantLimit::InvocationWallUs));
        let restless = over(Usage { yields: 4, ..Usage::default() }).expect("over");
        assert_eq!(restless.exceeded.limit, Limit::Tenant(TenantLimit::InvocationYields));
    }
}
