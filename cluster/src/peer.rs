//! Streams between servers of a cluster: their purposes, and how both ends prove that they belong to the cluster.
//!
//! ```text
//!   opening server                                      asked server
//!     number, nonce ────────────────────────────────────►
//!     ◄──────────────────────────────────────── nonce, proof over both
//!     proof over both, purpose ─────────────────────────►
//!     ◄──────────────────────────────────────── yes, or a refusal
//!     records as of net::Stream ◄───────────────────────►
//! ```
//! A proof shows that its maker knows the cluster's secret, which is in the metadata and never sent. It is an
//! HMAC-SHA256 (RFC 2104) over both numbers, both nonces and the direction, so it can be neither replayed nor reflected.
//! The following records are neither encrypted nor sealed, like all traffic between clients and servers: see
//! docs/security.md; docs/formats.md specifies the bytes under *Peers*. The stream uses the listener of clients, so that
//! a server has one TCP port.

use std::fmt;

use hmac::{Hmac, Mac};
use sha2::Sha256;
use wire::limits::{NONCE_BYTES, PROOF_BYTES};
use wire::{OpenRequest, Status, opcode};

use crate::secret::{RandomnessMissing, random_bytes};

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
    /// The opener's log; the asked server is a backup.
    Replicas,
    /// The log of the server with this number, which the opener recovers; the asked server is one of its backups.
    Recovery(u32),
    /// Promises of the asked server not to find the opener gone.
    Promises,
}

/// The reason why an opener does not prove itself to the server that it asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChallengeError {
    /// The reply is no challenge.
    Malformed,
    /// The server did not prove that it knows the cluster's secret.
    WrongProof,
}

/// A stream being opened, until its opener has proved itself.
#[derive(Debug)]
pub struct Opening {
    own: u32,
    asked: u32,
    nonce: [u8; NONCE_BYTES],
}

impl Opening {
    /// Begins to open a stream from server `own` to server `asked`, with a nonce of its own.
    ///
    /// # Errors
    /// When there are no random bytes.
    pub fn new(own: u32, asked: u32) -> Result<Self, RandomnessMissing> {
        Ok(Self { own, asked, nonce: random_bytes()? })
    }

    /// Returns the stream's first record.
    #[must_use]
    pub fn request(&self) -> OpenRequest<'static> {
        OpenRequest::Peer { server: self.own, nonce: self.nonce }
    }

    /// Returns the body of the second record, from the asked server's challenge.
    ///
    /// # Errors
    /// See [`ChallengeError`].
    pub fn prove(
        &self,
        secret: &ClusterSecret,
        challenge: &[u8],
        purpose: Purpose,
    ) -> Result<Vec<u8>, ChallengeError> {
        let (asked_nonce, proof) = halves(challenge).ok_or(ChallengeError::Malformed)?;
        let Self { own: opener, asked, nonce: opener_nonce } = *self;
        let exchange = ChallengeExchange { opener, asked, opener_nonce, asked_nonce };
        if !secret.is_proof(Prover::Asked, &exchange, &proof) {
            return Err(ChallengeError::WrongProof);
        }
        let (kind, number): (u8, u64) = match purpose {
            Purpose::Migration(number) => (1, number),
            Purpose::Reads => (2, 0),
            Purpose::Replicas => (3, 0),
            Purpose::Recovery(server) => (4, server.into()),
            Purpose::Promises => (5, 0),
        };
        let mut proving = secret.prove(Prover::Opener, &exchange).to_vec();
        proving.push(kind);
        proving.extend(number.to_le_bytes());
        Ok(proving)
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
            (3, Some([0, 0, 0, 0, 0, 0, 0, 0])) => Ok(Purpose::Replicas),
            (5, Some([0, 0, 0, 0, 0, 0, 0, 0])) => Ok(Purpose::Promises),
            (4, Some(number)) => {
                let server = u32::try_from(u64::from_le_bytes(*number)).map_err(|_| Status::Malformed)?;
                Ok(Purpose::Recovery(server))
            }
            _ => Err(Status::Malformed),
        }
    }
}

/// The secret shared by the servers of a cluster; a lone server has one of its own.
#[derive(Clone, PartialEq, Eq)]
pub struct ClusterSecret(pub [u8; 32]);

/// Keeps the secret out of logs.
impl fmt::Debug for ClusterSecret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("ClusterSecret")
    }
}

/// The maker of a proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prover {
    /// The server that opens the stream.
    Opener = 1,
    /// The server that was asked.
    Asked = 2,
}

/// The shared knowledge of both ends after the exchange of nonces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ChallengeExchange {
    opener: u32,
    asked: u32,
    opener_nonce: [u8; NONCE_BYTES],
    asked_nonce: [u8; NONCE_BYTES],
}

impl ClusterSecret {
    fn prove(&self, side: Prover, exchange: &ChallengeExchange) -> [u8; PROOF_BYTES] {
        self.code(side, exchange).finalize().into_bytes().into()
    }

    /// Returns whether it is that proof, in a time independent of where they differ.
    fn is_proof(&self, side: Prover, exchange: &ChallengeExchange, proof: &[u8; PROOF_BYTES]) -> bool {
        self.code(side, exchange).verify_slice(proof).is_ok()
    }

    fn code(&self, side: Prover, exchange: &ChallengeExchange) -> Hmac<Sha256> {
        let ChallengeExchange { opener, asked, opener_nonce, asked_nonce } = exchange;
        let code = Hmac::new_from_slice(&self.0).expect("HMAC takes keys of any length");
        code.chain_update(b"splinter peer 1")
            .chain_update([side as u8])
            .chain_update(opener.to_le_bytes())
            .chain_update(asked.to_le_bytes())
            .chain_update(opener_nonce)
            .chain_update(asked_nonce)
    }
}

#[cfg(test)]
mod tests {
    use data_encoding::HEXLOWER;
    use wire::{Status, opcode};

    use super::{Challenge, ChallengeError, ChallengeExchange, ClusterSecret, Opening, Prover, Purpose};

    /// Server 1 opens a stream to server 2 with this nonce.
    const OPENING: Opening = Opening { own: 1, asked: 2, nonce: [9; 32] };

    fn challenge() -> Challenge {
        Challenge::new(2, 1, OPENING.nonce).expect("random bytes")
    }

    /// Returns an opener's record after a challenge, under that secret.
    fn proving(challenge: &Challenge, secret: &ClusterSecret, purpose: Purpose) -> Vec<u8> {
        OPENING.prove(secret, &challenge.body(secret), purpose).expect("a challenge under the same secret")
    }

    #[test]
    fn a_server_is_admitted_only_with_the_secret_and_only_for_its_purpose() {
        let (secret, wrong) = (ClusterSecret([7; 32]), ClusterSecret([8; 32]));
        let one = challenge();
        let right = proving(&one, &secret, Purpose::Migration(77));
        assert_eq!(one.proven(&secret, opcode::PROVE_PEER, &right), Ok(Purpose::Migration(77)));
        assert_eq!(one.proven(&wrong, opcode::PROVE_PEER, &right), Err(Status::BadSecret));
        assert_eq!(challenge().proven(&secret, opcode::PROVE_PEER, &right), Err(Status::BadSecret));
        assert_eq!(one.proven(&secret, opcode::OPEN_ADMIN, &right), Err(Status::Malformed));
        for cut in 0..right.len() {
            assert!(one.proven(&secret, opcode::PROVE_PEER, &right[..cut]).is_err());
        }
        let one = challenge();
        let mut reads = proving(&one, &secret, Purpose::Reads);
        assert_eq!(one.proven(&secret, opcode::PROVE_PEER, &reads), Ok(Purpose::Reads));
        // A purpose of reads has no number, and kind 0 does not exist.
        for (place, byte) in [(33, 77), (32, 0)] {
            let right = std::mem::replace(&mut reads[place], byte);
            assert_eq!(one.proven(&secret, opcode::PROVE_PEER, &reads), Err(Status::Malformed));
            reads[place] = right;
        }
    }

    #[test]
    fn an_opener_proves_nothing_to_a_server_without_the_secret() {
        let (secret, wrong) = (ClusterSecret([7; 32]), ClusterSecret([8; 32]));
        let challenge = challenge().body(&wrong);
        assert_eq!(OPENING.prove(&secret, &challenge, Purpose::Reads), Err(ChallengeError::WrongProof));
        let cut = &challenge[..challenge.len() - 1];
        assert_eq!(OPENING.prove(&wrong, cut, Purpose::Reads), Err(ChallengeError::Malformed));
    }

    #[test]
    fn a_proof_is_the_hmac_of_numbers_and_nonces() {
        let exchange = ChallengeExchange { opener: 1, asked: 2, opener_nonce: [3; 32], asked_nonce: [4; 32] };
        let proof = ClusterSecret([7; 32]).prove(Prover::Opener, &exchange);
        // Computed with another implementation of RFC 2104.
        assert_eq!(
            HEXLOWER.encode(&proof),
            "58a565472fede661b0f96bd34765cecd57e44b2e6daf17b02b7450101e999158"
        );
    }

    #[test]
    fn a_proof_holds_for_its_secret_its_side_and_its_exchange_alone() {
        let (secret, other) = (ClusterSecret([7; 32]), ClusterSecret([8; 32]));
        let exchange = ChallengeExchange { opener: 1, asked: 2, opener_nonce: [3; 32], asked_nonce: [4; 32] };
        let proof = secret.prove(Prover::Opener, &exchange);
        assert!(secret.is_proof(Prover::Opener, &exchange, &proof));
        assert!(!secret.is_proof(Prover::Asked, &exchange, &proof));
        assert!(!other.is_proof(Prover::Opener, &exchange, &proof));
        let turned = ChallengeExchange { opener: 2, asked: 1, ..exchange };
        let swapped = ChallengeExchange { opener_nonce: [4; 32], asked_nonce: [3; 32], ..exchange };
        for other in [turned, swapped] {
            assert!(!secret.is_proof(Prover::Opener, &other, &proof));
        }
    }
}
