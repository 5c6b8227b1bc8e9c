//! Answers about the tables of a tenant.
//!
//! Data requests name a table by its id, which is never used again after the table is dropped.

use crate::body::{Body, BodyReader, BodyWriter};
use crate::status::Status;

/// The answer to the creation or opening of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableId {
    /// What data requests name it by.
    pub id: u32,
}

impl Body for TableId {
    fn write(&self, writer: &mut BodyWriter) {
        writer.u32(self.id);
    }

    fn read(reader: &mut BodyReader<'_>) -> Result<TableId, Status> {
        Ok(TableId { id: reader.u32()? })
    }
}

/// One table of the list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TableEntry {
    /// What data requests name it by.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// Whether its keys can be scanned in their order.
    pub ordered: bool,
    /// Live objects.
    pub objects: u64,
    /// Bytes of memory of these objects, headers included.
    pub bytes: u64,
    /// Bytes of memory of the index.
    pub index_bytes: u64,
}

impl Body for TableEntry {
    fn write(&self, writer: &mut BodyWriter) {
        writer.u32(self.id);
        writer.text(&self.name);
        writer.flag(self.ordered);
        writer.u64(self.objects);
        writer.u64(self.bytes);
        writer.u64(self.index_bytes);
    }

    fn read(reader: &mut BodyReader<'_>) -> Result<TableEntry, Status> {
        Ok(TableEntry {
            id: reader.u32()?,
            name: reader.text()?.to_owned(),
            ordered: reader.flag()?,
            objects: reader.u64()?,
            bytes: reader.u64()?,
            index_bytes: reader.u64()?,
        })
    }
}

/// What a table holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableStatistics {
    /// What data requests name it by.
    pub id: u32,
    /// Live objects.
    pub objects: u64,
    /// Bytes of memory of these objects, headers included.
    pub bytes: u64,
    /// Bytes of memory of the index.
    pub index_bytes: u64,
}

impl Body for TableStatistics {
    fn write(&self, writer: &mut BodyWriter) {
        writer.u32(self.id);
        writer.u64(self.objects);
        writer.u64(self.bytes);
        writer.u64(self.index_bytes);
    }

    fn read(reader: &mut BodyReader<'_>) -> Result<TableStatistics, Status> {
        Ok(TableStatistics {
            id: reader.u32()?,
            objects: reader.u64()?,
            bytes: reader.u64()?,
            index_bytes: reader.u64()?,
        })
    }
}
