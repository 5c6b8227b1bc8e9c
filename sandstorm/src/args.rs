//! The arguments of a function, and a reader that decodes them.
//!
//! Numbers are little-endian. Reading past the end returns [`Error::BadArguments`] and never panics.

use crate::Error;
use crate::Table;
use crate::abi::Call;

/// The caller's table, key and arguments. Cheap to copy; lives as long as the invocation.
#[derive(Clone, Copy, Debug)]
pub struct Args<'a> {
    table: Table,
    key: &'a [u8],
    bytes: &'a [u8],
}

impl<'a> Args<'a> {
    /// Returns the arguments of a call.
    ///
    /// # Safety
    /// `call` is readable, and its key and arguments stay readable and unchanged for `'a`.
    #[doc(hidden)]
    #[inline]
    pub unsafe fn of(call: *const Call) -> Args<'a> {
        // SAFETY: the caller guarantees a readable call with slices that live for 'a.
        unsafe {
            Args {
                table: Table::from_id((*call).table),
                key: (*call).key.as_slice(),
                bytes: (*call).arguments.as_slice(),
            }
        }
    }

    /// Returns the table that the caller named.
    #[inline]
    pub fn table(self) -> Table {
        self.table
    }

    /// Returns the key that routed the invocation; may be empty.
    #[inline]
    pub fn key(self) -> &'a [u8] {
        self.key
    }

    /// Returns the raw bytes of the arguments.
    #[inline]
    pub fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// Returns a reader over the arguments.
    #[inline]
    pub fn reader(self) -> Reader<'a> {
        Reader::new(self.bytes)
    }
}

/// Decodes a byte string from front to back.
///
/// ```
/// let mut reader = sandstorm::Reader::new(&[1, 2, 0, b'x']);
/// assert_eq!(reader.u8(), Ok(1));
/// assert_eq!(reader.u16(), Ok(2));
/// assert_eq!(reader.rest(), b"x");
/// assert!(reader.u8().is_err());
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Returns a reader over any bytes, for instance a record's value.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    /// Reads one byte.
    #[inline]
    pub fn u8(&mut self) -> Result<u8, Error> {
        self.array::<1>().map(|bytes| bytes[0])
    }

    /// Reads two bytes.
    #[inline]
    pub fn u16(&mut self) -> Result<u16, Error> {
        self.array().map(u16::from_le_bytes)
    }

    /// Reads four bytes.
    #[inline]
    pub fn u32(&mut self) -> Result<u32, Error> {
        self.array().map(u32::from_le_bytes)
    }

    /// Reads eight bytes.
    #[inline]
    pub fn u64(&mut self) -> Result<u64, Error> {
        self.array().map(u64::from_le_bytes)
    }

    /// Reads eight bytes, signed.
    #[inline]
    pub fn i64(&mut self) -> Result<i64, Error> {
        self.array().map(i64::from_le_bytes)
    }

    /// Reads the next `count` bytes.
    #[inline]
    pub fn bytes(&mut self, count: usize) -> Result<&'a [u8], Error> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(Error::BadArguments)?;
        self.rest = rest;
        Ok(taken)
    }

    /// Reads the next `N` bytes.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let (taken, rest) = self.rest.split_first_chunk::<N>().ok_or(Error::BadArguments)?;
        self.rest = rest;
        Ok(*taken)
    }

    /// Reads all remaining bytes; the reader is empty afterwards.
    #[inline]
    pub fn rest(&mut self) -> &'a [u8] {
        core::mem::take(&mut self.rest)
    }

    /// Returns the number of remaining bytes.
    #[inline]
    pub fn bytes_left(&self) -> usize {
        self.rest.len()
    }

    /// Returns [`Error::BadArguments`] if bytes remain.
    #[inline]
    pub fn finish(self) -> Result<(), Error> {
        if self.rest.is_empty() { Ok(()) } else { Err(Error::BadArguments) }
    }
}

#[cfg(test)]
mod tests {
    use super::Reader;
    use crate::Error;

    #[test]
    fn reading_past_the_end_is_an_error_and_takes_nothing() {
        let mut reader = Reader::new(&[1, 2, 3]);
        assert_eq!(reader.u32(), Err(Error::BadArguments));
        assert_eq!(reader.bytes(4), Err(Error::BadArguments));
        assert_eq!(reader.bytes(usize::MAX), Err(Error::BadArguments));
        assert_eq!(reader.bytes_left(), 3);
        assert_eq!(reader.bytes(3), Ok(&[1, 2, 3][..]));
        assert_eq!(reader.finish(), Ok(()));
    }

    #[test]
    fn numbers_are_little_endian() {
        let bytes = [0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];
        assert_eq!(Reader::new(&bytes).i64(), Ok(-2));
        assert_eq!(Reader::new(&bytes).u64(), Ok(u64::MAX - 1));
        assert_eq!(Reader::new(&bytes).u32(), Ok(u32::MAX - 1));
        assert_eq!(Reader::new(&bytes).u16(), Ok(u16::MAX - 1));
    }

    #[test]
    fn bytes_left_over_are_refused() {
        assert_eq!(Reader::new(&[0]).finish(), Err(Error::BadArguments));
    }
}
