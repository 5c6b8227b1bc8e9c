//! Proofs of knowing the cluster's secret: HMAC-SHA256 (RFC 2104) over both servers' numbers and nonces.

use sha2::{Digest, Sha256};
use wire::limits::{NONCE_BYTES, PROOF_BYTES};

/// Bytes of a SHA-256 block.
const BLOCK_BYTES: usize = 64;

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
        let ChallengeExchange { opener, asked, opener_nonce, asked_nonce } = exchange;
        let mut said = b"splinter peer 1".to_vec();
        said.push(side as u8);
        said.extend(opener.to_le_bytes());
        said.extend(asked.to_le_bytes());
        said.extend(opener_nonce);
        said.extend(asked_nonce);
        hmac(&self.0, &said)
    }

    /// Returns whether it is that proof, in a time independent of where they differ.
    pub(super) fn is_proof(
        &self,
        side: Prover,
        exchange: &ChallengeExchange,
        proof: &[u8; PROOF_BYTES],
    ) -> bool {
        let right = self.prove(side, exchange);
        let difference = right.iter().zip(proof).fold(0, |sum, (left, right)| sum | (left ^ right));
        std::hint::black_box(difference) == 0
    }
}

/// Computes the HMAC with a key no longer than a block.
fn hmac(key: &[u8], message: &[u8]) -> [u8; PROOF_BYTES] {
    assert!(key.len() <= BLOCK_BYTES, "longer keys would have to be hashed");
    let padded = |with: u8| {
        let mut block = [with; BLOCK_BYTES];
        block.iter_mut().zip(key).for_each(|(byte, key)| *byte ^= key);
        block
    };
    let inner = Sha256::new().chain_update(padded(0x36)).chain_update(message).finalize();
    Sha256::new().chain_update(padded(0x5c)).chain_update(inner).finalize().into()
}

#[cfg(test)]
mod tests {
    use super::{ChallengeExchange, ClusterSecret, Prover, hmac};

    fn hexadecimal(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn proofs_are_made_as_the_standard_has_it() {
        // RFC 4231, test cases 1, 2 and 3.
        let cases: [(&[u8], &[u8], &str); 3] = [
            (&[0x0b; 20], b"Hi There", "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"),
            (
                b"Jefe",
                b"what do ya want for nothing?",
                "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
            ),
            (&[0xaa; 20], &[0xdd; 50], "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe"),
        ];
        for (key, message, expected) in cases {
            assert_eq!(hexadecimal(&hmac(key, message)), expected);
        }
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
