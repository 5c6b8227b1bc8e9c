//! Grants: the rights of a tenant on another tenant's table or extension.

use crate::body::{Body, BodyReader, BodyWriter};
use crate::status::Status;

/// A right that is granted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Right {
    /// Reading a table.
    Read,
    /// Reading and writing a table.
    Write,
    /// Invoking the functions of an extension, on tables of the caller.
    Invoke,
}

impl Right {
    /// Returns the kind of object that this right applies to.
    pub const fn subject(self) -> Subject {
        match self {
            Right::Read | Right::Write => Subject::Table,
            Right::Invoke => Subject::Extension,
        }
    }
}

impl Body for Right {
    fn write(&self, writer: &mut BodyWriter) {
        writer.u8(match self {
            Right::Read => 0,
            Right::Write => 1,
            Right::Invoke => 2,
        });
    }

    fn read(reader: &mut BodyReader<'_>) -> Result<Right, Status> {
        match reader.u8()? {
            0 => Ok(Right::Read),
            1 => Ok(Right::Write),
            2 => Ok(Right::Invoke),
            _ => Err(Status::Malformed),
        }
    }
}

/// The kind of object that is granted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Subject {
    /// A table.
    Table,
    /// An extension in all its versions.
    Extension,
}

impl Body for Subject {
    fn write(&self, writer: &mut BodyWriter) {
        writer.u8(match self {
            Subject::Table => 0,
            Subject::Extension => 1,
        });
    }

    fn read(reader: &mut BodyReader<'_>) -> Result<Subject, Status> {
        match reader.u8()? {
            0 => Ok(Subject::Table),
            1 => Ok(Subject::Extension),
            _ => Err(Status::Malformed),
        }
    }
}

/// One grant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GrantEntry {
    /// The owning tenant.
    pub owner: String,
    /// Its name; the other tenant calls it `owner/name`.
    pub name: String,
    /// The tenant that may use it.
    pub to: String,
    /// The granted right.
    pub right: Right,
    /// The time of the grant, in milliseconds since the Unix epoch.
    pub granted_ms: u64,
}

impl Body for GrantEntry {
    fn write(&self, writer: &mut BodyWriter) {
        writer.text(&self.owner);
        writer.text(&self.name);
        writer.text(&self.to);
        self.right.write(writer);
        writer.u64(self.granted_ms);
    }

    fn read(reader: &mut BodyReader<'_>) -> Result<GrantEntry, Status> {
        Ok(GrantEntry {
            owner: reader.text()?.to_owned(),
            name: reader.text()?.to_owned(),
            to: reader.text()?.to_owned(),
            right: Right::read(reader)?,
            granted_ms: reader.u64()?,
        })
    }
}
