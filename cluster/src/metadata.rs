//! Tenants, limits, tables, extensions, grants and the audit log: the rules, over any storage of records.
//!
//! Each change is one transaction over [`records`](super::records), committed when the call returns; a failed one
//! leaves nothing half-made. A change that conflicts with another server's is repeated on the new state, so these
//! functions may run their rules more than once; a repeated conflict is [`MetadataError::Conflict`].
//!
//! Numbers (tenants, tables, extensions, clients) come from counters that only grow, so no number is ever reused. Only
//! the control plane calls this; workers never do.

mod audit;
mod catalog;
mod coordination;
mod encoding;
mod error;
mod extensions;
mod grants;
mod limits;
mod members;
mod migrations;
mod moving;
mod packages;
mod parts;
mod placement;
mod plans;
mod recoveries;
mod replicas;
pub mod restoration;
mod row;
mod servers;
mod tables;
mod tablets;
mod tenants;
mod transaction;
mod upgrade;
mod usage;
mod version_state;

pub use catalog::{Catalog, is_followed_by_its_author, tenants_of};
pub use control::PlanProgress;
pub use coordination::{Coordinator, CoordinatorStep, Snapshot};
pub use error::{MetadataError, TabletError};
pub use extensions::{ExtensionRow, StoredVersion};
pub use grants::GrantRow;
pub use limits::LimitRow;
pub use members::MemberRow;
pub use migrations::{MigrationRow, ServerRun, Side};
pub use moving::MigrationView;
pub use parts::PartRow;
pub use plans::{Goal, PlanRow, PlannedMove, drained};
pub use recoveries::RecoveryRow;
pub use replicas::{DecidedCut, OwnLogEnd, OwnLogExtent, ReplicasRow};
pub use servers::ServerRow;
pub use tables::TableRow;
pub use tablets::{Tablet, TabletsRow};
pub use tenants::TenantRow;
pub use usage::UsageRow;
pub use version_state::{VersionState, VersionStateError};

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use self::transaction::{MetadataTransaction, WriteTurn};
use super::records::{Committed, Embedded, Opener, Records, RecordsError, Revision};
use crate::limits::{
    CHANGE_ATTEMPTS_MAX, CHANGE_BACKOFF_US, CHANGE_BACKOFF_US_MAX, CHANGE_TURN_MS, CLIENT_IDS_RESERVED,
    VERSION_RESERVATIONS_MAX, VERSIONS_RESERVED, WATCH_EVENTS_MAX,
};
use crate::secret::random_bytes;

/// The format version of the records; others are refused.
const FORMAT_VERSION: u64 = 3;

const FORMAT: &str = "format";

/// The counter of version reservations.
const VERSIONS: &str = "version";

#[derive(Serialize, Deserialize)]
struct Format {
    version: u64,
}

#[derive(Serialize, Deserialize)]
struct Counter {
    /// The next number.
    next: u64,
}

/// The metadata of this server or of its cluster.
pub struct Metadata {
    records: Box<dyn Records>,
    turn: WriteTurn,
    /// The last commits of this server.
    own: Mutex<VecDeque<Revision>>,
}

impl Metadata {
    /// Opens the file at `path`, created if missing: the metadata of one server.
    ///
    /// # Errors
    /// When the file cannot be opened, is held by another server, or has another format.
    pub fn open(path: &Path) -> Result<Self, MetadataError> {
        Self::over(Box::new(Embedded::open(path, upgrade::records_of)?))
    }

    /// Opens what `opener` returns; tests use it to simulate a disk that fills up.
    ///
    /// # Errors
    /// As [`Metadata::open`].
    pub fn open_with(opener: Opener) -> Result<Self, MetadataError> {
        Self::over(Box::new(Embedded::open_with(opener, upgrade::records_of)?))
    }

    /// Returns the metadata in these records.
    ///
    /// # Errors
    /// When they have another format, or do not answer.
    pub fn over(records: Box<dyn Records>) -> Result<Self, MetadataError> {
        let metadata = Self { records, turn: WriteTurn::default(), own: Mutex::default() };
        metadata.write(|transaction| match transaction.get::<Format>(FORMAT)? {
            Some(Format { version: FORMAT_VERSION }) => Ok(()),
            Some(Format { version }) => Err(RecordsError::UnknownFormat(version).into()),
            None if transaction.has(restoration::RESTORING)? => Err(RecordsError::Storage(
                "a copy is being restored there; if that was interrupted, begin it anew".to_owned(),
            )
            .into()),
            None => Ok(transaction.put(FORMAT, &Format { version: FORMAT_VERSION })?),
        })?;
        Ok(metadata)
    }

    /// Returns the storage.
    #[must_use]
    pub fn records(&self) -> &dyn Records {
        self.records.as_ref()
    }

    /// Returns whether this server made the commit, as far as known.
    #[must_use]
    pub fn is_own(&self, revision: Revision) -> bool {
        self.own.lock().unwrap_or_else(PoisonError::into_inner).contains(&revision)
    }

    fn note(&self, revision: Revision) {
        let mut own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        if own.len() == WATCH_EVENTS_MAX {
            own.pop_front();
        }
        own.push_back(revision);
    }

    /// Reserves [`CLIENT_IDS_RESERVED`] client numbers.
    ///
    /// # Errors
    /// When the reservation cannot be stored.
    pub fn reserve_client_ids(&self) -> Result<Range<u64>, MetadataError> {
        let first = self.write(|transaction| next(transaction, "client", CLIENT_IDS_RESERVED))?;
        Ok(first..first + CLIENT_IDS_RESERVED)
    }

    /// Reserves [`VERSIONS_RESERVED`] object versions above all that any server has reserved, and returns the version
    /// below them. The first reservation starts at 1.
    ///
    /// # Errors
    /// When the reservation cannot be stored.
    pub fn reserve_versions(&self) -> Result<u64, MetadataError> {
        Ok(below_reservation(self.write(|transaction| next(transaction, VERSIONS, 1))?))
    }

    /// Counts a start of a server's log, the last one that the log itself knows being `known`, and returns its number. `None` if
    /// the log knows a start that is not in these records: they are of before it.
    ///
    /// # Errors
    /// When it cannot be stored.
    pub fn log_start(&self, server: u32, known: u64) -> Result<Option<u64>, MetadataError> {
        let key = format!("counters/log-start-{server}");
        self.write(|transaction| {
            let number = transaction.get::<Counter>(&key)?.map_or(1, |counter| counter.next);
            if known >= number {
                return Ok(None);
            }
            transaction.put(&key, &Counter { next: number + 1 })?;
            Ok(Some(number))
        })
    }

    /// Returns the version below the last reservation of any server.
    ///
    /// # Errors
    /// When the metadata cannot be read.
    pub fn reserved_versions(&self) -> Result<u64, MetadataError> {
        let key = format!("counters/{VERSIONS}");
        let next = self.read(|transaction| Ok(transaction.get::<Counter>(&key)?))?;
        Ok(below_reservation(next.map_or(1, |counter| counter.next.saturating_sub(1))))
    }

    /// Ensures that all later reservations are above this version.
    ///
    /// # Errors
    /// When it cannot be stored.
    pub fn reserve_versions_to(&self, version: u64) -> Result<(), MetadataError> {
        let key = format!("counters/{VERSIONS}");
        let least = version.div_ceil(VERSIONS_RESERVED) + 1;
        self.write(|transaction| {
            let next = transaction.get::<Counter>(&key)?.map_or(1, |counter| counter.next);
            if next < least {
                transaction.put(&key, &Counter { next: least })?;
            }
            Ok(())
        })
    }

    /// Reads as of one commit.
    fn read<T>(
        &self,
        look: impl Fn(&mut MetadataTransaction<'_>) -> Result<T, MetadataError>,
    ) -> Result<T, MetadataError> {
        for attempt in 0..CHANGE_ATTEMPTS_MAX {
            match look(&mut MetadataTransaction::new(self.records())) {
                Err(MetadataError::Records(RecordsError::Overtaken)) => back_off(attempt),
                other => return other,
            }
        }
        Err(MetadataError::Conflict)
    }

    /// Makes a change. A refusal by `change` is decided as of one commit.
    fn write<T>(
        &self,
        change: impl Fn(&mut MetadataTransaction<'_>) -> Result<T, MetadataError>,
    ) -> Result<T, MetadataError> {
        let _mine = self.turn.take(Duration::from_millis(CHANGE_TURN_MS))?;
        for attempt in 0..CHANGE_ATTEMPTS_MAX {
            let mut transaction = MetadataTransaction::new(self.records());
            let changed = match change(&mut transaction) {
                Err(MetadataError::Records(RecordsError::Overtaken)) => {
                    back_off(attempt);
                    continue;
                }
                other => other?,
            };
            match transaction.commit()? {
                Committed::At(revision) => {
                    self.note(revision);
                    return Ok(changed);
                }
                Committed::Conflict => back_off(attempt),
            }
        }
        Err(MetadataError::Conflict)
    }
}

impl fmt::Debug for Metadata {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Metadata").finish_non_exhaustive()
    }
}

/// Waits a random time that grows with `attempt`, so that conflicting servers drift apart.
fn back_off(attempt: u32) {
    let most_us = (CHANGE_BACKOFF_US << attempt.min(16)).min(CHANGE_BACKOFF_US_MAX);
    let chance = random_bytes::<8>().map_or(0, u64::from_le_bytes);
    thread::sleep(Duration::from_micros(chance % most_us));
}

/// Takes `count` numbers from a counter and returns the first; numbers begin at 1.
fn next(transaction: &mut MetadataTransaction<'_>, counter: &str, count: u64) -> Result<u64, MetadataError> {
    let key = format!("counters/{counter}");
    let first = transaction.get::<Counter>(&key)?.map_or(1, |counter| counter.next);
    transaction.put(&key, &Counter { next: first + count })?;
    Ok(first)
}

/// Returns the version below those of a reservation. When the version space is exhausted, the last reservation is
/// returned again.
fn below_reservation(number: u64) -> u64 {
    number.saturating_sub(1).min(VERSION_RESERVATIONS_MAX - 1) * VERSIONS_RESERVED
}

/// Takes one number that must fit 32 bits.
fn next_u32(transaction: &mut MetadataTransaction<'_>, counter: &str) -> Result<u32, MetadataError> {
    u32::try_from(next(transaction, counter, 1)?).map_err(|_| MetadataError::LimitExceeded)
}

#[cfg(test)]
mod tests;
