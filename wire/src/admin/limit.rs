//! The limits of a tenant, read and changed.
//!
//! A limit is named by text, so that both sides need not know the same ones; the server defines them.

use crate::body::{Body, BodyReader, BodyWriter};
use crate::limits::LIMIT_CHANGES_MAX;
use crate::status::Status;

/// One limit of a tenant. The maximum number, as a value or as `most`, means no limit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TenantLimitEntry {
    /// Its name, with the unit at its end.
    pub name: String,
    /// The current value.
    pub value: u64,
    /// The value for a tenant without an explicit setting.
    pub default: u64,
    /// The minimum setting.
    pub least: u64,
    /// The maximum setting.
    pub most: u64,
}

impl Body for TenantLimitEntry {
    fn write(&self, writer: &mut BodyWriter) {
        writer.text(&self.name);
        writer.u64(self.value);
        writer.u64(self.default);
        writer.u64(self.least);
        writer.u64(self.most);
    }

    fn read(reader: &mut BodyReader<'_>) -> Result<TenantLimitEntry, Status> {
        Ok(TenantLimitEntry {
            name: reader.text()?.to_owned(),
            value: reader.u64()?,
            default: reader.u64()?,
            least: reader.u64()?,
            most: reader.u64()?,
        })
    }
}

/// A change of one limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LimitChange<'a> {
    /// Its name.
    pub limit: &'a str,
    /// The new value; `None` for the default.
    pub value: Option<u64>,
}

pub(super) fn write_changes(writer: &mut BodyWriter, changes: &[LimitChange<'_>]) -> Result<(), Status> {
    if changes.len() > LIMIT_CHANGES_MAX {
        return Err(Status::LimitExceeded);
    }
    writer.u16(changes.len() as u16);
    for change in changes {
        writer.text(change.limit);
        writer.flag(change.value.is_some());
        writer.u64(change.value.unwrap_or_default());
    }
    Ok(())
}

pub(super) fn read_changes<'a>(reader: &mut BodyReader<'a>) -> Result<Vec<LimitChange<'a>>, Status> {
    let count = reader.u16()? as usize;
    if count > LIMIT_CHANGES_MAX {
        return Err(Status::LimitExceeded);
    }
    let mut changes: Vec<LimitChange<'a>> = Vec::with_capacity(count);
    for _ in 0..count {
        let limit = reader.name()?;
        if changes.iter().any(|change| change.limit == limit) {
            return Err(Status::NameInvalid);
        }
        let (set, value) = (reader.flag()?, reader.u64()?);
        if !set && value != 0 {
            return Err(Status::Malformed);
        }
        changes.push(LimitChange { limit, value: set.then_some(value) });
    }
    Ok(changes)
}
