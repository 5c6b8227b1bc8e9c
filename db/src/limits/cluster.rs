//! Limits of the metadata, and of what servers of a cluster wait for.

/// Events of a watch that wait for who watches, some hundred bytes each; more, and everything is read again.
pub const WATCH_EVENTS_MAX: usize = 1024;

/// Bytes of a package in one record: an etcd takes requests of up to 1.5 MiB.
pub const PACKAGE_CHUNK_BYTES: usize = 512 << 10;

/// A value above this, in bytes, is brought to a shared store before the commit, not with it: so that several fit.
pub const RECORD_STAGED_BYTES: usize = 64 << 10;

/// How often a change is tried again that others contradict. Each time one of the others has got through.
pub const CHANGE_ATTEMPTS_MAX: u32 = 64;

/// What a change waits before it is tried again, in microseconds: at most this, doubled with every attempt.
pub const CHANGE_BACKOFF_US: u64 = 250;

/// The most that it waits before it is tried again, in microseconds.
pub const CHANGE_BACKOFF_US_MAX: u64 = 32_000;

/// How long a change waits for the others of this server, in milliseconds.
pub const CHANGE_TURN_MS: u64 = 10_000;

/// Grants to a tenant that is gone which one commit takes away: an etcd takes 128 parts in one.
pub const GRANTS_SWEPT_AT_ONCE: usize = 64;

const _: () = assert!(RECORD_STAGED_BYTES < PACKAGE_CHUNK_BYTES && PACKAGE_CHUNK_BYTES < 3 << 19);
