//! Replies about tenants, for the administrator.
//!
//! A secret is shown once, at its creation; the server keeps a hash.

use crate::body::{Body, BodyReader, BodyWriter};
use crate::status::Status;

/// The reply to the creation of a tenant, and to a rotation of its secret.
#[derive(Clone, PartialEq, Eq)]
pub struct TenantCreated {
    /// The secret that opens its sessions: printable, 256 bits of randomness.
    pub secret: String,
}

impl Body for TenantCreated {
    fn write(&self, writer: &mut BodyWriter) {
        writer.text(&self.secret);
    }

    fn read(reader: &mut BodyReader<'_>) -> Result<TenantCreated, Status> {
        Ok(TenantCreated { secret: reader.text()?.to_owned() })
    }
}

/// The secret stays out of logs.
impl core::fmt::Debug for TenantCreated {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.debug_struct("TenantCreated").finish_non_exhaustive()
    }
}

/// One tenant of the list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TenantEntry {
    /// Its name.
    pub name: String,
    /// Number of its tables.
    pub tables: u32,
    /// Number of its extensions.
    pub extensions: u32,
    /// Number of its open sessions.
    pub sessions: u32,
    /// Live objects in its tables.
    pub objects: u64,
    /// Bytes of memory of these objects, headers included.
    pub bytes: u64,
}

impl Body for TenantEntry {
    fn write(&self, writer: &mut BodyWriter) {
        writer.text(&self.name);
        writer.u32(self.tables);
        writer.u32(self.extensions);
        writer.u32(self.sessions);
        writer.u64(self.objects);
        writer.u64(self.bytes);
    }

    fn read(reader: &mut BodyReader<'_>) -> Result<TenantEntry, Status> {
        Ok(TenantEntry {
            name: reader.text()?.to_owned(),
            tables: reader.u32()?,
            extensions: reader.u32()?,
            sessions: reader.u32()?,
            objects: reader.u64()?,
            bytes: reader.u64()?,
        })
    }
}
