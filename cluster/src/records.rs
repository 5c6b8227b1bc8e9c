//! Records: ordered keys with values and revisions, changed by transactions that may conflict with other servers'.
//!
//! This is the layer below the metadata. Every commit has a [`Revision`], one higher than any before; a record carries
//! the revision of the commit that wrote it. To change something, a caller reads at one revision, decides, and commits
//! under [`Condition`]s that must still hold. The commit is atomic, and is on disk when the call returns. There are
//! two implementations: [`Embedded`], a local file of this server, and the server's over an etcd, which several
//! servers share.
//!
//! Keys are paths of printable ASCII, as in `catalog/tables/0000000001/graph`. Values are opaque here. Only control
//! threads call this; every call returns within a bounded time.

mod copy;
mod embedded;
mod error;
mod watch;

pub use copy::{CopiedRecords, RecordsCopy};
pub use embedded::{Embedded, Opener, Upgrade};
pub use error::RecordsError;
pub use watch::{Event, Watch, WatchEnd, WatchSource};

use std::sync::Arc;
use std::time::Duration;

use crate::moment::Moment;

/// The number of a commit; later ones have higher numbers. 0 is before the first one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

/// The number of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub i64);

/// A stored record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its key.
    pub key: String,
    /// Its value.
    pub value: Vec<u8>,
    /// The commit that wrote it.
    pub revision: Revision,
}

/// The keys from `from` to below `to`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeySpan {
    /// The first key.
    pub from: String,
    /// The key after the last one.
    pub to: String,
}

impl KeySpan {
    /// Creates a span of one key.
    #[must_use]
    pub fn one(key: &str) -> Self {
        Self { from: key.to_owned(), to: format!("{key}\0") }
    }

    /// Creates a span of all keys with this prefix, which ends with an ASCII character.
    #[must_use]
    pub fn prefix(prefix: &str) -> Self {
        let mut to = prefix.to_owned();
        let last = to.pop().map_or('\0', |last| char::from(last as u8 + 1));
        to.push(last);
        Self { from: prefix.to_owned(), to }
    }

    /// Creates a span of all keys.
    #[must_use]
    pub fn all() -> Self {
        // Keys are printable.
        Self { from: String::new(), to: "\x7f".to_owned() }
    }

    /// Returns whether it is a single key.
    #[must_use]
    pub fn is_one(&self) -> bool {
        self.to.strip_suffix('\0') == Some(self.from.as_str())
    }

    /// Returns whether the span contains the key.
    #[must_use]
    pub fn holds(&self, key: &str) -> bool {
        self.from.as_str() <= key && key < self.to.as_str()
    }
}

/// A query of records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// The keys.
    pub span: KeySpan,
    /// The maximum number of records.
    pub limit: usize,
    /// From the last key down; otherwise from the first key up.
    pub from_last: bool,
}

impl Query {
    /// Queries all records of a span, in the order of their keys.
    #[must_use]
    pub fn all(span: KeySpan) -> Self {
        Self { span, limit: usize::MAX, from_last: false }
    }
}

/// The result of queries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The commit as of which they were read.
    pub revision: Revision,
    /// The records of each query, in the order of the queries.
    pub found: Vec<Vec<Record>>,
}

/// A condition of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The record does not exist.
    Absent(String),
    /// The record is unchanged since this commit wrote it.
    Is(String, Revision),
    /// No record of the span was written after this commit. Does not detect deletions.
    NoneNewer(KeySpan, Revision),
}

/// One change of a commit, which changes no key twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordChange {
    /// Writes a record.
    Put {
        /// Its key. A value above [`crate::limits::RECORD_STAGED_BYTES`] goes to a key that was never written before.
        key: String,
        /// Its value.
        value: Vec<u8>,
        /// The lease with which the record ends.
        lease: Option<LeaseId>,
    },
    /// Deletes a record.
    Delete(String),
    /// Deletes all records with this prefix.
    DeletePrefix(String),
}

impl RecordChange {
    /// Creates a write without a lease.
    #[must_use]
    pub fn put(key: impl Into<String>, value: impl Into<Vec<u8>>) -> Self {
        Self::Put { key: key.into(), value: value.into(), lease: None }
    }
}

/// The outcome of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Committed {
    /// Committed at this revision.
    At(Revision),
    /// A condition did not hold: nothing was changed.
    Conflict,
}

/// A granted or renewed lease: held until a time on this server's clock, whatever happens to the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldLease {
    /// The number of the lease.
    pub lease: LeaseId,
    /// From this time on its records may be gone.
    pub until: Moment,
}

/// A storage of records.
pub trait Records: Send + Sync {
    /// Returns whether other servers change the records too.
    fn is_shared(&self) -> bool;

    /// Returns whether the storage has failed for good: everything is refused until the server is started again.
    fn has_failed(&self) -> bool {
        false
    }

    /// Answers all queries as of one commit: `at`, or the last one.
    ///
    /// # Errors
    /// `Overtaken` if reading as of `at` is no longer possible; or that records cannot be read.
    fn read(&self, queries: &[Query], at: Option<Revision>) -> Result<Reading, RecordsError>;

    /// Like [`Records::read`] for optional reads: gives up after `patience` if the records are remote.
    ///
    /// # Errors
    /// As [`Records::read`]; `Unavailable` when there is no answer in time.
    fn read_within(
        &self,
        queries: &[Query],
        at: Option<Revision>,
        _patience: Duration,
    ) -> Result<Reading, RecordsError> {
        self.read(queries, at)
    }

    /// Makes all changes if all conditions hold.
    ///
    /// # Errors
    /// `Uncertain` when it is unknown whether the commit happened; after all other errors nothing was changed.
    fn commit(&self, conditions: &[Condition], changes: &[RecordChange]) -> Result<Committed, RecordsError>;

    /// Watches the records with this prefix: every commit after `after` that changed one, in order and without gaps.
    ///
    /// # Errors
    /// That it cannot begin. The watch reports later failures.
    fn watch(&self, prefix: &str, after: Revision) -> Result<Watch, RecordsError>;

    /// Grants a lease, whose records are deleted when it is not renewed for `ttl`.
    ///
    /// # Errors
    /// That none can be granted.
    fn lease_grant(&self, ttl: Duration) -> Result<HeldLease, RecordsError>;

    /// Renews a lease.
    ///
    /// # Errors
    /// `LeaseGone` when it is over; or that its state is unknown.
    fn lease_keep(&self, lease: LeaseId) -> Result<HeldLease, RecordsError>;

    /// Ends a lease and deletes its records.
    ///
    /// # Errors
    /// That it could not be ended: then it expires.
    fn lease_revoke(&self, lease: LeaseId) -> Result<(), RecordsError>;
}

/// Records shared by several owners.
impl<R: Records + ?Sized> Records for Arc<R> {
    fn is_shared(&self) -> bool {
        (**self).is_shared()
    }

    fn read(&self, queries: &[Query], at: Option<Revision>) -> Result<Reading, RecordsError> {
        (**self).read(queries, at)
    }

    fn read_within(
        &self,
        queries: &[Query],
        at: Option<Revision>,
        patience: Duration,
    ) -> Result<Reading, RecordsError> {
        (**self).read_within(queries, at, patience)
    }

    fn commit(&self, conditions: &[Condition], changes: &[RecordChange]) -> Result<Committed, RecordsError> {
        (**self).commit(conditions, changes)
    }

    fn watch(&self, prefix: &str, after: Revision) -> Result<Watch, RecordsError> {
        (**self).watch(prefix, after)
    }

    fn lease_grant(&self, ttl: Duration) -> Result<HeldLease, RecordsError> {
        (**self).lease_grant(ttl)
    }

    fn lease_keep(&self, lease: LeaseId) -> Result<HeldLease, RecordsError> {
        (**self).lease_keep(lease)
    }

    fn lease_revoke(&self, lease: LeaseId) -> Result<(), RecordsError> {
        (**self).lease_revoke(lease)
    }
}

#[cfg(test)]
mod tests {
    use super::KeySpan;

    #[test]
    fn spans_hold_what_begins_with_their_prefix() {
        let span = KeySpan::prefix("tables/7/");
        assert!(span.holds("tables/7/a") && span.holds("tables/7/") && span.holds("tables/7/~"));
        assert!(!span.holds("tables/7") && !span.holds("tables/70/a") && !span.holds("tables/8/a"));
        assert!(!span.is_one());
        let one = KeySpan::one("tables/7");
        assert!(one.is_one() && one.holds("tables/7") && !one.holds("tables/7/"));
    }
}
