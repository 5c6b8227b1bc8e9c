//! Fields of messages between servers of a cluster, decoded from the front of the bytes: little-endian integers, and
//! blobs preceded by their length.
//!
//! It never reads beyond the end and rejects a length that exceeds the bytes. The error is [`NoField`], which each
//! decoder converts to its own.

/// The undecoded rest of a message.
pub struct Fields<'a>(&'a [u8]);

/// The bytes end before the field does, or hold an invalid value.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct NoField;

impl<'a> Fields<'a> {
    /// Wraps these bytes.
    #[must_use]
    pub const fn of(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Returns whether nothing is left.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn array<const BYTES: usize>(&mut self) -> Result<[u8; BYTES], NoField> {
        let (array, rest) = self.0.split_first_chunk().ok_or(NoField)?;
        self.0 = rest;
        Ok(*array)
    }

    /// Takes one byte.
    ///
    /// # Errors
    /// [`NoField`], as for all functions below.
    pub fn byte(&mut self) -> Result<u8, NoField> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    /// Takes a `u32`, four bytes.
    pub fn number(&mut self) -> Result<u32, NoField> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// Takes a `u64`, eight bytes.
    pub fn long(&mut self) -> Result<u64, NoField> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// Takes a byte that is 0 or 1.
    pub fn flag(&mut self) -> Result<bool, NoField> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(NoField),
        }
    }

    /// Takes the number of the following items of `item_bytes` bytes, and checks that they fit.
    pub fn count(&mut self, item_bytes: usize) -> Result<usize, NoField> {
        let count = self.number()? as usize;
        let fits = count.checked_mul(item_bytes).is_some_and(|bytes| bytes <= self.0.len());
        if fits { Ok(count) } else { Err(NoField) }
    }

    /// Takes a blob of at most `bytes_max` bytes, preceded by its length.
    pub fn blob(&mut self, bytes_max: usize) -> Result<&'a [u8], NoField> {
        let bytes = self.count(1)?;
        if bytes > bytes_max {
            return Err(NoField);
        }
        let (blob, rest) = self.0.split_at(bytes);
        self.0 = rest;
        Ok(blob)
    }

    /// Takes all remaining bytes.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }
}
