//! HMAC-SHA-256 (RFC 2104) and PBKDF2 over it (RFC 8018, 5.2), for keys of one digest.
//!
//! The two blocks that HMAC makes of its key are compressed once, in [`Mac::new`]; a round of PBKDF2 is then
//! two compressions. [`Stretch`] runs rounds in portions, so that an invocation can make room for others
//! between them.

use crate::sha256::BLOCK_BYTES;
use crate::sha256::DIGEST_BYTES;
use crate::sha256::Digest;
use crate::sha256::State;
use crate::sha256::digest;

/// A key, ready to authenticate.
#[derive(Clone, Copy)]
pub struct Mac {
    inner: State,
    outer: State,
}

impl Mac {
    /// Takes a key of any length.
    pub fn new(key: &[u8]) -> Mac {
        let mut block = [0; BLOCK_BYTES];
        if key.len() > BLOCK_BYTES {
            block[..DIGEST_BYTES].copy_from_slice(&digest(key));
        } else {
            block[..key.len()].copy_from_slice(key);
        }
        let (mut inner, mut outer) = (State::new(), State::new());
        inner.compress(&block.map(|byte| byte ^ 0x36));
        outer.compress(&block.map(|byte| byte ^ 0x5c));
        Mac { inner, outer }
    }

    /// The code of a message.
    pub fn code(&self, message: &[u8]) -> Digest {
        let inner = self.inner.finish(message, (BLOCK_BYTES + message.len()) as u64);
        self.outer.finish(&inner, (BLOCK_BYTES + DIGEST_BYTES) as u64)
    }
}

/// A key under derivation.
pub struct Stretch {
    mac: Mac,
    /// The latest round's code.
    last: Digest,
    /// All codes so far, xored.
    sum: Digest,
    rounds_left: u32,
}

impl Stretch {
    /// Begins with a password, a salt, and the number of rounds, which is at least 1.
    pub fn new<const SALT: usize>(password: &[u8], salt: &[u8; SALT], rounds: u32) -> Stretch {
        let mac = Mac::new(password);
        let mut first = [0; BLOCK_BYTES];
        // The number of the first block of output, the only one, follows the salt.
        first[..SALT].copy_from_slice(salt);
        first[SALT + 3] = 1;
        let code = mac.code(&first[..SALT + 4]);
        Stretch { mac, last: code, sum: code, rounds_left: rounds.saturating_sub(1) }
    }

    /// Runs some more rounds; says whether there are more to run.
    pub fn step(&mut self, rounds: u32) -> bool {
        for _ in 0..rounds.min(self.rounds_left) {
            self.last = self.mac.code(&self.last);
            for (sum, byte) in self.sum.iter_mut().zip(self.last) {
                *sum ^= byte;
            }
        }
        self.rounds_left = self.rounds_left.saturating_sub(rounds);
        self.rounds_left > 0
    }

    /// The derived key, when [`Stretch::step`] has no more to run.
    pub fn key(&self) -> Digest {
        self.sum
    }
}

#[cfg(test)]
mod tests {
    use super::Mac;
    use super::Stretch;
    use crate::hex::hex;

    #[test]
    fn codes_are_those_of_rfc_4231() {
        let vectors: [(&[u8], &[u8], &str); 4] = [
            (&[0x0b; 20], b"Hi There", "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"),
            (
                b"Jefe",
                b"what do ya want for nothing?",
                "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
            ),
            (&[0xaa; 20], &[0xdd; 50], "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe"),
            (
                &[0xaa; 131],
                b"Test Using Larger Than Block-Size Key - Hash Key First",
                "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
            ),
        ];
        for (key, message, expected) in vectors {
            assert_eq!(hex(&Mac::new(key).code(message)), expected);
        }
    }

    fn derive<const SALT: usize>(password: &[u8], salt: &[u8; SALT], rounds: u32, portion: u32) -> [u8; 32] {
        let mut stretch = Stretch::new(password, salt, rounds);
        while stretch.step(portion) {}
        stretch.key()
    }

    /// The vectors of RFC 6070, with SHA-256 instead of SHA-1.
    #[test]
    fn keys_are_those_of_known_vectors_however_they_are_portioned() {
        let vectors = [
            (1, "120fb6cffcf8b32c43e7225256c4f837a86548c92ccc35480805987cb70be17b"),
            (2, "ae4d0c95af6b46d32d0adff928f06dd02a303f8ef3c251dfd6e2d85a95474c43"),
            (4096, "c5e478d59288c841aa530db6845c4c8d962893a001ce4e11a4963873aa98134a"),
        ];
        for (rounds, expected) in vectors {
            for portion in [1, 64, 10_000] {
                assert_eq!(hex(&derive(b"password", b"salt", rounds, portion)), expected);
            }
        }
        assert_eq!(
            hex(&derive(b"passwordPASSWORDpassword", b"saltSALTsaltSALTsaltSALTsaltSALTsalt", 4096, 100)),
            "348c89dbcbd32b2f32d814b8116e84cf2b17347ebc1800181c4e2a1fb8dd53e1"
        );
    }
}
