//! Fields of what one server of a cluster says to another, taken off the front of its bytes: integers in little endian,
//! and what has its length before it.
//!
//! Nothing is read behind the end, and no length is believed that the bytes do not have: what is wrong is [`NoField`], and
//! whoever decodes makes an error of its own of it.

/// See the file's head.
pub struct Fields<'a>(&'a [u8]);

/// The bytes end before the field does, or are none of its values.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct NoField;

impl<'a> Fields<'a> {
    /// All of these bytes.
    #[must_use]
    pub const fn of(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Whether nothing is left.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn array<const BYTES: usize>(&mut self) -> Result<[u8; BYTES], NoField> {
        let (array, rest) = self.0.split_first_chunk().ok_or(NoField)?;
        self.0 = rest;
        Ok(*array)
    }

    /// One byte.
    ///
    /// # Errors
    /// As all below: [`NoField`].
    pub fn byte(&mut self) -> Result<u8, NoField> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    /// Four bytes.
    pub fn number(&mut self) -> Result<u32, NoField> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// Eight bytes.
    pub fn long(&mut self) -> Result<u64, NoField> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// A byte that is 0 or 1.
    pub fn flag(&mut self) -> Result<bool, NoField> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(NoField),
        }
    }

    /// How many items of so many bytes follow, which are there.
    pub fn count(&mut self, item_bytes: usize) -> Result<usize, NoField> {
        let count = self.number()? as usize;
        let is_there = count.checked_mul(item_bytes).is_some_and(|bytes| bytes <= self.0.len());
        if is_there { Ok(count) } else { Err(NoField) }
    }

    /// At most so many bytes, behind their number.
    pub fn blob(&mut self, bytes_max: usize) -> Result<&'a [u8], NoField> {
        let bytes = self.count(1)?;
        if bytes > bytes_max {
            return Err(NoField);
        }
        let (blob, rest) = self.0.split_at(bytes);
        self.0 = rest;
        Ok(blob)
    }

    /// All that is left.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }
}
