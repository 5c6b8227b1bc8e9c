//! The first record of a stream: authenticates the peer and determines its role.
//!
//! A tenant authenticates itself by its secret, a further stream by its session's token, a client that resumes its session
//! or asks for its replies by the tenant's secret and its proof, the administrator by the secret in the data directory, another server by a second
//! record. A peer that fails gets one typed
//! refusal and is disconnected. A source prefix with too many failures gets `Retry` until its bucket refills; the
//! token of an ended session does not count as a failure. A correct secret is never refused because of other
//! clients' wrong ones. An authenticated peer takes the stream's permit before anything is allocated for it.

use std::net::SocketAddr;
use std::time::Duration;

use cluster::metadata::TenantRow;
use cluster::peer::{Challenge, Purpose};
use net::{Stream, StreamError};
use wire::limits::{NONCE_BYTES, RECORD_HEADER_BYTES};
use wire::{Body, OpenRequest, Opened, RecordHeader, SessionLimits, Status, VersionRange};

use super::gate::KeptReplicas;
use crate::administration::Role;
use crate::backups::holder;
use crate::control_plane::migrations::Migrations;
use crate::control_plane::promises;
use crate::control_plane::streams::{ConnectionPermit, Holder, NoPlace};
use crate::control_plane::{Control, KnownTenant, Refusal};
use crate::durability::replicas::backup_thread::BackupHandle;
use crate::limits::{OPENING_BYTES_MAX, OPENING_TIMEOUT_MS, SESSION_CREDITS};
use crate::moving;
use crate::remote::serving;
use crate::session::Session;
use crate::sync::lock;

/// The peer that sent the first record.
#[derive(Debug)]
pub enum Entrant {
    /// An authenticated peer.
    Known(Role),
    /// Another server of the cluster that has not authenticated itself yet.
    Peer(Challenge),
    /// A peer that wanted the answer alone.
    Answered,
}

/// The refusal of a wrong tenant name or secret.
const WRONG: &str = "wrong tenant name or secret";

/// Checks the request that opens a stream, of this version; returns the peer, and the body of the answer.
///
/// # Errors
/// The refusal to answer before the stream is closed.
pub fn open(
    control: &Control,
    place: &ConnectionPermit,
    (version, request): (u8, OpenRequest<'_>),
    peer: SocketAddr,
) -> Result<(Entrant, Vec<u8>), Refusal> {
    match request {
        OpenRequest::Session { tenant, secret } => {
            let row = authenticated(control, (tenant, secret), peer)?;
            place.take(Holder::Tenant(row.id))?;
            let session = control.open_session(row, peer)?;
            let answer = opened(control, &session, version, 1).encode();
            Ok((Entrant::Known(Role::Tenant(session)), answer))
        }
        OpenRequest::Resume { tenant, secret, client_id, first_unacknowledged, proof } => {
            let row = authenticated(control, (tenant, secret), peer)?;
            if !control.resumption.is_proof(row.id, client_id, &proof) {
                let refusal = Refusal::new(Status::BadSecret, "wrong proof of the client's session");
                return Err(control.wrong(peer, refusal));
            }
            place.take(Holder::Tenant(row.id))?;
            let session = control.resume_session(row, peer, (client_id, first_unacknowledged))?;
            let answer = opened(control, &session, version, session.ring.next_sequence()).encode();
            Ok((Entrant::Known(Role::Tenant(session)), answer))
        }
        OpenRequest::Attach { token } => {
            let open = lock(&control.sessions).get(&token).cloned().filter(|open| !open.session.is_closed());
            let Some(open) = open else {
                // A late client has not guessed.
                let is_late = lock(&control.ended).has(token);
                let refusal = Status::BadToken.into();
                return Err(if is_late { refusal } else { control.wrong(peer, refusal) });
            };
            place.take(Holder::Tenant(open.session.tenant))?;
            let answer = opened(control, &open.session, version, open.session.ring.next_sequence()).encode();
            Ok((Entrant::Known(Role::Tenant(open.session)), answer))
        }
        OpenRequest::Admin { secret } => {
            if !control.administrator.matches(secret.as_bytes()) {
                return Err(control.wrong(peer, Status::BadSecret.into()));
            }
            place.take(Holder::Operator)?;
            Ok((Entrant::Known(Role::Administrator), Vec::new()))
        }
        OpenRequest::Replies { tenant, secret, client_id, first_unacknowledged, proof } => {
            let row = authenticated(control, (tenant, secret), peer)?;
            place.take(Holder::Tenant(row.id))?;
            let replies = control.recovered_replies_of(row.id, (client_id, first_unacknowledged), &proof)?;
            Ok((Entrant::Answered, replies.encode()))
        }
        // Answered before.
        OpenRequest::State => Err(Status::Malformed.into()),
        OpenRequest::Peer { server, nonce } => {
            let (challenge, answer) = challenge(control, server, nonce)?;
            Ok((Entrant::Peer(challenge), answer))
        }
    }
}

/// Returns the body of the answer to a refused opening.
#[must_use]
pub fn refusal_body(refusal: &Refusal) -> Vec<u8> {
    match refusal.status {
        Status::UnsupportedVersion => VersionRange::OURS.encode(),
        Status::Retry => wire::reply::encode_retry(1_000_000).to_vec(),
        _ => refusal.text.clone().into_bytes(),
    }
}

/// Returns the tenant of this name and secret.
fn authenticated(
    control: &Control,
    (tenant, secret): (&str, &str),
    peer: SocketAddr,
) -> Result<TenantRow, Refusal> {
    // Always compared, so that neither the answer nor its latency reveals whether the tenant exists.
    let matches =
        |row: Option<&TenantRow>| row.map_or(&control.nobody, |row| &row.secret).matches(secret.as_bytes());
    let KnownTenant { row, doubt } = control.tenant_named(tenant, matches)?;
    let is_right = matches(row.as_ref());
    match row {
        Some(row) if is_right => Ok(row),
        // Wrong name or wrong secret; if the metadata cannot be read, the opening may succeed at another server.
        _ => {
            let refusal = doubt.map_or_else(|| Refusal::new(Status::BadSecret, WRONG), Refusal::from);
            Err(control.wrong(peer, refusal))
        }
    }
}

impl From<NoPlace> for Refusal {
    fn from(refused: NoPlace) -> Self {
        match refused {
            NoPlace::OfTenant => Self::new(Status::LimitExceeded, "the tenant has reached its stream limit"),
            NoPlace::OfTenants => {
                Self::new(Status::LimitExceeded, "the server has reached its stream limit for tenants")
            }
            // The stream is closed, so the peer does not read it.
            NoPlace::Closed => Status::Unavailable.into(),
        }
    }
}

fn opened(control: &Control, session: &Session, version: u8, next_sequence: u64) -> Opened {
    Opened {
        version,
        token: session.token,
        client_id: session.client_id,
        home_core: session.home_core(),
        core_ports: control.ports.numbers.clone(),
        limits: SessionLimits {
            key_bytes_max: wire::limits::KEY_BYTES_MAX as u32,
            value_bytes_max: wire::limits::VALUE_BYTES_MAX as u32,
            reply_bytes_max: wire::limits::REPLY_BYTES_MAX as u32,
            arguments_bytes_max: wire::limits::ARGUMENTS_BYTES_MAX as u32,
        },
        credits: SESSION_CREDITS,
        view: control.views.settled(),
        next_sequence,
        shm: control.shm_listener.as_ref().map(|status| status.told.clone()),
        proof: Some(control.resumption.proof(session.tenant, session.client_id)),
    }
}

/// Answers another server's opening: returns the challenge, and the body of the answer.
///
/// # Errors
/// `UnknownOpcode` outside a cluster.
fn challenge(
    control: &Control,
    opener: u32,
    nonce: [u8; NONCE_BYTES],
) -> Result<(Challenge, Vec<u8>), Refusal> {
    let Some(migrations) = &control.migrations else { return Err(Status::UnknownOpcode.into()) };
    let challenge = Challenge::new(migrations.own(), opener, nonce)
        .map_err(|error| Refusal::new(Status::Internal, error.to_string()))?;
    let body = challenge.body(migrations.secret());
    Ok((challenge, body))
}

/// Checks the proof of another server of the cluster, and serves its stream.
pub(super) fn serve_peer(
    control: &Control,
    mut stream: Stream,
    (peer, place): (SocketAddr, &ConnectionPermit),
    challenge: &Challenge,
) {
    let Some(record) = proof_of(&mut stream) else { return };
    match proven(control, place, challenge, (&record, peer)) {
        Ok(purpose) => serve_purpose(control, stream, challenge.opener(), purpose),
        Err(refusal) => {
            tracing::warn!(%peer, server = challenge.opener(), %refusal, "refused another server's stream");
            answer(&mut stream, refusal.status);
        }
    }
}

/// Reads the second record of another server; `None` if none comes that can be one.
fn proof_of(stream: &mut Stream) -> Option<Vec<u8>> {
    let mut record = Vec::new();
    let limit = RECORD_HEADER_BYTES + OPENING_BYTES_MAX;
    match stream.read_record(&mut record, Duration::from_millis(OPENING_TIMEOUT_MS), limit) {
        Ok(()) => return Some(record),
        Err(StreamError::TooLarge { .. }) => answer(stream, Status::Malformed),
        Err(_) => {}
    }
    None
}

/// Opens the stream of another server while this one starts; returns what it is for, if that server has proved itself.
pub(super) fn early_purpose(
    replicas: &KeptReplicas,
    stream: &mut Stream,
    (place, opener, nonce): (&ConnectionPermit, u32, [u8; NONCE_BYTES]),
) -> Option<Purpose> {
    let challenge = Challenge::new(replicas.own, opener, nonce).ok()?;
    let header = RecordHeader { code: Status::Ok as u8, ..RecordHeader::default() };
    stream.write_record(&header.encode_record(&challenge.body(&replicas.secret)), &[]).ok()?;
    let record = proof_of(stream)?;
    let (header, body) = RecordHeader::split(&record).ok()?;
    match challenge.proven(&replicas.secret, header.code, body) {
        Ok(purpose) => match place.take(Holder::Operator) {
            Ok(()) => Some(purpose),
            Err(refused) => {
                answer(stream, Refusal::from(refused).status);
                None
            }
        },
        Err(status) => {
            tracing::warn!(server = opener, status = status.name(), "refused another server's stream");
            answer(stream, status);
            None
        }
    }
}

/// Hands the stream of a server that has proved itself to the code for its purpose, and returns when the stream ends, or at once if
/// that is another thread. Meanwhile its thread holds the permit.
pub(super) fn serve_purpose(control: &Control, mut stream: Stream, opener: u32, purpose: Purpose) {
    match purpose {
        // Others' replicas come before: at a cold start all servers wait for each other's.
        Purpose::Migration(_) | Purpose::Reads if !control.has_settled() => {
            answer(&mut stream, Status::Unavailable);
        }
        Purpose::Migration(number) => {
            let Some(migrations) = &control.migrations else { return };
            let Some(notices) = migrations.source_of(number, opener) else {
                return answer(&mut stream, Status::Unavailable);
            };
            answer(&mut stream, Status::Ok);
            moving::attach(notices, stream);
        }
        Purpose::Reads => {
            answer(&mut stream, Status::Ok);
            serving::serve(control, stream);
        }
        Purpose::Replicas => {
            let backup = control.host.backup.as_ref().filter(|backup| !backup.has_failed());
            // Of a log that others recover nothing is taken.
            let is_written = || matches!(control.metadata.recovery(opener), Ok(None));
            let Some(backup) = backup.filter(|_| is_written()) else {
                return answer(&mut stream, Status::Unavailable);
            };
            answer(&mut stream, Status::Ok);
            backup.serve(opener, stream);
        }
        Purpose::Promises => {
            answer(&mut stream, Status::Ok);
            promises::serve(control, stream, opener);
        }
        Purpose::Recovery(server) => {
            let Some(backup) = &control.host.backup else { return answer(&mut stream, Status::Unavailable) };
            let is_over = || control.migrations.as_ref().is_none_or(Migrations::is_stopping);
            serve_replicas(backup, server, stream, is_over);
        }
    }
}

/// Serves a stream of a server that recovers the log of `server`, until it ends or `is_over`.
pub(super) fn serve_replicas(
    backup: &BackupHandle,
    server: u32,
    mut stream: Stream,
    is_over: impl Fn() -> bool,
) {
    answer(&mut stream, Status::Ok);
    holder::serve(backup, server, stream, is_over);
}

fn proven(
    control: &Control,
    place: &ConnectionPermit,
    challenge: &Challenge,
    (record, peer): (&[u8], SocketAddr),
) -> Result<Purpose, Refusal> {
    let Some(migrations) = &control.migrations else { return Err(Status::UnknownOpcode.into()) };
    let (header, body) = RecordHeader::split(record)?;
    let purpose =
        challenge.proven(migrations.secret(), header.code, body).map_err(|status| match status {
            Status::BadSecret => control.wrong(peer, status.into()),
            status => status.into(),
        })?;
    place.take(Holder::Operator)?;
    Ok(purpose)
}

/// Answers with a status; a server that does not receive it retries.
fn answer(stream: &mut Stream, status: Status) {
    let header = RecordHeader { code: status as u8, ..RecordHeader::default() };
    let _ = stream.write_record(&header.encode_record(&[]), &[]);
}
