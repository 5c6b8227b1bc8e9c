//! Replies about the server, its sessions, and the other servers of its cluster.
//!
//! The server names the counters, so that a client can print unknown ones. A token never leaves its session: sessions
//! are listed by their client's id.

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
    /// The address from which it was opened.
    pub peer: String,
    /// The time of its opening, in milliseconds since the Unix epoch.
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

/// A server of a cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServerEntry {
    /// Its number in the cluster.
    pub id: u32,
    /// Whether it is the server that replied.
    pub is_asked: bool,
    /// Address and port of its streams.
    pub tcp: String,
    /// The UDP port of each core.
    pub frame_ports: Vec<u16>,
    /// Its view.
    pub view: u64,
    /// The time of its start, in milliseconds since the Unix epoch.
    pub started_ms: u64,
    /// Its version.
    pub version: String,
}

impl Body for ServerEntry {
    fn write(&self, writer: &mut BodyWriter) {
        writer.u32(self.id);
        writer.u8(u8::from(self.is_asked));
        writer.text(&self.tcp);
        // A server has far fewer cores.
        writer.u16(self.frame_ports.len() as u16);
        for port in &self.frame_ports {
            writer.u16(*port);
        }
        writer.u64(self.view);
        writer.u64(self.started_ms);
        writer.text(&self.version);
    }

    fn read(reader: &mut BodyReader<'_>) -> Result<ServerEntry, Status> {
        let id = reader.u32()?;
        let is_asked = match reader.u8()? {
            0 => false,
            1 => true,
            _ => return Err(Status::Malformed),
        };
        let tcp = reader.text()?.to_owned();
        let cores = reader.u16()?;
        let frame_ports = (0..cores).map(|_| reader.u16()).collect::<Result<_, _>>()?;
        let (view, started_ms, version) = (reader.u64()?, reader.u64()?, reader.text()?.to_owned());
        Ok(ServerEntry { id, is_asked, tcp, frame_ports, view, started_ms, version })
    }
}
