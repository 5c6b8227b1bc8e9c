//! SHA-256 (FIPS 180-4) in safe code, without tables beyond the standard's own constants.
//!
//! [`State`] is the compression function's chaining value: sixteen words in, eight words changed. It is
//! `Copy`, which is what makes an iterated HMAC cheap: the block of the key is compressed once and the state
//! behind it is reused. [`digest`] hashes a whole message. Nothing here depends on secret data for its
//! branches or its memory accesses.

/// Bytes of a block.
pub const BLOCK_BYTES: usize = 64;
/// Bytes of a digest.
pub const DIGEST_BYTES: usize = 32;

/// A digest.
pub type Digest = [u8; DIGEST_BYTES];

/// First 32 bits of the fractional parts of the cube roots of the first 64 primes (FIPS 180-4, 4.2.2).
const ROUND: [u32; 64] = [
    0x428a_2f98,
    0x7137_4491,
    0xb5c0_fbcf,
    0xe9b5_dba5,
    0x3956_c25b,
    0x59f1_11f1,
    0x923f_82a4,
    0xab1c_5ed5,
    0xd807_aa98,
    0x1283_5b01,
    0x2431_85be,
    0x550c_7dc3,
    0x72be_5d74,
    0x80de_b1fe,
    0x9bdc_06a7,
    0xc19b_f174,
    0xe49b_69c1,
    0xefbe_4786,
    0x0fc1_9dc6,
    0x240c_a1cc,
    0x2de9_2c6f,
    0x4a74_84aa,
    0x5cb0_a9dc,
    0x76f9_88da,
    0x983e_5152,
    0xa831_c66d,
    0xb003_27c8,
    0xbf59_7fc7,
    0xc6e0_0bf3,
    0xd5a7_9147,
    0x06ca_6351,
    0x1429_2967,
    0x27b7_0a85,
    0x2e1b_2138,
    0x4d2c_6dfc,
    0x5338_0d13,
    0x650a_7354,
    0x766a_0abb,
    0x81c2_c92e,
    0x9272_2c85,
    0xa2bf_e8a1,
    0xa81a_664b,
    0xc24b_8b70,
    0xc76c_51a3,
    0xd192_e819,
    0xd699_0624,
    0xf40e_3585,
    0x106a_a070,
    0x19a4_c116,
    0x1e37_6c08,
    0x2748_774c,
    0x34b0_bcb5,
    0x391c_0cb3,
    0x4ed8_aa4a,
    0x5b9c_ca4f,
    0x682e_6ff3,
    0x748f_82ee,
    0x78a5_636f,
    0x84c8_7814,
    0x8cc7_0208,
    0x90be_fffa,
    0xa450_6ceb,
    0xbef9_a3f7,
    0xc671_78f2,
];

/// First 32 bits of the fractional parts of the square roots of the first 8 primes (FIPS 180-4, 5.3.3).
const INITIAL: [u32; 8] =
    [0x6a09_e667, 0xbb67_ae85, 0x3c6e_f372, 0xa54f_f53a, 0x510e_527f, 0x9b05_688c, 0x1f83_d9ab, 0x5be0_cd19];

/// The chaining value between two blocks.
#[derive(Clone, Copy)]
pub struct State([u32; 8]);

impl State {
    /// The value before the first block.
    pub fn new() -> State {
        State(INITIAL)
    }

    /// Takes one block in (FIPS 180-4, 6.2.2).
    pub fn compress(&mut self, block: &[u8; BLOCK_BYTES]) {
        let mut schedule = [0u32; 64];
        let (words, _) = block.as_chunks::<4>();
        for (slot, word) in schedule.iter_mut().zip(words) {
            *slot = u32::from_be_bytes(*word);
        }
        for at in 16..64 {
            let (early, late) = (schedule[at - 15], schedule[at - 2]);
            let small0 = early.rotate_right(7) ^ early.rotate_right(18) ^ early >> 3;
            let small1 = late.rotate_right(17) ^ late.rotate_right(19) ^ late >> 10;
            schedule[at] =
                schedule[at - 16].wrapping_add(small0).wrapping_add(schedule[at - 7]).wrapping_add(small1);
        }
        let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = self.0;
        for (word, constant) in schedule.into_iter().zip(ROUND) {
            let big1 = e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25);
            let choice = e & f ^ !e & g;
            let first = h.wrapping_add(big1).wrapping_add(choice).wrapping_add(constant).wrapping_add(word);
            let big0 = a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22);
            let majority = a & b ^ a & c ^ b & c;
            (h, g, f, e) = (g, f, e, d.wrapping_add(first));
            (d, c, b, a) = (c, b, a, first.wrapping_add(big0.wrapping_add(majority)));
        }
        for (value, added) in self.0.iter_mut().zip([a, b, c, d, e, f, g, h]) {
            *value = value.wrapping_add(added);
        }
    }

    /// The digest of a message whose last part is `rest` and which has `bytes` bytes in all, those already
    /// compressed included.
    pub fn finish(mut self, rest: &[u8], bytes: u64) -> Digest {
        let (blocks, tail) = rest.as_chunks::<BLOCK_BYTES>();
        for block in blocks {
            self.compress(block);
        }
        let mut last = [0u8; BLOCK_BYTES];
        last[..tail.len()].copy_from_slice(tail);
        last[tail.len()] = 0x80;
        if tail.len() >= BLOCK_BYTES - 8 {
            self.compress(&last);
            last = [0; BLOCK_BYTES];
        }
        last[BLOCK_BYTES - 8..].copy_from_slice(&(bytes * 8).to_be_bytes());
        self.compress(&last);
        self.words()
    }

    /// The chaining value as bytes.
    fn words(self) -> Digest {
        let mut digest = [0; DIGEST_BYTES];
        let (slots, _) = digest.as_chunks_mut::<4>();
        for (slot, word) in slots.iter_mut().zip(self.0) {
            *slot = word.to_be_bytes();
        }
        digest
    }
}

/// The digest of a message.
pub fn digest(message: &[u8]) -> Digest {
    State::new().finish(message, message.len() as u64)
}

#[cfg(test)]
mod tests {
    extern crate alloc;

    use alloc::vec;

    use super::digest;
    use crate::hex::hex;

    #[test]
    fn digests_are_those_of_the_standard() {
        let vectors: [(&[u8], &str); 4] = [
            (b"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
            (b"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
            (
                b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
                "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1",
            ),
            (
                b"abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu",
                "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1",
            ),
        ];
        for (message, expected) in vectors {
            assert_eq!(hex(&digest(message)), expected);
        }
        let million = vec![b'a'; 1_000_000];
        assert_eq!(
            hex(&digest(&million)),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"
        );
    }

    /// Digests of that many bytes of 0x61, from an implementation of another author.
    #[test]
    fn padding_is_right_at_the_borders_of_a_block() {
        let vectors = [
            (55, "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318"),
            (56, "b35439a4ac6f0948b6d6f9e3c6af0f5f590ce20f1bde7090ef7970686ec6738a"),
            (63, "7d3e74a05d7db15bce4ad9ec0658ea98e3f06eeecf16b4c6fff2da457ddc2f34"),
            (64, "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb"),
            (65, "635361c48bb9eab14198e76ea8ab7f1a41685d6ad62aa9146d301d4f17eb0ae0"),
            (119, "31eba51c313a5c08226adf18d4a359cfdfd8d2e816b13f4af952f7ea6584dcfb"),
            (120, "2f3d335432c70b580af0e8e1b3674a7c020d683aa5f73aaaedfdc55af904c21c"),
            (128, "6836cf13bac400e9105071cd6af47084dfacad4e5e302c94bfed24e013afb73e"),
        ];
        for (bytes, expected) in vectors {
            assert_eq!(hex(&digest(&vec![b'a'; bytes])), expected, "{bytes} bytes");
        }
    }
}
