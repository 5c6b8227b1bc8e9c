//! Replies about the tables of a tenant.
//!
//! Data requests name a table by its id, which is never reused after the table is dropped.

use crate::admin::tablet::MigrationMode;
use crate::body::{Body, BodyReader, BodyWriter};
use crate::status::Status;

/// The reply to the creation or opening of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableId {
    /// The id that data requests use.
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

/// The options of a new table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TableOptions {
    /// Whether its keys can be scanned in order.
    pub ordered: bool,
    /// Byte budget of its objects: the table evicts the least used ones to stay within it (S3-FIFO). `None`: no
    /// eviction.
    pub cache_bytes: Option<u64>,
    /// The default migration mode of its tablets: rocksteady or cooperative.
    pub migration: MigrationMode,
}

impl TableOptions {
    pub(crate) fn write(self, writer: &mut BodyWriter) {
        writer.flag(self.ordered);
        write_budget(writer, self.cache_bytes);
        self.migration.write(writer);
    }

    pub(crate) fn read(reader: &mut BodyReader<'_>) -> Result<TableOptions, Status> {
        let (ordered, cache_bytes) = (reader.flag()?, read_budget(reader)?);
        Ok(TableOptions { ordered, cache_bytes, migration: MigrationMode::read(reader)? })
    }
}

fn write_budget(writer: &mut BodyWriter, cache_bytes: Option<u64>) {
    writer.flag(cache_bytes.is_some());
    writer.u64(cache_bytes.unwrap_or_default());
}

fn read_budget(reader: &mut BodyReader<'_>) -> Result<Option<u64>, Status> {
    match (reader.flag()?, reader.u64()?) {
        (true, bytes) => Ok(Some(bytes)),
        (false, 0) => Ok(None),
        (false, _) => Err(Status::Malformed),
    }
}

/// One table of the list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TableEntry {
    /// The id that data requests use.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// Whether its keys can be scanned in order.
    pub ordered: bool,
    /// Live objects.
    pub objects: u64,
    /// Bytes of memory of these objects, headers included.
    pub bytes: u64,
    /// Bytes of memory of the index, and of the queues of a table that evicts.
    pub index_bytes: u64,
    /// Byte budget of its objects, if it evicts.
    pub cache_bytes: Option<u64>,
    /// Objects that it has evicted since the server started.
    pub evicted: u64,
    /// The time of its latest loss of objects by the end of a server, in milliseconds since the Unix epoch; `None`
    /// without a loss.
    pub emptied_ms: Option<u64>,
}

impl Body for TableEntry {
    fn write(&self, writer: &mut BodyWriter) {
        writer.u32(self.id);
        writer.text(&self.name);
        writer.flag(self.ordered);
        writer.u64(self.objects);
        writer.u64(self.bytes);
        writer.u64(self.index_bytes);
        write_budget(writer, self.cache_bytes);
        writer.u64(self.evicted);
        writer.u64(self.emptied_ms.unwrap_or_default());
    }

    fn read(reader: &mut BodyReader<'_>) -> Result<TableEntry, Status> {
        Ok(TableEntry {
            id: reader.u32()?,
            name: reader.text()?.to_owned(),
            ordered: reader.flag()?,
            objects: reader.u64()?,
            bytes: reader.u64()?,
            index_bytes: reader.u64()?,
            cache_bytes: read_budget(reader)?,
            evicted: reader.u64()?,
            emptied_ms: Some(reader.u64()?).filter(|at_ms| *at_ms != 0),
        })
    }
}

/// The statistics of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableStatistics {
    /// The id that data requests use.
    pub id: u32,
    /// Live objects.
    pub objects: u64,
    /// Bytes of memory of these objects, headers included.
    pub bytes: u64,
    /// Bytes of memory of the index, and of the queues of a table that evicts.
    pub index_bytes: u64,
    /// Byte budget of its objects, if it evicts.
    pub cache_bytes: Option<u64>,
    /// Objects that it has evicted since the server started.
    pub evicted: u64,
    /// The time of its latest loss of objects by the end of a server, in milliseconds since the Unix epoch; `None`
    /// without a loss.
    pub emptied_ms: Option<u64>,
}

impl Body for TableStatistics {
    fn write(&self, writer: &mut BodyWriter) {
        writer.u32(self.id);
        writer.u64(self.objects);
        writer.u64(self.bytes);
        writer.u64(self.index_bytes);
        write_budget(writer, self.cache_bytes);
        writer.u64(self.evicted);
        writer.u64(self.emptied_ms.unwrap_or_default());
    }

    fn read(reader: &mut BodyReader<'_>) -> Result<TableStatistics, Status> {
        Ok(TableStatistics {
            id: reader.u32()?,
            objects: reader.u64()?,
            bytes: reader.u64()?,
            index_bytes: reader.u64()?,
            cache_bytes: read_budget(reader)?,
            evicted: reader.u64()?,
            emptied_ms: Some(reader.u64()?).filter(|at_ms| *at_ms != 0),
        })
    }
}
