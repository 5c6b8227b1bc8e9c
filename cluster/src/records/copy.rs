//! A copy of shared records in a file of one server, for the case that their storage is lost.
//!
//! The file is a redb database. It has all records as of one commit, or all but those that its owner leaves out: first they are read
//! as a whole, then each commit is applied, in order. Another process can read the file once its owner has ended.

use std::path::Path;

use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};

use super::embedded::open_file;
use super::{Event, KeySpan, Record, RecordsError, Revision};

const RECORDS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("records");
/// `version` of the layout; `revision` of the last commit that it has, 0 for none; `made_ms`, the time of the last change.
const FORMAT: TableDefinition<'_, &str, u64> = TableDefinition::new("format");

/// The layout version of the file; others are refused.
const FORMAT_VERSION: u64 = 1;

/// The copy, as its owner keeps it.
#[derive(Debug)]
pub struct RecordsCopy {
    database: Database,
}

/// The contents of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopiedRecords {
    /// The commit as of which it is.
    pub revision: Revision,
    /// Time of its last change, in milliseconds since the Unix epoch.
    pub made_ms: u64,
    /// Keys and values, in the order of the keys.
    pub records: Vec<(String, Vec<u8>)>,
}

impl RecordsCopy {
    /// Opens the file at `path`, created if missing.
    ///
    /// # Errors
    /// When it cannot be opened, is held by another process, or has another layout.
    pub fn open(path: &Path) -> Result<Self, RecordsError> {
        let database = open_file(path)?;
        let transaction = database.begin_write()?;
        {
            let mut format = transaction.open_table(FORMAT)?;
            let found = format.get("version")?.map(|version| version.value());
            match found {
                None => drop(format.insert("version", FORMAT_VERSION)?),
                Some(FORMAT_VERSION) => {}
                Some(other) => return Err(RecordsError::UnknownFormat(other)),
            }
            transaction.open_table(RECORDS)?;
        }
        transaction.commit()?;
        Ok(Self { database })
    }

    /// Replaces everything by the records that `read` passes on, some at a time, and returns the commit as of which they are, which
    /// `read` returns. On disk at the return, or as before.
    ///
    /// # Errors
    /// That of `read`, or when they cannot be written.
    pub fn replace(
        &self,
        now_ms: u64,
        read: impl FnOnce(
            &mut dyn FnMut(Vec<Record>) -> Result<(), RecordsError>,
        ) -> Result<Revision, RecordsError>,
    ) -> Result<Revision, RecordsError> {
        let transaction = self.database.begin_write()?;
        transaction.delete_table(RECORDS)?;
        let revision;
        {
            let mut table = transaction.open_table(RECORDS)?;
            revision = read(&mut |some| {
                for record in some {
                    table.insert(record.key.as_str(), record.value.as_slice())?;
                }
                Ok(())
            })?;
            let mut format = transaction.open_table(FORMAT)?;
            format.insert("revision", revision.0)?;
            format.insert("made_ms", now_ms)?;
        }
        transaction.commit()?;
        Ok(revision)
    }

    /// Returns the keys and values of these spans; none if the copy was never complete.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn find(&self, spans: &[KeySpan]) -> Result<Vec<(String, Vec<u8>)>, RecordsError> {
        let records = self.database.begin_read()?.open_table(RECORDS)?;
        let mut found = Vec::new();
        for KeySpan { from, to } in spans {
            for entry in records.range(from.as_str()..to.as_str())? {
                let (key, value) = entry?;
                found.push((key.value().to_owned(), value.value().to_vec()));
            }
        }
        Ok(found)
    }

    /// Applies commits, in their order. On disk at the return, or as before.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn apply(&self, commits: &[Event], now_ms: u64) -> Result<(), RecordsError> {
        let transaction = self.database.begin_write()?;
        {
            let mut table = transaction.open_table(RECORDS)?;
            let mut format = transaction.open_table(FORMAT)?;
            for commit in commits {
                for (key, value) in &commit.changes {
                    match value {
                        Some(value) => drop(table.insert(key.as_str(), value.as_slice())?),
                        None => drop(table.remove(key.as_str())?),
                    }
                }
                format.insert("revision", commit.revision.0)?;
            }
            format.insert("made_ms", now_ms)?;
        }
        Ok(transaction.commit()?)
    }
}

impl CopiedRecords {
    /// Reads the file of a server that has ended.
    ///
    /// # Errors
    /// When it cannot be read, a server has it open, or it has never been complete.
    pub fn read(path: &Path) -> Result<Self, RecordsError> {
        let database = Database::open(path)?;
        let transaction = database.begin_read()?;
        let format = transaction.open_table(FORMAT)?;
        let number = |name: &str| -> Result<u64, RecordsError> {
            Ok(format.get(name)?.map_or(0, |number| number.value()))
        };
        match number("version")? {
            FORMAT_VERSION => {}
            other => return Err(RecordsError::UnknownFormat(other)),
        }
        let (revision, made_ms) = (Revision(number("revision")?), number("made_ms")?);
        if revision == Revision(0) {
            return Err(RecordsError::Storage("the copy was never complete".to_owned()));
        }
        let records = transaction.open_table(RECORDS)?;
        let pairs = records.iter()?.map(|entry| {
            let (key, value) = entry?;
            Ok((key.value().to_owned(), value.value().to_vec()))
        });
        Ok(Self { revision, made_ms, records: pairs.collect::<Result<_, RecordsError>>()? })
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    use super::{CopiedRecords, Event, KeySpan, Record, RecordsCopy, RecordsError, Revision};

    fn mode_of(path: &Path) -> u32 {
        fs::metadata(path).expect("the file").permissions().mode() & 0o777
    }

    fn record(key: &str, value: &[u8]) -> Record {
        Record { key: key.to_owned(), value: value.to_vec(), revision: Revision(1) }
    }

    #[test]
    fn a_copy_has_what_was_read_and_each_later_commit() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("metadata.copy");
        let copy = RecordsCopy::open(&path).expect("a fresh file");
        drop(copy);
        CopiedRecords::read(&path).expect_err("it was never complete");

        let copy = RecordsCopy::open(&path).expect("its own file");
        CopiedRecords::read(&path).expect_err("it is open");
        let replaced = copy.replace(70, |take| {
            take(vec![record("a", b"1")])?;
            take(vec![record("b", b"2")])?;
            Ok(Revision(7))
        });
        assert_eq!(replaced, Ok(Revision(7)));
        let broken = copy.replace(75, |take| {
            take(vec![record("a", b"9")])?;
            Err(RecordsError::Overtaken)
        });
        assert_eq!(broken, Err(RecordsError::Overtaken), "and the copy is as it was");
        let found = copy.find(&[KeySpan::one("a"), KeySpan::prefix("x")]);
        assert_eq!(found, Ok(vec![("a".to_owned(), b"1".to_vec())]));
        let change = |key: &str, value: Option<&[u8]>| (key.to_owned(), value.map(<[u8]>::to_vec));
        let commits = [
            Event { revision: Revision(8), changes: vec![change("a", None), change("c", Some(b"3"))] },
            Event { revision: Revision(9), changes: vec![change("c", Some(b"4"))] },
        ];
        copy.apply(&commits, 90).expect("there is room");
        assert_eq!(mode_of(&path), 0o600);
        drop(copy);
        let pairs = |pairs: &[(&str, &[u8])]| -> Vec<(String, Vec<u8>)> {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), value.to_vec())).collect()
        };
        let copied = CopiedRecords::read(&path).expect("it is complete");
        assert_eq!((copied.revision, copied.made_ms), (Revision(9), 90));
        assert_eq!(copied.records, pairs(&[("b", b"2"), ("c", b"4")]));

        fs::set_permissions(&path, Permissions::from_mode(0o644)).expect("its own file");
        let copy = RecordsCopy::open(&path).expect("its own file");
        assert_eq!(mode_of(&path), 0o600, "also of one that somebody has copied");
        let replaced = copy.replace(100, |take| take(vec![record("d", b"5")]).map(|()| Revision(3)));
        assert_eq!(replaced, Ok(Revision(3)));
        drop(copy);
        let copied = CopiedRecords::read(&path).expect("it is complete");
        assert_eq!((copied.revision, copied.records), (Revision(3), pairs(&[("d", b"5")])));
    }
}
