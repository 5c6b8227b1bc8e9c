//! Proofs of sessions: a client that lost its session shows that its id was given to it. And the identity of a server's log,
//! which is made alike.
//!
//! A proof is an HMAC-SHA256 (RFC 2104) over server, tenant and client id, under the secret in the metadata. So a server
//! knows after a restart which ids it gave to which tenant, without a record of any of them, and does not take another
//! server's client for its own, whose replies it does not have. A proof is worth nothing without the tenant's secret, is
//! good for that client id alone, and does not expire: whether the client may still come back is decided by the server.
//! docs/formats.md specifies the bytes under *Opening*.

use hmac::{Hmac, Mac};
use sha2::Sha256;
use wire::TenantId;
use wire::limits::PROOF_BYTES;

use crate::peer::ClusterSecret;

impl ClusterSecret {
    /// Returns the proof that a tenant's session at a server has this client id. The server is named by its number in the
    /// cluster, or 0 for a lone one.
    #[must_use]
    pub fn session_proof(&self, server: u32, tenant: TenantId, client_id: u64) -> [u8; PROOF_BYTES] {
        session_code(self, server, tenant, client_id).finalize().into_bytes().into()
    }

    /// Returns whether it is that proof, in a time independent of where they differ.
    #[must_use]
    pub fn is_session_proof(
        &self,
        server: u32,
        tenant: TenantId,
        client_id: u64,
        proof: &[u8; PROOF_BYTES],
    ) -> bool {
        session_code(self, server, tenant, client_id).verify_slice(proof).is_ok()
    }
}

impl ClusterSecret {
    /// Returns the identity of the log of a server, by its number in the cluster, or 0 for a lone one: only with this
    /// metadata do the numbers in the log mean what they meant.
    #[must_use]
    pub fn log_identity(&self, server: u32) -> [u8; 16] {
        let code = code_of(self, b"splinter log 1").chain_update(server.to_le_bytes());
        std::array::from_fn(|at| code.clone().finalize().into_bytes()[at])
    }
}

/// Begins a code under the secret; no two kinds begin alike.
fn code_of(secret: &ClusterSecret, kind: &[u8]) -> Hmac<Sha256> {
    Hmac::new_from_slice(&secret.0).expect("HMAC takes keys of any length").chain_update(kind)
}

fn session_code(secret: &ClusterSecret, server: u32, tenant: TenantId, client_id: u64) -> Hmac<Sha256> {
    code_of(secret, b"splinter session 2")
        .chain_update(server.to_le_bytes())
        .chain_update(tenant.0.to_le_bytes())
        .chain_update(client_id.to_le_bytes())
}

#[cfg(test)]
mod tests {
    use data_encoding::HEXLOWER;
    use wire::TenantId;

    use crate::peer::ClusterSecret;

    #[test]
    fn a_proof_holds_for_its_secret_its_server_its_tenant_and_its_client_alone() {
        let (secret, other) = (ClusterSecret([7; 32]), ClusterSecret([8; 32]));
        let proof = secret.session_proof(2, TenantId(3), 65_537);
        assert!(secret.is_session_proof(2, TenantId(3), 65_537, &proof));
        assert!(!other.is_session_proof(2, TenantId(3), 65_537, &proof));
        assert!(!secret.is_session_proof(1, TenantId(3), 65_537, &proof));
        assert!(!secret.is_session_proof(2, TenantId(4), 65_537, &proof));
        assert!(!secret.is_session_proof(2, TenantId(3), 65_538, &proof));
        for place in 0..proof.len() {
            let mut wrong = proof;
            wrong[place] ^= 1;
            assert!(!secret.is_session_proof(2, TenantId(3), 65_537, &wrong));
        }
    }

    #[test]
    fn a_proof_is_the_hmac_of_server_tenant_and_client() {
        // Computed with another implementation of RFC 2104.
        assert_eq!(
            HEXLOWER.encode(&ClusterSecret([7; 32]).session_proof(2, TenantId(3), 65_537)),
            "36b9239d49d5f3b5ca28ba35f2c674c6ef62074c7ba57ded9d2c7b643dde85d4"
        );
    }
}
