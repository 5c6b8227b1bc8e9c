//! Tenants, their limits, tables, extensions, grants and the audit log: the rules, over whatever keeps the records.
//!
//! Each change is one transaction over [`records`](super::records) that is committed when the call returns; what fails
//! leaves nothing half-made. A change that others contradict meanwhile is made again on what they left, so the
//! functions here may run their rules more than once; what others keep contradicting is [`MetadataError::Conflict`].
//!
//! Numbers (tenants, tables, extensions, clients) come from counters that only grow, so a number never
//! means two things. Called by the control plane alone; workers never come here.

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
mod placement;
mod plans;
mod removal;
mod servers;
mod tables;
mod tablets;
mod tenants;
mod transaction;
mod turn;
mod upgrade;
mod version_state;

pub use catalog::{Catalog, is_followed_by_its_author, tenants_of};
pub use coordination::{Coordinator, CoordinatorStep, Snapshot};
pub use error::{MetadataError, TabletError};
pub use extensions::{ExtensionRow, StoredVersion};
pub use grants::GrantRow;
pub use limits::LimitRow;
pub use members::MemberRow;
pub use migrations::{MigrationRow, ServerRun, Side};
pub use moving::MigrationView;
pub use plans::{Goal, PlanRow, PlanState, PlannedMove, drained};
pub use servers::ServerRow;
pub use tables::TableRow;
pub use tablets::{Tablet, TabletsRow};
pub use tenants::TenantRow;
pub use version_state::{VersionState, VersionStateError};

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use self::transaction::MetadataTransaction;
use self::turn::WriteTurn;
use super::records::{Committed, Embedded, Opener, Records, RecordsError, Revision};
use crate::limits::{
    CHANGE_ATTEMPTS_MAX, CHANGE_BACKOFF_US, CHANGE_BACKOFF_US_MAX, CHANGE_TURN_MS, CLIENT_IDS_RESERVED,
    VERSION_RESERVATIONS_MAX, VERSIONS_RESERVED, WATCH_EVENTS_MAX,
};
use crate::tenant::secret::random_bytes;

/// Version of the records: others are refused.
const FORMAT_VERSION: u64 = 3;

const FORMAT: &str = "format";

/// The counter of reservations of versions.
const VERSIONS: &str = "version";

#[derive(Serialize, Deserialize)]
struct Format {
    version: u64,
}

#[derive(Serialize, Deserialize)]
struct Counter {
    /// What is given next.
    next: u64,
}

/// The metadata of this server or of its cluster.
pub struct Metadata {
    records: Box<dyn Records>,
    turn: WriteTurn,
    /// Commits of this server, the last ones.
    own: Mutex<VecDeque<Revision>>,
}

impl Metadata {
    /// Opens the file at `path`, made if it is missing: the metadata of one server.
    ///
    /// # Errors
    /// When the file cannot be opened, is held by another server, or is not of this format.
    pub fn open(path: &Path) -> Result<Self, MetadataError> {
        Self::over(Box::new(Embedded::open(path, upgrade::records_of)?))
    }

    /// Opens whatever `opener` gives: the seam through which tests bring a disk that fills up.
    ///
    /// # Errors
    /// As [`Metadata::open`].
    pub fn open_with(opener: Opener) -> Result<Self, MetadataError> {
        Self::over(Box::new(Embedded::open_with(opener, upgrade::records_of)?))
    }

    /// The metadata in these records.
    ///
    /// # Errors
    /// When they are not of this format, or do not answer.
    pub fn over(records: Box<dyn Records>) -> Result<Self, MetadataError> {
        let metadata = Self { records, turn: WriteTurn::default(), own: Mutex::default() };
        metadata.write(|transaction| match transaction.get::<Format>(FORMAT)? {
            Some(Format { version: FORMAT_VERSION }) => Ok(()),
            Some(Format { version }) => Err(RecordsError::UnknownFormat(version).into()),
            None => Ok(transaction.put(FORMAT, &Format { version: FORMAT_VERSION })?),
        })?;
        Ok(metadata)
    }

    /// Where it is kept.
    #[must_use]
    pub fn records(&self) -> &dyn Records {
        self.records.as_ref()
    }

    /// Whether a commit is known to be this server's own.
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

    /// Reserves [`CLIENT_IDS_RESERVED`] numbers of clients.
    ///
    /// # Errors
    /// When the reservation cannot be stored.
    pub fn reserve_client_ids(&self) -> Result<Range<u64>, MetadataError> {
        let first = self.write(|transaction| next(transaction, "client", CLIENT_IDS_RESERVED))?;
        Ok(first..first + CLIENT_IDS_RESERVED)
    }

    /// Reserves [`VERSIONS_RESERVED`] versions of objects above all that any server has reserved, and gives the one below
    /// them. The first are 1 and those that follow.
    ///
    /// # Errors
    /// When the reservation cannot be stored.
    pub fn reserve_versions(&self) -> Result<u64, MetadataError> {
        Ok(below_reservation(self.write(|transaction| next(transaction, VERSIONS, 1))?))
    }

    /// The version below those that were reserved last, by any server.
    ///
    /// # Errors
    /// When the metadata cannot be read.
    pub fn reserved_versions(&self) -> Result<u64, MetadataError> {
        let key = format!("counters/{VERSIONS}");
        let next = self.read(|transaction| Ok(transaction.get::<Counter>(&key)?))?;
        Ok(below_reservation(next.map_or(1, |counter| counter.next.saturating_sub(1))))
    }

    /// Sees to it that all reservations to come are above this version.
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

    /// Looks as of one commit.
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

    /// Makes a change. What `change` refuses it refuses as of one commit.
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

/// Waits a little, each time longer and by chance, so that servers that contradict each other fall apart.
fn back_off(attempt: u32) {
    let most_us = (CHANGE_BACKOFF_US << attempt.min(16)).min(CHANGE_BACKOFF_US_MAX);
    let chance = random_bytes::<8>().map_or(0, u64::from_le_bytes);
    thread::sleep(Duration::from_micros(chance % most_us));
}

/// Takes `count` numbers from a counter and gives the first; numbers begin at 1.
fn next(transaction: &mut MetadataTransaction<'_>, counter: &str, count: u64) -> Result<u64, MetadataError> {
    let key = format!("counters/{counter}");
    let first = transaction.get::<Counter>(&key)?.map_or(1, |counter| counter.next);
    transaction.put(&key, &Counter { next: first + count })?;
    Ok(first)
}

/// The version below those of a reservation. When none is left that is told apart from those before, those of the last are
/// given again.
fn below_reservation(number: u64) -> u64 {
    number.saturating_sub(1).min(VERSION_RESERVATIONS_MAX - 1) * VERSIONS_RESERVED
}

/// Takes one number that has to fit 32 bits.
fn next_u32(transaction: &mut MetadataTransaction<'_>, counter: &str) -> Result<u32, MetadataError> {
    u32::try_from(next(transaction, counter, 1)?).map_err(|_| MetadataError::LimitExceeded)
}

#[cfg(test)]
mod tests;
