//! CRC-32C (Castagnoli, RFC 3720) in safe code: eight bytes a step through eight tables.
//!
//! The tables are computed while the crate is compiled. A record may be fed in pieces: [`Crc`] carries the
//! state between them.

/// The polynomial 0x1EDC6F41, bits reversed.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// `TABLES[k][b]`: what the byte `b` does to the state when `k` more bytes follow in the same step.
const TABLES: &[[u32; 256]; 8] = &{
    let mut tables = [[0u32; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut state = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            state = if state & 1 == 1 { state >> 1 ^ POLYNOMIAL } else { state >> 1 };
            bit += 1;
        }
        tables[0][byte] = state;
        byte += 1;
    }
    let mut table = 1;
    while table < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[table - 1][byte];
            tables[table][byte] = before >> 8 ^ tables[0][(before & 0xff) as usize];
            byte += 1;
        }
        table += 1;
    }
    tables
};

/// A checksum under way.
#[derive(Clone, Copy, Debug)]
pub struct Crc {
    /// Complemented, as it is between bytes.
    state: u32,
}

impl Crc {
    /// Of no bytes.
    pub fn new() -> Crc {
        Crc { state: !0 }
    }

    /// Takes more bytes in.
    pub fn update(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        let mut state = self.state;
        for word in words {
            let [a, b, c, d, e, f, g, h] = (u64::from_le_bytes(*word) ^ u64::from(state)).to_le_bytes();
            state = TABLES[7][a as usize]
                ^ TABLES[6][b as usize]
                ^ TABLES[5][c as usize]
                ^ TABLES[4][d as usize]
                ^ TABLES[3][e as usize]
                ^ TABLES[2][f as usize]
                ^ TABLES[1][g as usize]
                ^ TABLES[0][h as usize];
        }
        for byte in rest {
            state = state >> 8 ^ TABLES[0][(state as u8 ^ byte) as usize];
        }
        self.state = state;
    }

    /// The checksum of the bytes so far.
    pub fn value(self) -> u32 {
        !self.state
    }
}

#[cfg(test)]
mod tests {
    use super::Crc;
    use super::POLYNOMIAL;

    fn crc(bytes: &[u8]) -> u32 {
        let mut crc = Crc::new();
        crc.update(bytes);
        crc.value()
    }

    /// One bit at a time, as the definition says.
    fn slow(bytes: &[u8]) -> u32 {
        let mut state = !0u32;
        for byte in bytes {
            state ^= u32::from(*byte);
            for _ in 0..8 {
                state = if state & 1 == 1 { state >> 1 ^ POLYNOMIAL } else { state >> 1 };
            }
        }
        !state
    }

    #[test]
    fn checksums_are_those_of_rfc_3720() {
        assert_eq!(crc(b""), 0);
        assert_eq!(crc(b"123456789"), 0xe306_9283);
        assert_eq!(crc(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc(&[0xff; 32]), 0x62a8_ab43);
        let ascending: [u8; 32] = core::array::from_fn(|at| at as u8);
        assert_eq!(crc(&ascending), 0x46dd_794e);
    }

    #[test]
    fn pieces_of_every_length_give_the_checksum_of_the_whole() {
        let bytes: [u8; 100] = core::array::from_fn(|at| (at * 37 + 11) as u8);
        for length in 0..=bytes.len() {
            assert_eq!(crc(&bytes[..length]), slow(&bytes[..length]), "{length} bytes");
            let (left, right) = bytes.split_at(length);
            let mut crc = Crc::new();
            crc.update(left);
            crc.update(right);
            assert_eq!(crc.value(), slow(&bytes), "cut at {length}");
        }
    }
}
