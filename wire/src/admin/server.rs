//! Answers about the server and its sessions.
//!
//! Counters are named by the server, so that a client prints what it does not know. A token never leaves the
//! session that it belongs to: sessions are listed by their client's id.

use crate::body::{Body, BodyReader, BodyWriter};
use crate::status::Status;

/// One counter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Statistic {
    /// Its name, unit last.
    pub name: String,
    /// Its value.
    pub value: u64,
}

impl Body for Statistic {
    fn write(&self, writer: &mut BodyWriter) {
        writer.text(&self.name);
        writer.u64(self.value);
    }

    fn read(reader: &mut BodyReader<'_>) -> Result<Statistic, Status> {
        Ok(Statistic { name: reader.text()?.to_owned(), value: reader.u64()? })
    }
}

/// One open session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SessionEntry {
    /// Its client's id, by which it is revoked.
    pub client_id: u64,
    /// The tenant's name.
    pub tenant: String,
    /// Where it was opened from.
    pub peer: String,
    /// When it was opened, in milliseconds since the Unix epoch.
    pub opened_ms: u64,
    /// The worker that its client sends to.
    pub home_core: u16,
}

impl Body for SessionEntry {
    fn write(&self, writer: &mut BodyWriter) {
        writer.u64(self.client_id);
        writer.text(&self.tenant);
        writer.text(&self.peer);
        writer.u64(self.opened_ms);
        writer.u16(self.home_core);
    }

    fn read(reader: &mut BodyReader<'_>) -> Result<SessionEntry, Status> {
        Ok(SessionEntry {
            client_id: reader.u64()?,
            tenant: reader.text()?.to_owned(),
            peer: reader.text()?.to_owned(),
            opened_ms: reader.u64()?,
            home_core: reader.u16()?,
        })
    }
}
