//! The limits of a tenant and of each of its invocations.
//!
//! Every limit is a number with a name, a unit in that name, a default and bounds. The administrator changes limits
//! while the server runs; workers read them from the tenant's [`super::account::Account`].

use crate::limits::{
    ARENA_BYTES, COMPILE_CPU_MS_MAX, INVOCATION_CPU_US_MAX, INVOCATION_READS_MAX, INVOCATION_WALL_US_MAX,
    INVOCATION_YIELDS_MAX, INVOCATIONS_PER_WORKER_MAX, TENANT_CODE_BYTES_MAX, TENANT_WEIGHT_DEFAULT,
    TENANT_WEIGHT_MAX, TRANSACTION_BYTES, TRANSACTION_WRITES_MAX,
};

/// The value of an unlimited limit.
pub const UNLIMITED: u64 = u64::MAX;

macro_rules! limits {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $default:expr, $least:expr, $most:expr;)*) => {
        /// A limit of a tenant.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum TenantLimit { $($(#[$doc])* $variant,)* }

        impl TenantLimit {
            /// All limits in the order of their declaration.
            pub const ALL: &'static [TenantLimit] = &[$(TenantLimit::$variant,)*];

            /// Returns the name under which it is shown, changed and reported.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(TenantLimit::$variant => $name,)* }
            }

            /// Returns the value for a tenant for which none was set.
            #[must_use]
            pub const fn default_value(self) -> u64 {
                match self { $(TenantLimit::$variant => $default,)* }
            }

            /// Returns the minimum and the maximum value; a maximum of [`UNLIMITED`] allows that value too.
            #[must_use]
            pub const fn bounds(self) -> (u64, u64) {
                match self { $(TenantLimit::$variant => ($least, $most),)* }
            }
        }
    };
}

limits! {
    /// Share of a core relative to other tenants that want it, in proportion to their weights.
    Weight = "weight", TENANT_WEIGHT_DEFAULT, 1, TENANT_WEIGHT_MAX;
    /// Native operations and invocations per second, over all cores.
    OperationsPerSecond = "operations_per_second", UNLIMITED, 1, UNLIMITED;
    /// Unfinished invocations on one core.
    Invocations = "invocations", INVOCATIONS_PER_WORKER_MAX as u64 / 2, 1, INVOCATIONS_PER_WORKER_MAX as u64 / 2;
    /// Bytes of the log that its objects take, including heads.
    MemoryBytes = "memory_bytes", UNLIMITED, 0, UNLIMITED;
    /// Bytes of the artefacts of all kept versions of its extensions.
    CodeBytes = "code_bytes", TENANT_CODE_BYTES_MAX, 0, UNLIMITED;
    /// Processor time of its installations per minute, in milliseconds.
    CompileMsPerMinute = "compile_ms_per_minute", COMPILE_CPU_MS_MAX, 0, UNLIMITED;
    /// Processor time of one invocation, in microseconds.
    InvocationCpuUs = "invocation_cpu_us", INVOCATION_CPU_US_MAX, 100, INVOCATION_WALL_US_MAX;
    /// Age of one invocation, in microseconds.
    InvocationWallUs = "invocation_wall_us", INVOCATION_WALL_US_MAX, 100, INVOCATION_WALL_US_MAX;
    /// Yields of one invocation.
    InvocationYields = "invocation_yields", INVOCATION_YIELDS_MAX as u64, 0, u32::MAX as u64;
    /// Bytes that one invocation may allocate.
    InvocationArenaBytes = "invocation_arena_bytes", ARENA_BYTES as u64, 0, ARENA_BYTES as u64;
    /// Objects that one invocation may read.
    InvocationReads = "invocation_reads", INVOCATION_READS_MAX as u64, 0, u32::MAX as u64;
    /// Bytes of keys and values that one invocation may read.
    InvocationReadBytes = "invocation_read_bytes", UNLIMITED, 0, UNLIMITED;
    /// Objects that one invocation may write.
    InvocationWrites = "invocation_writes", TRANSACTION_WRITES_MAX as u64, 0, TRANSACTION_WRITES_MAX as u64;
    /// Bytes of keys and values that one invocation may write.
    InvocationWriteBytes = "invocation_write_bytes", TRANSACTION_BYTES as u64, 0, TRANSACTION_BYTES as u64;
    /// Bytes of the reply of one invocation.
    InvocationReplyBytes = "invocation_reply_bytes", wire::limits::REPLY_BYTES_MAX as u64, 0,
        wire::limits::REPLY_BYTES_MAX as u64;
    /// Whether its invocations may read at this server only: 1 for yes; 0 permits reads at other servers.
    LocalOnly = "local_only", 0, 0, 1;
    /// Where its invocations run whose clients can run them too: 0 for where it is cheaper, 1 for the server, 2 for the client.
    RunAt = "run_at", 0, 0, 2;
    /// The form in which its invocations run: 0 for machine code of the server's process, 1 for WebAssembly.
    Sandbox = "sandbox", 1, 0, 1;
}

impl TenantLimit {
    /// Those that hold for all servers of a cluster together; the others hold for each of them.
    pub const SHARED: [Self; 2] = [Self::OperationsPerSecond, Self::MemoryBytes];

    /// Returns the limit with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|limit| limit.name() == name)
    }

    /// Returns the value for a tenant without a record of this limit. It differs from the default for `sandbox`, which
    /// each tenant has a record of since there are modules: one of an earlier release keeps the form that it had.
    #[must_use]
    pub const fn unrecorded_value(self) -> u64 {
        match self {
            Self::Sandbox => 0,
            other => other.default_value(),
        }
    }

    /// Returns what to record for a tenant whose limit gets this value, or the default; `None` for no record.
    #[must_use]
    pub const fn record(self, value: Option<u64>) -> Option<u64> {
        match value {
            None if self.unrecorded_value() != self.default_value() => Some(self.default_value()),
            value => value,
        }
    }

    /// Returns whether it can be set to `value`.
    #[must_use]
    pub const fn allows(self, value: u64) -> bool {
        let (least, most) = self.bounds();
        least <= value && value <= most
    }
}

#[cfg(test)]
mod tests {
    use super::TenantLimit;

    #[test]
    fn every_default_lies_within_its_bounds_and_every_name_finds_its_limit() {
        for limit in TenantLimit::ALL {
            assert!(limit.allows(limit.default_value()), "{limit:?}");
            assert_eq!(TenantLimit::named(limit.name()), Some(*limit));
        }
        assert_eq!(TenantLimit::named("cpu"), None);
    }

    #[test]
    fn every_limit_stands_in_the_documents() {
        const SPEC: &str = include_str!("../../../docs/spec.md");
        for limit in TenantLimit::ALL {
            let row = format!("| `{}` | ", limit.name());
            assert!(SPEC.lines().any(|line| line.starts_with(&row)), "{row}");
        }
    }
}
