//! Tenants, their limits, tables, extensions, grants and the audit log, kept over restarts in one crash-safe file.
//!
//! The file is a redb database (copy-on-write B-trees, a checksummed commit). Each change is one
//! transaction that is on disk when the call returns; what fails leaves nothing half-made. A full disk is
//! [`MetadataError::StorageFull`], and the next change works once there is room: after any failed write
//! the database is opened afresh, since redb refuses to go on with a handle that saw one.
//!
//! Numbers (tenants, tables, extensions, clients) come from counters that only grow, so a number never
//! means two things. Called by the control plane alone; workers never come here.

mod audit;
mod error;
mod extensions;
mod grants;
mod limits;
mod standing;
mod tables;
mod tenants;

pub use error::MetadataError;
pub use extensions::{ExtensionRow, StoredVersion};
pub use grants::GrantRow;
pub use limits::LimitRow;
pub use standing::{Standing, StandingError};
pub use tables::TableRow;
pub use tenants::TenantRow;

use std::fmt;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use redb::{
    Builder, Database, ReadTransaction, ReadableDatabase, ReadableTable, TableDefinition, WriteTransaction,
};

use crate::limits::CLIENT_IDS_RESERVED;

const COUNTERS: TableDefinition<'_, &str, u64> = TableDefinition::new("counters");
const FORMAT: TableDefinition<'_, &str, u64> = TableDefinition::new("format");

/// Version of the layout of the file. The first one, which had one version of each extension, is brought to
/// this one at start; others are refused.
const FORMAT_VERSION: u64 = 2;

/// Opens the database: called at start and again after a failed write.
pub type Opener = Box<dyn Fn() -> Result<Database, redb::DatabaseError> + Send + Sync>;

/// The metadata of this server.
pub struct Metadata {
    opener: Opener,
    database: Mutex<Option<Database>>,
}

impl Metadata {
    /// Opens the file at `path`, made if it is missing.
    ///
    /// # Errors
    /// When the file cannot be opened, is held by another server, or is not of this format.
    pub fn open(path: &Path) -> Result<Self, MetadataError> {
        let path: PathBuf = path.to_owned();
        Self::open_with(Box::new(move || Builder::new().create(&path)))
    }

    /// Opens whatever `opener` gives: the seam through which tests bring a disk that fills up.
    ///
    /// # Errors
    /// As [`Metadata::open`].
    pub fn open_with(opener: Opener) -> Result<Self, MetadataError> {
        let metadata = Self { opener, database: Mutex::new(None) };
        metadata.write(|transaction| {
            let mut format = transaction.open_table(FORMAT)?;
            let found = format.get("version")?.map(|version| version.value());
            match found {
                None | Some(FORMAT_VERSION) => {}
                Some(1) => extensions::upgrade(transaction)?,
                Some(other) => return Err(MetadataError::UnknownFormat(other)),
            }
            format.insert("version", FORMAT_VERSION)?;
            drop(format);
            transaction.open_table(COUNTERS)?;
            tenants::create(transaction)?;
            tables::create(transaction)?;
            extensions::create(transaction)?;
            grants::create(transaction)?;
            limits::create(transaction)?;
            audit::create(transaction)
        })?;
        Ok(metadata)
    }

    /// Reserves [`CLIENT_IDS_RESERVED`] numbers of clients.
    ///
    /// # Errors
    /// When the reservation cannot be stored.
    pub fn reserve_client_ids(&self) -> Result<Range<u64>, MetadataError> {
        let first = self.write(|transaction| next(transaction, "client", CLIENT_IDS_RESERVED))?;
        Ok(first..first + CLIENT_IDS_RESERVED)
    }

    fn read<T>(
        &self,
        look: impl FnOnce(&ReadTransaction) -> Result<T, MetadataError>,
    ) -> Result<T, MetadataError> {
        let mut slot = self.slot();
        let result = self.database(&mut slot).and_then(|database| look(&database.begin_read()?));
        discard_if_broken(&mut slot, &result);
        result
    }

    fn write<T>(
        &self,
        change: impl FnOnce(&WriteTransaction) -> Result<T, MetadataError>,
    ) -> Result<T, MetadataError> {
        let mut slot = self.slot();
        let result = self.database(&mut slot).and_then(|database| {
            let transaction = database.begin_write()?;
            let value = change(&transaction)?;
            transaction.commit()?;
            Ok(value)
        });
        discard_if_broken(&mut slot, &result);
        result
    }

    fn slot(&self) -> MutexGuard<'_, Option<Database>> {
        self.database.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn database<'s>(&self, slot: &'s mut Option<Database>) -> Result<&'s Database, MetadataError> {
        if slot.is_none() {
            *slot = Some((self.opener)()?);
        }
        slot.as_ref().ok_or_else(|| MetadataError::Storage("the database is closed".to_owned()))
    }
}

impl fmt::Debug for Metadata {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Metadata").finish_non_exhaustive()
    }
}

/// Takes `count` numbers from a counter and gives the first; numbers begin at 1.
fn next(transaction: &WriteTransaction, counter: &str, count: u64) -> Result<u64, MetadataError> {
    let mut counters = transaction.open_table(COUNTERS)?;
    let first = counters.get(counter)?.map_or(1, |value| value.value());
    counters.insert(counter, first + count)?;
    Ok(first)
}

/// Takes one number that has to fit 32 bits.
fn next_u32(transaction: &WriteTransaction, counter: &str) -> Result<u32, MetadataError> {
    u32::try_from(next(transaction, counter, 1)?).map_err(|_| MetadataError::LimitExceeded)
}

fn discard_if_broken<T>(slot: &mut Option<Database>, result: &Result<T, MetadataError>) {
    if let Err(MetadataError::StorageFull | MetadataError::Storage(_)) = result {
        *slot = None;
    }
}

/// Whether an error of the operating system says that there is no room.
fn is_full(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG))
        || error.kind() == io::ErrorKind::StorageFull
}

#[cfg(test)]
mod tests;
