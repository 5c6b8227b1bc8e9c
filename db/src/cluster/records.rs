//! Records: keys in order with values and revisions, changed by transactions that other servers may contradict.
//!
//! The seam below the metadata. Every commit has a [`Revision`], one higher than any before; a record carries that of
//! the commit that wrote it. Who wants to change something reads at one revision, decides, and commits under
//! [`Condition`]s that say what must still hold; the commit happens whole or not at all, and is on disk when it
//! returns. There are two: [`Embedded`], a file of this server's alone, and [`Etcd`], which several servers share.
//!
//! Keys are paths of printable ASCII, as in `catalog/tables/0000000001/graph`. Values are opaque here. Called by
//! control threads alone; every call returns within a bounded time.

mod embedded;
mod error;
mod etcd;
mod watch;

pub use embedded::{Embedded, Opener, Upgrade};
pub use error::RecordsError;
pub use etcd::Etcd;
pub use watch::{Event, Watch, WatchEnd, WatchSource};

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Moment;

/// Number of a commit; later ones have higher numbers. 0 is before the first one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

/// Number of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub i64);

/// A record as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Under which it is found.
    pub key: String,
    /// What it says.
    pub value: Vec<u8>,
    /// The commit that wrote it.
    pub revision: Revision,
}

/// The keys from `from` on that are below `to`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeySpan {
    /// The first key.
    pub from: String,
    /// The key behind the last one.
    pub to: String,
}

impl KeySpan {
    /// One key alone.
    #[must_use]
    pub fn one(key: &str) -> Self {
        Self { from: key.to_owned(), to: format!("{key}\0") }
    }

    /// All keys that begin so. The prefix ends with an ASCII character.
    #[must_use]
    pub fn prefix(prefix: &str) -> Self {
        let mut to = prefix.to_owned();
        let last = to.pop().map_or('\0', |last| char::from(last as u8 + 1));
        to.push(last);
        Self { from: prefix.to_owned(), to }
    }

    /// Whether it is one key alone.
    #[must_use]
    pub fn is_one(&self) -> bool {
        self.to.strip_suffix('\0') == Some(self.from.as_str())
    }

    /// Whether the key is among these.
    #[must_use]
    pub fn holds(&self, key: &str) -> bool {
        self.from.as_str() <= key && key < self.to.as_str()
    }
}

/// What is to be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// Of these keys.
    pub span: KeySpan,
    /// So many at most.
    pub limit: usize,
    /// From the last key down; otherwise from the first key up.
    pub from_last: bool,
}

impl Query {
    /// All records of a span, in the order of their keys.
    #[must_use]
    pub fn all(span: KeySpan) -> Self {
        Self { span, limit: usize::MAX, from_last: false }
    }
}

/// What was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// As of this commit.
    pub revision: Revision,
    /// What each query found, in its order.
    pub found: Vec<Vec<Record>>,
}

/// What must hold for a commit to happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// There is no such record.
    Absent(String),
    /// The record is as this commit wrote it.
    Is(String, Revision),
    /// No record of the span was written after this commit. It says nothing of records that were deleted.
    NoneNewer(KeySpan, Revision),
}

/// A part of a commit. No key is changed twice in one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordChange {
    /// The record has this value from now on.
    Put {
        /// Its key. A value above [`crate::limits::RECORD_STAGED_BYTES`] goes to a key that was never written before.
        key: String,
        /// Its value.
        value: Vec<u8>,
        /// The lease with which it goes.
        lease: Option<LeaseId>,
    },
    /// There is no such record from now on.
    Delete(String),
    /// There are no records with such keys from now on.
    DeletePrefix(String),
}

impl RecordChange {
    /// A record that stays.
    #[must_use]
    pub fn put(key: impl Into<String>, value: impl Into<Vec<u8>>) -> Self {
        Self::Put { key: key.into(), value: value.into(), lease: None }
    }
}

/// How a commit ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Committed {
    /// It happened.
    At(Revision),
    /// A condition did not hold: nothing was changed.
    Conflict,
}

/// A lease that was given or kept: by this server's clock it is held until then, whatever happens to the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldLease {
    /// Its number.
    pub lease: LeaseId,
    /// From then on its records may be gone.
    pub until: Moment,
}

/// See the file's head.
pub trait Records: Send + Sync {
    /// Whether other servers change them too.
    fn is_shared(&self) -> bool;

    /// Reads all queries as of one commit: `at`, or the last one.
    ///
    /// # Errors
    /// `Overtaken` when there is no way any more to read as of `at`; that records cannot be read.
    fn read(&self, queries: &[Query], at: Option<Revision>) -> Result<Reading, RecordsError>;

    /// Reads like [`Records::read`], for who can do without: where the records are elsewhere it gives up after `patience`.
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
    /// `Uncertain` when nobody can say whether it happened; with all other errors nothing was changed.
    fn commit(&self, conditions: &[Condition], changes: &[RecordChange]) -> Result<Committed, RecordsError>;

    /// Follows the records with such keys: all commits after `after` that changed one, in order, none left out.
    ///
    /// # Errors
    /// That it cannot begin. What goes wrong later the watch says.
    fn watch(&self, prefix: &str, after: Revision) -> Result<Watch, RecordsError>;

    /// A new lease: its records are deleted when it was not kept for as long as this.
    ///
    /// # Errors
    /// That there is none.
    fn lease_grant(&self, ttl: Duration) -> Result<HeldLease, RecordsError>;

    /// Keeps a lease for another while.
    ///
    /// # Errors
    /// `LeaseGone` when it is over; that nobody can say.
    fn lease_keep(&self, lease: LeaseId) -> Result<HeldLease, RecordsError>;

    /// Ends a lease and deletes its records.
    ///
    /// # Errors
    /// That it could not be ended: then it ends by itself.
    fn lease_revoke(&self, lease: LeaseId) -> Result<(), RecordsError>;
}

/// Records that several have.
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
