//! Streams opened by other servers of the cluster: authenticates them and hands them to the code for their purpose.
//!
//! The stream's thread holds its permit while another thread uses the stream, and ends with it.

use std::net::SocketAddr;
use std::time::Duration;

use cluster::peer::{Challenge, Purpose};
use net::{Stream, StreamError};
use wire::limits::RECORD_HEADER_BYTES;
use wire::{RecordHeader, Status};

use super::control::{Control, Refusal};
use super::migrations;
use super::remote;
use super::streams::{ConnectionPermit, Holder};
use crate::limits::{OPENING_BYTES_MAX, OPENING_TIMEOUT_MS};

/// Answers another server's opening: returns the challenge, and the body of the answer.
///
/// # Errors
/// `UnknownOpcode` outside a cluster.
pub(super) fn challenge(
    control: &Control,
    opener: u32,
    nonce: [u8; wire::limits::NONCE_BYTES],
) -> Result<(Challenge, Vec<u8>), Refusal> {
    let Some(migrations) = &control.migrations else { return Err(Status::UnknownOpcode.into()) };
    let challenge = Challenge::new(migrations.own(), opener, nonce)
        .map_err(|error| Refusal::new(Status::Internal, error.to_string()))?;
    let body = challenge.body(migrations.secret());
    Ok((challenge, body))
}

/// Checks the proof, and serves the stream until it ends.
pub(super) fn serve(
    control: &Control,
    mut stream: Stream,
    (peer, place): (SocketAddr, &ConnectionPermit),
    challenge: &Challenge,
) {
    let mut record = Vec::new();
    let limit = RECORD_HEADER_BYTES + OPENING_BYTES_MAX;
    match stream.read_record(&mut record, Duration::from_millis(OPENING_TIMEOUT_MS), limit) {
        Ok(()) => {}
        Err(StreamError::TooLarge { .. }) => return answer(&mut stream, Status::Malformed),
        Err(_) => return,
    }
    match proven(control, place, challenge, (&record, peer)) {
        Ok(Purpose::Migration(number)) => {
            let Some(migrations) = &control.migrations else { return };
            let Some(post) = migrations.source_of(number, challenge.opener()) else {
                return answer(&mut stream, Status::Unavailable);
            };
            answer(&mut stream, Status::Ok);
            migrations::attach(post, stream);
        }
        Ok(Purpose::Reads) => {
            answer(&mut stream, Status::Ok);
            remote::serve(control, stream);
        }
        Err(refusal) => {
            tracing::warn!(%peer, server = challenge.opener(), %refusal, "refused another server's stream");
            answer(&mut stream, refusal.status);
        }
    }
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
