//! The limits of one invocation: its tenant's limits at the time when it began.
//!
//! The values are read from the account once, so a changed limit applies to the next invocation. The access counts the
//! use by host calls, the invocation counts the time charged between polls, and the arena and the reply count their
//! bytes.

use std::sync::LazyLock;

use sandstorm::Error;

use crate::limits::{ARENA_BYTES, TRANSACTION_BYTES, TRANSACTION_READS_MAX, TRANSACTION_WRITES_MAX};
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
    };

    /// Returns the limits of a tenant's account now, capped by the memory reserved for an invocation.
    #[inline]
    #[must_use]
    pub fn of(account: &Account) -> Self {
        // Most tenants have the defaults, which lie on lines that all of them share.
        static DEFAULT: LazyLock<Allowance> = LazyLock::new(|| Allowance::by(TenantLimit::default_value));
        if account.has_own_limits() { Self::by(|limit| account.limit(limit)) } else { *DEFAULT }
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
        }
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
            Self::Parked => "preempted_invocations_of_a_core",
            Self::HeldBytes => "held_bytes_of_a_core",
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

    #[cold]
    fn exceed(&mut self, limit: Limit, value: u64, used: u64) -> Error {
        self.exceeded = Some(Exceeded { limit, value, used });
        Error::LimitExceeded
    }
}

impl Default for Spending {
    fn default() -> Self {
        Self::new()
    }
}
