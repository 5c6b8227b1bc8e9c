//! The generated data set: which key and which value belong to an index.
//!
//! Keys are `user` and the index in decimal digits with leading zeros, so that a Redis or memcached
//! loaded by another tool holds the very same keys. The first eight bytes of a value are the index,
//! little-endian, the rest is a fixed pattern: a reader can tell a right answer from a wrong one.
//! Nothing here allocates after construction; `scripts/peers` relies on the format.

/// Bytes that every key starts with.
const PREFIX: &[u8] = b"user";

/// Bytes of the shortest key: the prefix and twelve digits.
pub const KEY_BYTES_MIN: usize = 16;

/// Bytes of the longest key, which fits a frame with room for a value.
pub const KEY_BYTES_MAX: usize = 255;

/// Bytes of the shortest value: the index.
pub const VALUE_BYTES_MIN: usize = 8;

/// The shape of the data set.
#[derive(Clone, Debug)]
pub struct Dataset {
    keys: u64,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl Dataset {
    /// A data set of `keys` objects; refuses sizes that cannot hold an index.
    pub fn new(keys: u64, key_bytes: usize, value_bytes: usize) -> Result<Self, String> {
        if !(KEY_BYTES_MIN..=KEY_BYTES_MAX).contains(&key_bytes) {
            return Err(format!("keys have {KEY_BYTES_MIN} to {KEY_BYTES_MAX} bytes, not {key_bytes}"));
        }
        if value_bytes < VALUE_BYTES_MIN {
            return Err(format!("values have at least {VALUE_BYTES_MIN} bytes, not {value_bytes}"));
        }
        if keys == 0 || keys > 1_000_000_000_000 {
            return Err(format!("a data set has 1 to 10^12 objects, not {keys}"));
        }
        let mut key = vec![b'0'; key_bytes];
        key[..PREFIX.len()].copy_from_slice(PREFIX);
        let value = (0..value_bytes).map(|at| b'a' + (at % 26) as u8).collect();
        Ok(Self { keys, key, value })
    }

    /// Number of objects.
    pub fn keys(&self) -> u64 {
        self.keys
    }

    /// Bytes of each key.
    pub fn key_bytes(&self) -> usize {
        self.key.len()
    }

    /// Bytes of each value.
    pub fn value_bytes(&self) -> usize {
        self.value.len()
    }

    /// The key of `index`, in a buffer that the next call overwrites.
    pub fn key(&mut self, index: u64) -> &[u8] {
        write_digits(&mut self.key[PREFIX.len()..], index);
        &self.key
    }

    /// Key and value of `index`, in buffers that the next call overwrites.
    pub fn object(&mut self, index: u64) -> (&[u8], &[u8]) {
        write_digits(&mut self.key[PREFIX.len()..], index);
        self.value[..8].copy_from_slice(&index.to_le_bytes());
        (&self.key, &self.value)
    }
}

/// The index that a value belongs to, if it is long enough to say.
pub fn index_of(value: &[u8]) -> Option<u64> {
    value.first_chunk::<8>().map(|bytes| u64::from_le_bytes(*bytes))
}

/// Writes `number` in decimal over the end of `out` and zeros before it.
fn write_digits(out: &mut [u8], mut number: u64) {
    for digit in out.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

#[cfg(test)]
mod tests {
    use super::{Dataset, index_of};

    #[test]
    fn a_key_is_the_index_in_thirty_bytes() {
        let mut data = Dataset::new(1_000_000, 30, 100).unwrap();
        assert_eq!(data.key(7), b"user00000000000000000000000007");
        assert_eq!(data.key(999_999), b"user00000000000000000000999999");
        assert_eq!(data.key(0), format!("user{:026}", 0).as_bytes());
    }

    #[test]
    fn a_value_names_its_index() {
        let mut data = Dataset::new(1_000_000, 30, 100).unwrap();
        let (_, value) = data.object(123_456);
        assert_eq!(value.len(), 100);
        assert_eq!(index_of(value), Some(123_456));
        assert_eq!(index_of(&value[..7]), None);
    }

    #[test]
    fn sizes_without_room_for_an_index_are_refused() {
        assert!(Dataset::new(10, 15, 100).is_err());
        assert!(Dataset::new(10, 300, 100).is_err());
        assert!(Dataset::new(10, 30, 7).is_err());
        assert!(Dataset::new(0, 30, 100).is_err());
    }
}
