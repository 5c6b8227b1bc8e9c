//! Counts of the objects in the files of an archive, to be compared with its manifest.

use super::damaged;
use super::file::Objects;
use super::manifest::{Archive, File, Table};
use crate::failure::Failure;
use std::collections::BTreeMap;

/// Objects that were read, by the number of their table.
#[derive(Debug, Default)]
pub struct Counts(BTreeMap<u32, (u64, u64)>);

impl Counts {
    /// Counts an object.
    pub fn add(&mut self, table: u32, bytes: usize) {
        let (objects, counted) = self.0.entry(table).or_default();
        (*objects, *counted) = (*objects + 1, *counted + bytes as u64);
    }

    /// Counts the objects of a file.
    pub fn add_file(&mut self, archive: &Archive, file: &File, content: &[u8]) -> Result<(), Failure> {
        for object in Objects::of(content)? {
            let (table, entry) = object?;
            if !archive.tables.iter().any(|known| known.id == table) {
                return Err(damaged(format!("file {} has an object of no table", file.checksum)));
            }
            self.add(table, entry.len());
        }
        Ok(())
    }

    /// Returns objects and bytes of a table.
    pub fn of(&self, table: u32) -> (u64, u64) {
        self.0.get(&table).copied().unwrap_or_default()
    }

    /// Compares with the manifest.
    pub fn check(&self, archive: &Archive) -> Result<(), Failure> {
        match archive.tables.iter().find(|table| self.of(table.id) != (table.objects, table.bytes)) {
            None => Ok(()),
            Some(Table { id, name, objects, .. }) => {
                let found = self.of(*id).0;
                Err(damaged(format!(
                    "the files have {found} objects of table {name}, the manifest {objects}"
                )))
            }
        }
    }
}
