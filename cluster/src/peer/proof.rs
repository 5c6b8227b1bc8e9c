//! Proofs of knowing the cluster's secret: HMAC-SHA256 (RFC 2104) over both servers' numbers and nonces.

use hmac::{Hmac, Mac};
use sha2::Sha256;
use wire::limits::{NONCE_BYTES, PROOF_BYTES};

/// The secret shared by the servers of a cluster.
#[derive(Clone, PartialEq, Eq)]
pub struct ClusterSecret(pub [u8; 32]);

/// Keeps the secret out of logs.
impl std::fmt::Debug for ClusterSecret {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
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
pub(super) struct ChallengeExchange {
    pub(super) opener: u32,
    pub(super) asked: u32,
    pub(super) opener_nonce: [u8; NONCE_BYTES],
    pub(super) asked_nonce: [u8; NONCE_BYTES],
}

impl ClusterSecret {
    pub(super) fn prove(&self, side: Prover, exchange: &ChallengeExchange) -> [u8; PROOF_BYTES] {
        self.code(side, exchange).finalize().into_bytes().into()
    }

    /// Returns whether it is that proof, in a time independent of where they differ.
    pub(super) fn is_proof(
        &self,
        side: Prover,
        exchange: &ChallengeExchange,
        proof: &[u8; PROOF_BYTES],
    ) -> bool {
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

    use super::{ChallengeExchange, ClusterSecret, Prover};

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
