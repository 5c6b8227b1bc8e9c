//! Opening a stream: identification of the client, and the session's rights and limits.
//!
//! The first record of every stream is an [`OpenRequest`] that starts with the magic and the versions that the client
//! supports. The reply is [`Opened`] under `Ok` (an empty body for the administrator), or a refusal after which the
//! server closes the stream; `UnsupportedVersion` carries the server's [`VersionRange`]. A token is unguessable and
//! opens only its own session.
//!
//! A client whose session is lost may resume it: [`OpenRequest::Resume`] asks for a session under the same client id, in
//! which the requests that had no answer keep their sequences.

use crate::body::{Body, BodyReader, BodyWriter};
use crate::limits::{
    MACHINE_BYTES, MAGIC, NONCE_BYTES, OPENING_VERSION, PROOF_BYTES, PROTOCOL_VERSION, SECRET_BYTES_MAX,
};
use crate::opcode;
use crate::status::Status;

/// The version from which on [`Opened`] has a proof.
const PROOF_SINCE: u8 = 2;

/// The protocol versions that one side supports, both ends included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VersionRange {
    /// The oldest.
    pub min: u8,
    /// The newest.
    pub max: u8,
}

impl VersionRange {
    /// The versions that this crate supports.
    pub const OURS: VersionRange = VersionRange { min: PROTOCOL_VERSION, max: OPENING_VERSION };

    /// Returns the newest version that both support.
    ///
    /// # Errors
    /// [`Status::UnsupportedVersion`] if there is none.
    pub fn agree(self, other: VersionRange) -> Result<u8, Status> {
        let (min, max) = (self.min.max(other.min), self.max.min(other.max));
        if min <= max { Ok(max) } else { Err(Status::UnsupportedVersion) }
    }
}

impl Body for VersionRange {
    fn write(&self, writer: &mut BodyWriter) {
        writer.u8(self.min);
        writer.u8(self.max);
    }

    fn read(reader: &mut BodyReader<'_>) -> Result<VersionRange, Status> {
        Ok(VersionRange { min: reader.u8()?, max: reader.u8()? })
    }
}

/// The first record of a stream.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum OpenRequest<'a> {
    /// Opens a session.
    Session {
        /// The tenant's name.
        tenant: &'a str,
        /// The tenant's secret, as printed when the tenant was created.
        secret: &'a str,
    },
    /// Adds this stream to an open session.
    Attach {
        /// The session's token.
        token: u64,
    },
    /// Opens a stream for the administration of tenants.
    Admin {
        /// The administrator's secret.
        secret: &'a str,
    },
    /// Requests a challenge: another server of the cluster, which then proves that it has the cluster's secret.
    Peer {
        /// Its number.
        server: u32,
        /// Bytes that it has never sent before.
        nonce: [u8; NONCE_BYTES],
    },
    /// Opens the session of a client again, or one in its place after a restart of the server. Its requests without an
    /// answer keep their sequences, and each gets the answer of its execution, or executes.
    Resume {
        /// The tenant's name.
        tenant: &'a str,
        /// The tenant's secret.
        secret: &'a str,
        /// The client's id, of [`Opened::client_id`].
        client_id: u64,
        /// The lowest sequence without an answer.
        first_unacknowledged: u64,
        /// The proof of [`Opened::proof`].
        proof: [u8; PROOF_BYTES],
    },
    /// Asks for the [`ServerState`]; the server then closes the stream.
    State,
    /// Asks for the replies that the log of another server has for its client, a list of [`LoggedReply`], if this one has
    /// recovered that log; the server then closes the stream. What is not among them was not executed.
    Replies {
        /// The tenant's name.
        tenant: &'a str,
        /// The tenant's secret.
        secret: &'a str,
        /// The client's id at the other server.
        client_id: u64,
        /// The lowest sequence without an answer.
        first_unacknowledged: u64,
        /// The proof that the other server gave.
        proof: [u8; PROOF_BYTES],
    },
}

impl<'a> OpenRequest<'a> {
    /// Returns the request's number, one of [`crate::opcode`].
    pub const fn opcode(&self) -> u8 {
        match self {
            OpenRequest::Session { .. } => opcode::OPEN_SESSION,
            OpenRequest::Attach { .. } => opcode::ATTACH,
            OpenRequest::Admin { .. } => opcode::OPEN_ADMIN,
            OpenRequest::Peer { .. } => opcode::OPEN_PEER,
            OpenRequest::Resume { .. } => opcode::RESUME,
            OpenRequest::State => opcode::STATE,
            OpenRequest::Replies { .. } => opcode::REPLIES,
        }
    }

    /// Returns the body, for a client that supports `versions`.
    pub fn encode(&self, versions: VersionRange) -> Vec<u8> {
        let mut writer = BodyWriter::new();
        writer.u16(MAGIC);
        versions.write(&mut writer);
        match self {
            OpenRequest::Session { tenant, secret } => {
                writer.text(tenant);
                writer.text(secret);
            }
            OpenRequest::Attach { token } => writer.u64(*token),
            OpenRequest::Admin { secret } => writer.text(secret),
            OpenRequest::Peer { server, nonce } => {
                writer.u32(*server);
                writer.array(nonce);
            }
            OpenRequest::Resume { tenant, secret, client_id, first_unacknowledged, proof }
            | OpenRequest::Replies { tenant, secret, client_id, first_unacknowledged, proof } => {
                writer.text(tenant);
                writer.text(secret);
                writer.u64(*client_id);
                writer.u64(*first_unacknowledged);
                writer.array(proof);
            }
            OpenRequest::State => {}
        }
        writer.into_bytes()
    }

    /// Decodes a body into the agreed version and the request. The version is settled first, since the rest may look
    /// different under another one.
    ///
    /// # Errors
    /// [`Status::Malformed`], [`Status::UnsupportedVersion`], [`Status::UnknownOpcode`], [`Status::NameInvalid`], or
    /// [`Status::BadSecret`] for a secret that exceeds the maximum length.
    pub fn decode(number: u8, body: &'a [u8]) -> Result<(u8, OpenRequest<'a>), Status> {
        let mut reader = BodyReader::new(body);
        if !matches!(number, opcode::OPEN_SESSION..=opcode::OPEN_PEER | opcode::RESUME..=opcode::REPLIES) {
            return Err(Status::UnknownOpcode);
        }
        if reader.u16()? != MAGIC {
            return Err(Status::Malformed);
        }
        let version = VersionRange::read(&mut reader)?.agree(VersionRange::OURS)?;
        let request = match number {
            opcode::OPEN_SESSION => {
                OpenRequest::Session { tenant: reader.name()?, secret: secret(&mut reader)? }
            }
            opcode::ATTACH => OpenRequest::Attach { token: reader.u64()? },
            opcode::OPEN_ADMIN => OpenRequest::Admin { secret: secret(&mut reader)? },
            opcode::OPEN_PEER => OpenRequest::Peer { server: reader.u32()?, nonce: reader.array()? },
            opcode::STATE => OpenRequest::State,
            _ => {
                let (tenant, secret) = (reader.name()?, secret(&mut reader)?);
                let (client_id, first_unacknowledged) = (reader.u64()?, reader.u64()?);
                let proof = reader.array()?;
                match number {
                    opcode::RESUME => {
                        OpenRequest::Resume { tenant, secret, client_id, first_unacknowledged, proof }
                    }
                    _ => OpenRequest::Replies { tenant, secret, client_id, first_unacknowledged, proof },
                }
            }
        };
        reader.finish()?;
        Ok((version, request))
    }
}

/// Secrets and tokens stay out of logs.
impl core::fmt::Debug for OpenRequest<'_> {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            OpenRequest::Session { tenant, .. } => {
                formatter.debug_struct("Session").field("tenant", tenant).finish_non_exhaustive()
            }
            OpenRequest::Attach { .. } => formatter.debug_struct("Attach").finish_non_exhaustive(),
            OpenRequest::Admin { .. } => formatter.debug_struct("Admin").finish_non_exhaustive(),
            OpenRequest::Peer { server, .. } => {
                formatter.debug_struct("Peer").field("server", server).finish_non_exhaustive()
            }
            OpenRequest::Resume { tenant, client_id, .. } => formatter
                .debug_struct("Resume")
                .field("tenant", tenant)
                .field("client_id", client_id)
                .finish_non_exhaustive(),
            OpenRequest::State => formatter.write_str("State"),
            OpenRequest::Replies { tenant, client_id, .. } => formatter
                .debug_struct("Replies")
                .field("tenant", tenant)
                .field("client_id", client_id)
                .finish_non_exhaustive(),
        }
    }
}

fn secret<'a>(reader: &mut BodyReader<'a>) -> Result<&'a str, Status> {
    let secret = reader.text()?;
    if secret.len() <= SECRET_BYTES_MAX { Ok(secret) } else { Err(Status::BadSecret) }
}

/// A reply that a log has for a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoggedReply {
    /// The sequence of its request.
    pub sequence: u64,
    /// The status.
    pub status: Status,
    /// The body.
    pub body: Box<[u8]>,
}

impl Body for LoggedReply {
    fn write(&self, writer: &mut BodyWriter) {
        writer.u64(self.sequence);
        writer.u8(self.status as u8);
        writer.blob(&self.body);
    }

    fn read(reader: &mut BodyReader<'_>) -> Result<LoggedReply, Status> {
        let sequence = reader.u64()?;
        let status = Status::from_u8(reader.u8()?).ok_or(Status::Malformed)?;
        Ok(LoggedReply { sequence, status, body: reader.blob()?.into() })
    }
}

/// How far the start of a server is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServerState {
    /// Whether it serves requests.
    pub is_serving: bool,
    /// Bytes of its log that were replayed: all once it has all objects, which may be after it serves.
    pub replayed_bytes: u64,
    /// Bytes of its log when it started; 0 if there is none, or its size is not known yet.
    pub log_bytes: u64,
}

impl Body for ServerState {
    fn write(&self, writer: &mut BodyWriter) {
        writer.u8(self.is_serving.into());
        writer.u64(self.replayed_bytes);
        writer.u64(self.log_bytes);
    }

    fn read(reader: &mut BodyReader<'_>) -> Result<ServerState, Status> {
        let is_serving = match reader.u8()? {
            0 => false,
            1 => true,
            _ => return Err(Status::Malformed),
        };
        Ok(ServerState { is_serving, replayed_bytes: reader.u64()?, log_bytes: reader.u64()? })
    }
}

/// Size limits of a session's requests and replies, in bytes; never above [`crate::limits`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionLimits {
    /// Largest key.
    pub key_bytes_max: u32,
    /// Largest value.
    pub value_bytes_max: u32,
    /// Largest reply of an invocation or a multi-get.
    pub reply_bytes_max: u32,
    /// Largest arguments of an invocation.
    pub arguments_bytes_max: u32,
}

impl Body for SessionLimits {
    fn write(&self, writer: &mut BodyWriter) {
        writer.u32(self.key_bytes_max);
        writer.u32(self.value_bytes_max);
        writer.u32(self.reply_bytes_max);
        writer.u32(self.arguments_bytes_max);
    }

    fn read(reader: &mut BodyReader<'_>) -> Result<SessionLimits, Status> {
        Ok(SessionLimits {
            key_bytes_max: reader.u32()?,
            value_bytes_max: reader.u32()?,
            reply_bytes_max: reader.u32()?,
            arguments_bytes_max: reader.u32()?,
        })
    }
}

/// The address at which a server accepts local clients over shared memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShmEndpoint {
    /// Identifies this boot of the server's machine: the same bytes in every process there.
    pub machine: [u8; MACHINE_BYTES],
    /// The user id of the listening process.
    pub user: u32,
    /// The path of its Unix socket.
    pub path: String,
}

impl Body for ShmEndpoint {
    fn write(&self, writer: &mut BodyWriter) {
        writer.array(&self.machine);
        writer.u32(self.user);
        writer.text(&self.path);
    }

    fn read(reader: &mut BodyReader<'_>) -> Result<ShmEndpoint, Status> {
        Ok(ShmEndpoint { machine: reader.array()?, user: reader.u32()?, path: reader.text()?.to_owned() })
    }
}

/// The first message of a client that attaches over shared memory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Attach {
    /// The session's token.
    pub token: u64,
    /// Index of the requested core.
    pub core: u16,
}

impl Body for Attach {
    fn write(&self, writer: &mut BodyWriter) {
        writer.u16(MAGIC);
        writer.u8(PROTOCOL_VERSION);
        writer.u64(self.token);
        writer.u16(self.core);
    }

    fn read(reader: &mut BodyReader<'_>) -> Result<Attach, Status> {
        if (reader.u16()?, reader.u8()?) != (MAGIC, PROTOCOL_VERSION) {
            return Err(Status::Malformed);
        }
        Ok(Attach { token: reader.u64()?, core: reader.u16()? })
    }
}

/// The token stays out of logs.
impl core::fmt::Debug for Attach {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.debug_struct("Knock").field("core", &self.core).finish_non_exhaustive()
    }
}

/// The reply to a session that was opened or attached.
#[derive(Clone, PartialEq, Eq)]
pub struct Opened {
    /// The version of the protocol to speak.
    pub version: u8,
    /// Identifies and authenticates the session in every group.
    pub token: u64,
    /// The client's id, unique in the cluster; with a sequence it identifies a request.
    pub client_id: u64,
    /// Index of the core that serves the tenant best.
    pub home_core: u16,
    /// UDP port of each core, by index.
    pub core_ports: Vec<u16>,
    /// Size limits of the session.
    pub limits: SessionLimits,
    /// Maximum outstanding requests of the session; also the width of its exactly-once window.
    pub credits: u16,
    /// The server's view.
    pub view: u64,
    /// The first sequence to use: 1 for a new session, for an attached one beyond all that the server has seen.
    pub next_sequence: u64,
    /// The address for shared-memory clients on the server's host, if offered.
    pub shm: Option<ShmEndpoint>,
    /// Proves to the server, also after a restart, that it gave this client id to this tenant; `None` under version 1,
    /// and from a server that resumes no session.
    pub proof: Option<[u8; PROOF_BYTES]>,
}

impl core::fmt::Debug for Opened {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter
            .debug_struct("Opened")
            .field("client_id", &self.client_id)
            .field("home_core", &self.home_core)
            .field("core_ports", &self.core_ports)
            .field("credits", &self.credits)
            .finish_non_exhaustive()
    }
}

impl Body for Opened {
    fn write(&self, writer: &mut BodyWriter) {
        writer.u8(self.version);
        writer.u64(self.token);
        writer.u64(self.client_id);
        writer.u16(self.home_core);
        writer.u16(self.core_ports.len() as u16);
        for port in &self.core_ports {
            writer.u16(*port);
        }
        self.limits.write(writer);
        writer.u16(self.credits);
        writer.u64(self.view);
        writer.u64(self.next_sequence);
        writer.flag(self.shm.is_some());
        if let Some(shm) = &self.shm {
            shm.write(writer);
        }
        if self.version >= PROOF_SINCE {
            writer.flag(self.proof.is_some());
            if let Some(proof) = &self.proof {
                writer.array(proof);
            }
        }
    }

    fn read(reader: &mut BodyReader<'_>) -> Result<Opened, Status> {
        let version = reader.u8()?;
        let token = reader.u64()?;
        let client_id = reader.u64()?;
        let home_core = reader.u16()?;
        let core_count = reader.u16()?;
        let core_ports = (0..core_count).map(|_| reader.u16()).collect::<Result<Vec<u16>, Status>>()?;
        let limits = SessionLimits::read(reader)?;
        let (credits, view, next_sequence) = (reader.u16()?, reader.u64()?, reader.u64()?);
        let shm = if reader.flag()? { Some(ShmEndpoint::read(reader)?) } else { None };
        let has_proof = version >= PROOF_SINCE && reader.flag()?;
        let proof = if has_proof { Some(reader.array()?) } else { None };
        if home_core >= core_count || credits == 0 {
            return Err(Status::Malformed);
        }
        Ok(Opened {
            version,
            token,
            client_id,
            home_core,
            core_ports,
            limits,
            credits,
            view,
            next_sequence,
            shm,
            proof,
        })
    }
}
