//! What one invocation may use: the limits of its tenant, as they stood when it began.
//!
//! Read from the account once, so that a limit that is changed meanwhile holds for the next invocation. The
//! access counts against it what passes through host calls, the invocation what it is charged between polls,
//! its arena and its reply what they hold.

use std::sync::LazyLock;

use sandstorm::Error;

use crate::limits::{ARENA_BYTES, TRANSACTION_BYTES, TRANSACTION_READS_MAX, TRANSACTION_WRITES_MAX};
use crate::ops::transaction::Full;
use crate::tenant::account::Account;
use crate::tenant::limit::TenantLimit;

/// See the file's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// Time on the processor, in microseconds.
    pub cpu_us: u64,
    /// Age, in microseconds.
    pub wall_us: u64,
    /// Yields.
    pub yields: u64,
    /// Bytes of the arena.
    pub arena_bytes: usize,
    /// Objects read.
    pub reads: u64,
    /// Bytes of keys and values read.
    pub read_bytes: u64,
    /// Objects written.
    pub writes: usize,
    /// Bytes of keys and values written.
    pub write_bytes: usize,
    /// Bytes of the reply.
    pub reply_bytes: usize,
}

impl Allowance {
    /// Nothing at all.
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

    /// What the account of a tenant allows now. What has memory set aside for it is never more than that.
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

/// Which limit an invocation met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// One of its tenant.
    Tenant(TenantLimit),
    /// Objects that are noted as read for the commit.
    NotedReads,
    /// Bytes of what is noted for the commit: what is written, and the keys that were found absent.
    NotedBytes,
    /// Objects that are read at other servers.
    RemoteReads,
    /// Bytes of the stack. How many more were asked for, nobody knows.
    StackBytes,
    /// Preempted invocations of a core.
    Parked,
    /// Bytes that invocations of a tenant hold on a core while they wait: half of what the other tenants leave.
    HeldBytes,
}

impl Limit {
    /// The name by which its caller is told: of a tenant's limit the one by which it is changed.
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

/// A limit that an invocation met, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exceeded {
    /// Which.
    pub limit: Limit,
    /// Its value.
    pub value: u64,
    /// What the invocation had used, or would have used with what it asked for.
    pub used: u64,
}

/// What the access counts of an invocation, and the limit that it met last.
#[derive(Debug)]
pub struct Spending {
    allowance: Allowance,
    reads_left: u64,
    read_bytes_left: u64,
    exceeded: Option<Exceeded>,
}

impl Spending {
    /// With nothing to spend.
    #[must_use]
    pub const fn new() -> Self {
        Self { allowance: Allowance::NONE, reads_left: 0, read_bytes_left: 0, exceeded: None }
    }

    /// A new invocation has this.
    #[inline]
    pub fn allow(&mut self, allowance: Allowance) {
        self.allowance = allowance;
    }

    /// Nothing is spent yet.
    #[inline]
    pub fn rewind(&mut self) {
        self.reads_left = self.allowance.reads;
        self.read_bytes_left = self.allowance.read_bytes;
        self.exceeded = None;
    }

    /// What the invocation may use in all.
    #[inline]
    #[must_use]
    pub fn allowance(&self) -> &Allowance {
        &self.allowance
    }

    /// Objects read, and bytes of their keys and values.
    #[inline]
    #[must_use]
    pub fn read(&self) -> (u64, u64) {
        (self.allowance.reads - self.reads_left, self.allowance.read_bytes - self.read_bytes_left)
    }

    /// The limit of which a host call last said that it was met.
    #[must_use]
    pub fn exceeded(&self) -> Option<Exceeded> {
        self.exceeded
    }

    /// Counts reads of so many objects.
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

    /// Reads that were counted were not made, but will be.
    pub fn take_back_reads(&mut self, count: u64) {
        self.reads_left = (self.reads_left + count).min(self.allowance.reads);
    }

    /// Counts bytes of a key and the value that was found.
    ///
    /// # Errors
    /// `LimitExceeded`; then they are not counted, and not to be lent.
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

    /// Notes that there was no room for one more write.
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

    /// Notes that one more read could not be noted for the commit.
    #[cold]
    pub fn too_many_noted(&mut self) -> Error {
        let value = TRANSACTION_READS_MAX as u64;
        self.exceed(Limit::NotedReads, value, value + 1)
    }

    /// Notes that one more than so many was asked for.
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
