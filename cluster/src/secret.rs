//! Secrets of tenants and of the administrator: generated here, shown once, stored as a salted hash.
//!
//! A secret is 256 bits from the kernel's random source, written as 64 hexadecimal digits. Because it is generated and
//! never chosen, a single round of SHA-256 with a salt suffices: no dictionary applies. Comparison takes constant time.

use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// Random bytes of a secret.
pub const SECRET_BYTES: usize = 32;

/// The stored form of a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretHash {
    /// Random, one per secret.
    #[serde(with = "digits")]
    pub salt: [u8; 16],
    /// SHA-256 over the salt and the text of the secret.
    #[serde(with = "digits")]
    pub digest: [u8; 32],
}

/// Bytes as hexadecimal digits.
mod digits {
    use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer, const BYTES: usize>(
        bytes: &[u8; BYTES],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&HEXLOWER.encode(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>, const BYTES: usize>(
        deserializer: D,
    ) -> Result<[u8; BYTES], D::Error> {
        let digits = String::deserialize(deserializer)?;
        let bytes = HEXLOWER_PERMISSIVE.decode(digits.as_bytes()).map_err(Error::custom)?;
        bytes.try_into().map_err(|_| Error::custom("hexadecimal digits of another length"))
    }
}

/// The kernel's random source refused, so nothing unguessable can be generated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RandomnessMissing;

impl std::fmt::Display for RandomnessMissing {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("the kernel gave no random bytes")
    }
}

impl std::error::Error for RandomnessMissing {}

/// Returns unguessable bytes.
///
/// # Errors
/// When the kernel has no random bytes to give.
pub fn random_bytes<const BYTES: usize>() -> Result<[u8; BYTES], RandomnessMissing> {
    let mut bytes = [0; BYTES];
    getrandom::fill(&mut bytes).map_err(|_| RandomnessMissing)?;
    Ok(bytes)
}

/// Returns an unguessable token that is not zero.
///
/// # Errors
/// When the kernel has no random bytes to give.
pub fn random_token() -> Result<u64, RandomnessMissing> {
    loop {
        let token = u64::from_le_bytes(random_bytes()?);
        if token != 0 {
            return Ok(token);
        }
    }
}

/// Generates a secret as text.
///
/// # Errors
/// When the kernel has no random bytes to give.
pub fn generate() -> Result<String, RandomnessMissing> {
    let bytes: [u8; SECRET_BYTES] = random_bytes()?;
    Ok(HEXLOWER.encode(&bytes))
}

impl SecretHash {
    /// Salts and hashes `secret`.
    ///
    /// # Errors
    /// When the kernel has no random bytes to give.
    pub fn of(secret: &[u8]) -> Result<Self, RandomnessMissing> {
        let salt = random_bytes()?;
        Ok(Self { salt, digest: digest(&salt, secret) })
    }

    /// Returns the hash of a random secret that is discarded.
    ///
    /// # Errors
    /// When the kernel has no random bytes to give.
    pub fn dummy() -> Result<Self, RandomnessMissing> {
        Self::of(&random_bytes::<SECRET_BYTES>()?)
    }

    /// Returns whether `candidate` is the secret, in a time independent of where they differ.
    #[must_use]
    pub fn matches(&self, candidate: &[u8]) -> bool {
        self.digest.ct_eq(&digest(&self.salt, candidate)).into()
    }
}

fn digest(salt: &[u8; 16], secret: &[u8]) -> [u8; 32] {
    Sha256::new().chain_update(salt).chain_update(secret).finalize().into()
}

#[cfg(test)]
mod tests {
    use super::{SecretHash, generate, random_token};

    #[test]
    fn a_secret_matches_itself_alone() {
        let secret = generate().expect("random bytes");
        let other = generate().expect("random bytes");
        let hash = SecretHash::of(secret.as_bytes()).expect("random bytes");
        assert!(hash.matches(secret.as_bytes()));
        assert!(!hash.matches(other.as_bytes()));
        assert!(!hash.matches(&secret.as_bytes()[..63]));
        assert!(!hash.matches(b""));
    }

    #[test]
    fn secrets_are_long_and_salts_differ() {
        let secret = generate().expect("random bytes");
        assert_eq!(secret.len(), 64);
        let left = SecretHash::of(secret.as_bytes()).expect("random bytes");
        let right = SecretHash::of(secret.as_bytes()).expect("random bytes");
        assert_ne!(left, right);
    }

    #[test]
    fn tokens_do_not_repeat() {
        let mut tokens: Vec<u64> = (0..1000).map(|_| random_token().expect("random bytes")).collect();
        tokens.sort_unstable();
        tokens.dedup();
        assert_eq!(tokens.len(), 1000);
        assert_ne!(tokens[0], 0);
    }
}
