//! The opening of a stream between servers, at both ends. docs/formats.md specifies the bytes under *Peers*.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use net::{Stream, StreamError};
use wire::limits::{NONCE_BYTES, PROOF_BYTES, RECORD_HEADER_BYTES};
use wire::{OpenRequest, RecordHeader, Status, VersionRange, opcode};

use super::proof::{ChallengeExchange, ClusterSecret, Prover};
use crate::limits::{OPENING_BYTES_MAX, PEER_CONNECT_MS, PEER_OPENING_MS, RECORD_TIMEOUT_MS};
use crate::tenant::secret::{RandomnessMissing, random_bytes};

/// Bytes of the first reply.
const CHALLENGE_BYTES: usize = NONCE_BYTES + PROOF_BYTES;
/// Bytes of the second record's body: proof, kind of purpose, number of the migration or 0.
const PROVING_BYTES: usize = PROOF_BYTES + 1 + 8;

/// The purpose of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The migration with this number; the target opens the stream to the source.
    Migration(u64),
    /// Reads of invocations; the opener asks.
    Reads,
}

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
            Self::Unreachable(error) => write!(formatter, "cannot be reached: {error}"),
            Self::Stranger => formatter.write_str("does not know the cluster's secret"),
            Self::Refused(status) => write!(formatter, "refuses: {}", status.text()),
            Self::Nonsense => formatter.write_str("answers with something else"),
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
    let opener_nonce = random_bytes().map_err(PeerError::Random)?;
    let request = OpenRequest::Peer { server: own, nonce: opener_nonce };
    let answer = ask(&mut stream, request.opcode(), &request.encode(VersionRange::OURS))?;
    let (asked_nonce, proof) = halves(&answer).ok_or(PeerError::Nonsense)?;
    let exchange = ChallengeExchange { opener: own, asked, opener_nonce, asked_nonce };
    if !secret.is_proof(Prover::Asked, &exchange, &proof) {
        return Err(PeerError::Stranger);
    }
    let mut proving = secret.prove(Prover::Opener, &exchange).to_vec();
    let (kind, number): (u8, u64) = match purpose {
        Purpose::Migration(number) => (1, number),
        Purpose::Reads => (2, 0),
    };
    proving.push(kind);
    proving.extend(number.to_le_bytes());
    ask(&mut stream, opcode::PROVE_PEER, &proving)?;
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

fn halves(challenge: &[u8]) -> Option<([u8; NONCE_BYTES], [u8; PROOF_BYTES])> {
    if challenge.len() != CHALLENGE_BYTES {
        return None;
    }
    let (nonce, proof) = challenge.split_first_chunk()?;
    Some((*nonce, *proof.first_chunk()?))
}

/// The reply of an asked server, until the opener has proved itself.
#[derive(Debug)]
pub struct Challenge {
    exchange: ChallengeExchange,
}

impl Challenge {
    /// Creates the challenge of server `own` for `opener`, which drew that nonce.
    ///
    /// # Errors
    /// When there are no random bytes.
    pub fn new(own: u32, opener: u32, opener_nonce: [u8; NONCE_BYTES]) -> Result<Self, RandomnessMissing> {
        let asked_nonce = random_bytes()?;
        Ok(Self { exchange: ChallengeExchange { opener, asked: own, opener_nonce, asked_nonce } })
    }

    /// Returns the body of the reply to the opening.
    #[must_use]
    pub fn body(&self, secret: &ClusterSecret) -> Vec<u8> {
        let proof = secret.prove(Prover::Asked, &self.exchange);
        [self.exchange.asked_nonce, proof].concat()
    }

    /// Returns the number of the opening server.
    #[must_use]
    pub fn opener(&self) -> u32 {
        self.exchange.opener
    }

    /// Returns the purpose of the stream, from its second record.
    ///
    /// # Errors
    /// `BadSecret` if the proof is wrong, before anything else is checked; `Malformed`.
    pub fn proven(&self, secret: &ClusterSecret, code: u8, body: &[u8]) -> Result<Purpose, Status> {
        if code != opcode::PROVE_PEER || body.len() != PROVING_BYTES {
            return Err(Status::Malformed);
        }
        let (proof, rest) = body.split_first_chunk().ok_or(Status::Malformed)?;
        if !secret.is_proof(Prover::Opener, &self.exchange, proof) {
            return Err(Status::BadSecret);
        }
        match (rest[0], rest[1..].first_chunk()) {
            (1, Some(number)) => Ok(Purpose::Migration(u64::from_le_bytes(*number))),
            (2, Some([0, 0, 0, 0, 0, 0, 0, 0])) => Ok(Purpose::Reads),
            _ => Err(Status::Malformed),
        }
    }
}

#[cfg(test)]
mod tests {
    use wire::{Status, opcode};

    use super::{Challenge, ChallengeExchange, ClusterSecret, Prover, Purpose, halves};

    /// Returns an opener's record after a challenge, under that secret.
    fn proving(challenge: &Challenge, secret: &ClusterSecret, (kind, number): (u8, u64)) -> Vec<u8> {
        let (asked_nonce, _) = halves(&challenge.body(secret)).expect("a challenge");
        let exchange = ChallengeExchange { opener: 1, asked: 2, opener_nonce: [9; 32], asked_nonce };
        let mut proving = secret.prove(Prover::Opener, &exchange).to_vec();
        proving.push(kind);
        proving.extend(number.to_le_bytes());
        proving
    }

    #[test]
    fn who_knows_the_secret_is_let_in_for_what_it_says_and_nobody_else() {
        let (secret, wrong) = (ClusterSecret([7; 32]), ClusterSecret([8; 32]));
        let challenge = || Challenge::new(2, 1, [9; 32]).expect("random bytes");
        let one = challenge();
        let right = proving(&one, &secret, (1, 77));
        assert_eq!(one.proven(&secret, opcode::PROVE_PEER, &right), Ok(Purpose::Migration(77)));
        assert_eq!(one.proven(&wrong, opcode::PROVE_PEER, &right), Err(Status::BadSecret));
        assert_eq!(challenge().proven(&secret, opcode::PROVE_PEER, &right), Err(Status::BadSecret));
        assert_eq!(one.proven(&secret, opcode::OPEN_ADMIN, &right), Err(Status::Malformed));
        for cut in 0..right.len() {
            assert!(one.proven(&secret, opcode::PROVE_PEER, &right[..cut]).is_err());
        }
        for (number, purpose) in [(0, Ok(Purpose::Reads)), (77, Err(Status::Malformed))] {
            let one = challenge();
            let reads = proving(&one, &secret, (2, number));
            assert_eq!(one.proven(&secret, opcode::PROVE_PEER, &reads), purpose);
        }
        let mut strange = right;
        strange[32] = 0;
        assert_eq!(one.proven(&secret, opcode::PROVE_PEER, &strange), Err(Status::Malformed));
    }
}
