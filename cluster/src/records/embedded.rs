//! Records in one crash-safe file, held by one server.
//!
//! The file is a redb database (copy-on-write B-trees, a checksummed commit). Each commit is one transaction, on disk
//! when the call returns. A full disk is [`RecordsError::StorageFull`], leaves nothing half-made, and the next commit works once
//! there is room: the database is reopened, because redb refuses to continue with a handle that saw a failed write.
//!
//! After a write or a sync that failed for another reason nobody knows what the file says, and the kernel may have dropped what it
//! could not write: everything is refused from then on, until another process opens the file.
//!
//! Leases live in this process and end with it: their records are gone when the file is opened again. The next read or
//! commit deletes the records of an expired lease. There is no history, so a watch begins at the last commit or not at
//! all.

mod leases;

use std::collections::BTreeSet;
use std::fmt;
use std::fs::{self, File, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redb::{
    Builder, Database, DatabaseError, ReadableDatabase, ReadableTable, StorageError, Table, TableDefinition,
    TableHandle, WriteTransaction,
};

use self::leases::EmbeddedLeases;
use super::{
    Committed, Condition, Event, HeldLease, KeySpan, LeaseId, Query, Reading, Record, RecordChange, Records,
    RecordsError, Revision, Watch, WatchSource,
};
use crate::moment::Moment;

/// Revision and value.
const RECORDS: TableDefinition<'_, &str, (u64, &[u8])> = TableDefinition::new("records");
/// Keys under a lease.
const LEASED: TableDefinition<'_, &str, i64> = TableDefinition::new("leased");
/// `version` of the layout, `revision` of the last commit.
const FORMAT: TableDefinition<'_, &str, u64> = TableDefinition::new("format");

/// The layout version of the file. Earlier ones are upgraded at start; others are refused.
const FORMAT_VERSION: u64 = 3;

/// Opens the database: called at start, and again when there was no room for a write.
pub type Opener = Box<dyn Fn() -> Result<Database, DatabaseError> + Send + Sync>;

/// Returns the records of a file in this earlier layout. Remaining tables are deleted.
pub type Upgrade = fn(u64, &WriteTransaction) -> Result<Vec<(String, Vec<u8>)>, RecordsError>;

/// Records in a local file.
pub struct Embedded {
    opener: Opener,
    state: Mutex<EmbeddedState>,
    has_failed: AtomicBool,
}

#[derive(Default)]
struct EmbeddedState {
    database: Option<Database>,
    leases: EmbeddedLeases,
    watchers: Vec<(String, WatchSource)>,
}

/// Opens a database, or creates one: under another name first, since a server that is killed meanwhile leaves a file that is
/// none.
pub(super) fn open_file(path: &Path) -> Result<Database, DatabaseError> {
    if !path.exists() {
        let new = path.with_extension("new");
        if new.exists() {
            fs::remove_file(&new).map_err(StorageError::Io)?;
        }
        drop(Builder::new().create(&new)?);
        keep_private(&new)?;
        // Not in place of one that another server has made meanwhile. Some file systems have no second names.
        match fs::hard_link(&new, path) {
            Ok(()) => fs::remove_file(&new),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => fs::remove_file(&new),
            Err(_) => fs::rename(&new, path),
        }
        .map_err(StorageError::Io)?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(StorageError::Io)?;
    }
    keep_private(path)?;
    Builder::new().create(path)
}

/// Lets nobody but the owner read a file, which has hashes of secrets: also one that was copied here, or made by an older release.
fn keep_private(path: &Path) -> Result<(), DatabaseError> {
    let mode = fs::metadata(path).map_err(StorageError::Io)?.permissions().mode();
    if mode & 0o077 != 0 {
        fs::set_permissions(path, Permissions::from_mode(0o600)).map_err(StorageError::Io)?;
    }
    Ok(())
}

impl Embedded {
    /// Opens the file at `path`, created if missing.
    ///
    /// # Errors
    /// When the file cannot be opened, is held by another server, or has a layout that `upgrade` does not know.
    pub fn open(path: &Path, upgrade: Upgrade) -> Result<Self, RecordsError> {
        let path: PathBuf = path.to_owned();
        Self::open_with(Box::new(move || open_file(&path)), upgrade)
    }

    /// Opens what `opener` returns; tests use it to simulate a disk that fills up.
    ///
    /// # Errors
    /// As [`Embedded::open`].
    pub fn open_with(opener: Opener, upgrade: Upgrade) -> Result<Self, RecordsError> {
        let database = opener()?;
        let transaction = database.begin_write()?;
        prepare(&transaction, upgrade)?;
        transaction.commit()?;
        let state = EmbeddedState { database: Some(database), ..EmbeddedState::default() };
        Ok(Self { opener, state: Mutex::new(state), has_failed: AtomicBool::new(false) })
    }

    fn state(&self) -> MutexGuard<'_, EmbeddedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a function on the database, and closes the database if that breaks it.
    fn with<T>(
        &self,
        state: &mut EmbeddedState,
        run: impl FnOnce(&Database) -> Result<T, RecordsError>,
    ) -> Result<T, RecordsError> {
        if self.has_failed() {
            return Err(RecordsError::Storage(
                "its disk has failed: the server is to be started again".to_owned(),
            ));
        }
        if state.database.is_none() {
            state.database = Some((self.opener)()?);
        }
        let closed = || RecordsError::Storage("the database is closed".to_owned());
        let result = state.database.as_ref().ok_or_else(closed).and_then(run);
        if let Err(RecordsError::StorageFull | RecordsError::Storage(_) | RecordsError::Uncertain(_)) = result
        {
            state.database = None;
        }
        result
    }

    fn commit_under(
        &self,
        state: &mut EmbeddedState,
        conditions: &[Condition],
        changes: &[RecordChange],
    ) -> Result<Committed, RecordsError> {
        let applied = self.with(state, |database| {
            apply(database, conditions, changes).inspect_err(|error| {
                let is_lasting = matches!(error, RecordsError::Storage(_) | RecordsError::Uncertain(_));
                self.has_failed.fetch_or(is_lasting, Ordering::Release);
            })
        });
        let Some(event) = applied? else {
            return Ok(Committed::Conflict);
        };
        state.leases.note(changes);
        let revision = event.revision;
        state.watchers.retain(|(prefix, source)| show(&event, prefix, source));
        Ok(Committed::At(revision))
    }

    /// Deletes the records of expired leases.
    fn expire(&self, state: &mut EmbeddedState) -> Result<(), RecordsError> {
        while let Some(lease) = state.leases.expired(Moment::now()) {
            self.end(state, lease)?;
        }
        Ok(())
    }

    /// Deletes the records of a lease, then forgets it.
    fn end(&self, state: &mut EmbeddedState, lease: LeaseId) -> Result<(), RecordsError> {
        let deleted: Vec<RecordChange> =
            state.leases.keys(lease).into_iter().map(RecordChange::Delete).collect();
        if !deleted.is_empty() {
            self.commit_under(state, &[], &deleted)?;
        }
        state.leases.forget(lease);
        Ok(())
    }
}

impl Records for Embedded {
    fn is_shared(&self) -> bool {
        false
    }

    fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Acquire)
    }

    fn read(&self, queries: &[Query], at: Option<Revision>) -> Result<Reading, RecordsError> {
        let mut state = self.state();
        self.expire(&mut state)?;
        self.with(&mut state, |database| {
            let transaction = database.begin_read()?;
            let revision = revision_of(&transaction.open_table(FORMAT)?)?;
            if at.is_some_and(|at| at != revision) {
                return Err(RecordsError::Overtaken);
            }
            let records = transaction.open_table(RECORDS)?;
            let found = queries.iter().map(|query| find(&records, query)).collect::<Result<_, _>>()?;
            Ok(Reading { revision, found })
        })
    }

    fn commit(&self, conditions: &[Condition], changes: &[RecordChange]) -> Result<Committed, RecordsError> {
        let mut state = self.state();
        self.expire(&mut state)?;
        let leases = changes.iter().filter_map(|change| match change {
            RecordChange::Put { lease, .. } => *lease,
            RecordChange::Delete(_) | RecordChange::DeletePrefix(_) => None,
        });
        if !state.leases.are_held(leases) {
            return Err(RecordsError::LeaseGone);
        }
        self.commit_under(&mut state, conditions, changes)
    }

    fn watch(&self, prefix: &str, after: Revision) -> Result<Watch, RecordsError> {
        let mut state = self.state();
        let last = self.with(&mut state, |database| {
            let transaction = database.begin_read()?;
            revision_of(&transaction.open_table(FORMAT)?)
        })?;
        let (source, watch) = Watch::pair();
        if after < last {
            source.lose();
        } else {
            state.watchers.push((prefix.to_owned(), source));
        }
        Ok(watch)
    }

    fn lease_grant(&self, ttl: Duration) -> Result<HeldLease, RecordsError> {
        Ok(self.state().leases.grant(ttl, Moment::now()))
    }

    fn lease_keep(&self, lease: LeaseId) -> Result<HeldLease, RecordsError> {
        let mut state = self.state();
        self.expire(&mut state)?;
        state.leases.keep(lease, Moment::now()).ok_or(RecordsError::LeaseGone)
    }

    fn lease_revoke(&self, lease: LeaseId) -> Result<(), RecordsError> {
        let mut state = self.state();
        self.end(&mut state, lease)
    }
}

impl fmt::Debug for Embedded {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Embedded").finish_non_exhaustive()
    }
}

/// Upgrades an opened file to this layout.
fn prepare(transaction: &WriteTransaction, upgrade: Upgrade) -> Result<(), RecordsError> {
    let found = transaction.open_table(FORMAT)?.get("version")?.map(|version| version.value());
    let upgraded = match found {
        None | Some(FORMAT_VERSION) => Vec::new(),
        Some(earlier) => {
            let upgraded = upgrade(earlier, transaction)?;
            for table in transaction.list_tables()?.filter(|table| table.name() != FORMAT.name()) {
                transaction.delete_table(table)?;
            }
            upgraded
        }
    };
    let mut format = transaction.open_table(FORMAT)?;
    let (mut records, mut leased) = (transaction.open_table(RECORDS)?, transaction.open_table(LEASED)?);
    if found != Some(FORMAT_VERSION) {
        format.insert("version", FORMAT_VERSION)?;
        format.insert("revision", 1)?;
    }
    for (key, value) in &upgraded {
        records.insert(key.as_str(), (1, value.as_slice()))?;
    }
    while let Some((key, _)) = leased.pop_first()? {
        records.remove(key.value())?;
    }
    Ok(())
}

fn revision_of(format: &impl ReadableTable<&'static str, u64>) -> Result<Revision, RecordsError> {
    Ok(Revision(format.get("revision")?.map_or(0, |revision| revision.value())))
}

fn find(
    records: &impl ReadableTable<&'static str, (u64, &'static [u8])>,
    query: &Query,
) -> Result<Vec<Record>, RecordsError> {
    let mut range = records.range(query.span.from.as_str()..query.span.to.as_str())?;
    let mut found = Vec::new();
    while found.len() < query.limit {
        let next = if query.from_last { range.next_back() } else { range.next() };
        let Some(entry) = next else { break };
        let (key, row) = entry?;
        let (revision, value) = row.value();
        let record =
            Record { key: key.value().to_owned(), value: value.to_vec(), revision: Revision(revision) };
        found.push(record);
    }
    Ok(found)
}

/// Commits, and returns the changes; `None` if a condition does not hold.
fn apply(
    database: &Database,
    conditions: &[Condition],
    changes: &[RecordChange],
) -> Result<Option<Event>, RecordsError> {
    let transaction = database.begin_write()?;
    let event = {
        let mut format = transaction.open_table(FORMAT)?;
        let mut records = transaction.open_table(RECORDS)?;
        let mut leased = transaction.open_table(LEASED)?;
        for condition in conditions {
            if !holds(&records, condition)? {
                return Ok(None);
            }
        }
        let revision = Revision(revision_of(&format)?.0 + 1);
        format.insert("revision", revision.0)?;
        let mut changed = Vec::with_capacity(changes.len());
        for change in changes {
            make(&mut records, &mut leased, change, revision, &mut changed)?;
        }
        Event { revision, changes: changed }
    };
    transaction.commit().map_err(|error| match RecordsError::from(redb::Error::from(error)) {
        RecordsError::StorageFull => RecordsError::StorageFull,
        error => RecordsError::Uncertain(error.to_string()),
    })?;
    Ok(Some(event))
}

fn holds(
    records: &impl ReadableTable<&'static str, (u64, &'static [u8])>,
    condition: &Condition,
) -> Result<bool, RecordsError> {
    Ok(match condition {
        Condition::Absent(key) => records.get(key.as_str())?.is_none(),
        Condition::Is(key, revision) => {
            records.get(key.as_str())?.is_some_and(|row| row.value().0 == revision.0)
        }
        Condition::NoneNewer(KeySpan { from, to }, revision) => {
            for entry in records.range(from.as_str()..to.as_str())? {
                if entry?.1.value().0 > revision.0 {
                    return Ok(false);
                }
            }
            true
        }
    })
}

fn make(
    records: &mut Table<'_, &'static str, (u64, &'static [u8])>,
    leased: &mut Table<'_, &'static str, i64>,
    change: &RecordChange,
    revision: Revision,
    changed: &mut Vec<(String, Option<Vec<u8>>)>,
) -> Result<(), RecordsError> {
    let deleted: BTreeSet<String> = match change {
        RecordChange::Put { key, value, lease } => {
            records.insert(key.as_str(), (revision.0, value.as_slice()))?;
            match lease {
                Some(lease) => leased.insert(key.as_str(), lease.0)?,
                None => leased.remove(key.as_str())?,
            };
            changed.push((key.clone(), Some(value.clone())));
            return Ok(());
        }
        RecordChange::Delete(key) => records.get(key.as_str())?.map(|_| key.clone()).into_iter().collect(),
        RecordChange::DeletePrefix(prefix) => {
            let KeySpan { from, to } = KeySpan::prefix(prefix);
            let keys = records.range(from.as_str()..to.as_str())?;
            keys.map(|entry| Ok(entry?.0.value().to_owned())).collect::<Result<_, RecordsError>>()?
        }
    };
    for key in deleted {
        records.remove(key.as_str())?;
        leased.remove(key.as_str())?;
        changed.push((key, None));
    }
    Ok(())
}

/// Sends the event to a watch that it concerns. Returns false when the watch ends.
fn show(event: &Event, prefix: &str, source: &WatchSource) -> bool {
    let mine = event.changes.iter().filter(|(key, _)| key.starts_with(prefix));
    let changes: Vec<_> = mine.cloned().collect();
    changes.is_empty() || source.show(Event { revision: event.revision, changes })
}
