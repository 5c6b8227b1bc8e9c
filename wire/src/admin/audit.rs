//! The audit log: each administrative action with its actor, time and outcome. It contains no secret.

use crate::body::{Body, BodyReader, BodyWriter};
use crate::status::Status;

/// The actor of an administrative action.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Actor {
    /// The server itself: it rolls back a failing canary.
    Server,
    /// The administrator.
    Administrator,
    /// A tenant, over one of its sessions.
    Tenant {
        /// Its name.
        name: String,
        /// The id of the session's client.
        client_id: u64,
        /// The address from which the session was opened.
        peer: String,
    },
}

impl Body for Actor {
    fn write(&self, writer: &mut BodyWriter) {
        match self {
            Actor::Server => writer.u8(0),
            Actor::Administrator => writer.u8(1),
            Actor::Tenant { name, client_id, peer } => {
                writer.u8(2);
                writer.text(name);
                writer.u64(*client_id);
                writer.text(peer);
            }
        }
    }

    fn read(reader: &mut BodyReader<'_>) -> Result<Actor, Status> {
        match reader.u8()? {
            0 => Ok(Actor::Server),
            1 => Ok(Actor::Administrator),
            2 => Ok(Actor::Tenant {
                name: reader.text()?.to_owned(),
                client_id: reader.u64()?,
                peer: reader.text()?.to_owned(),
            }),
            _ => Err(Status::Malformed),
        }
    }
}

/// One administrative action.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AuditEntry {
    /// Its number; later acts have higher ones.
    pub sequence: u64,
    /// The time of its end, in milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// The actor.
    pub actor: Actor,
    /// The action as text: the request, and the names in it.
    pub act: String,
    /// The outcome, a number of [`Status`].
    pub outcome: u8,
}

impl Body for AuditEntry {
    fn write(&self, writer: &mut BodyWriter) {
        writer.u64(self.sequence);
        writer.u64(self.at_ms);
        self.actor.write(writer);
        writer.text(&self.act);
        writer.u8(self.outcome);
    }

    fn read(reader: &mut BodyReader<'_>) -> Result<AuditEntry, Status> {
        Ok(AuditEntry {
            sequence: reader.u64()?,
            at_ms: reader.u64()?,
            actor: Actor::read(reader)?,
            act: reader.text()?.to_owned(),
            outcome: reader.u8()?,
        })
    }
}
