//! Opens authenticated streams to other servers of the cluster. [`cluster::peer`] has the exchange of proofs.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use cluster::peer::{ChallengeError, ClusterSecret, Opening, Purpose};
use cluster::secret::RandomnessMissing;
use net::{Stream, StreamError};
use wire::limits::RECORD_HEADER_BYTES;
use wire::{RecordHeader, Status, VersionRange, opcode};

use crate::limits::{OPENING_BYTES_MAX, PEER_CONNECT_MS, PEER_OPENING_MS, RECORD_TIMEOUT_MS};

/// The reason why there is no stream to another server.
#[derive(Debug)]
pub enum PeerError {
    /// The server cannot be reached, or disconnected.
    Unreachable(io::Error),
    /// The server did not prove that it belongs to this cluster.
    Stranger,
    /// The server refused.
    Refused(Status),
    /// The server sent bytes outside the protocol.
    Nonsense,
    /// This server has no random bytes.
    Random(RandomnessMissing),
}

impl fmt::Display for PeerError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(error) => write!(formatter, "cannot reach the server: {error}"),
            Self::Stranger => formatter.write_str("the server does not know the cluster's secret"),
            Self::Refused(status) => write!(formatter, "the server refused: {}", status.text()),
            Self::Nonsense => formatter.write_str("the server's reply is outside the protocol"),
            Self::Random(error) => error.fmt(formatter),
        }
    }
}

impl std::error::Error for PeerError {}

impl From<StreamError> for PeerError {
    fn from(error: StreamError) -> Self {
        match error {
            StreamError::Broken(error) => Self::Unreachable(error),
            StreamError::TooLarge { .. } => Self::Nonsense,
            _ => Self::Unreachable(io::ErrorKind::TimedOut.into()),
        }
    }
}

impl From<ChallengeError> for PeerError {
    fn from(error: ChallengeError) -> Self {
        match error {
            ChallengeError::Malformed => Self::Nonsense,
            ChallengeError::WrongProof => Self::Stranger,
        }
    }
}

/// Opens a stream from server `own` to server `asked` at this address, for a purpose.
///
/// # Errors
/// See [`PeerError`].
pub fn open(
    secret: &ClusterSecret,
    own: u32,
    (asked, address): (u32, SocketAddr),
    purpose: Purpose,
) -> Result<Stream, PeerError> {
    let connect = Duration::from_millis(PEER_CONNECT_MS);
    let record = Duration::from_millis(RECORD_TIMEOUT_MS);
    let mut stream = Stream::connect(address, connect, record).map_err(PeerError::Unreachable)?;
    let opening = Opening::new(own, asked).map_err(PeerError::Random)?;
    let request = opening.request();
    let challenge = ask(&mut stream, request.opcode(), &request.encode(VersionRange::OURS))?;
    ask(&mut stream, opcode::PROVE_PEER, &opening.prove(secret, &challenge, purpose)?)?;
    Ok(stream)
}

/// Sends a record and receives the body of its reply.
fn ask(stream: &mut Stream, code: u8, body: &[u8]) -> Result<Vec<u8>, PeerError> {
    let record = RecordHeader { code, ..RecordHeader::default() }.encode_record(body);
    stream.write_record(&record, &[])?;
    let mut answer = Vec::new();
    let limit = RECORD_HEADER_BYTES + OPENING_BYTES_MAX;
    stream.read_record(&mut answer, Duration::from_millis(PEER_OPENING_MS), limit)?;
    let (header, body) = RecordHeader::split(&answer).map_err(|_| PeerError::Nonsense)?;
    match Status::from_u8(header.code) {
        Some(Status::Ok) => Ok(body.to_vec()),
        Some(status) => Err(PeerError::Refused(status)),
        None => Err(PeerError::Nonsense),
    }
}
