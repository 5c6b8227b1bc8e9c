//! Bodies of openings and tablet maps: numbers and strings one after another, without optional fields.
//!
//! They are rare, so these bodies are owned and simple, while the data requests are borrowed and fast. A number is
//! little-endian; a string is a u16 of length and UTF-8; bytes are a u32 of length and the bytes; a list is a
//! u32 of count and its elements. Reading never panics and never allocates more than a small multiple of the received
//! bytes.

use crate::name::name_is_valid;
use crate::status::Status;

/// A body that is written and read as a whole.
pub trait Body: Sized {
    /// Appends the body.
    fn write(&self, writer: &mut BodyWriter);

    /// Reads the body from the reader's position.
    ///
    /// # Errors
    /// [`Status::Malformed`], or the limit that is exceeded.
    fn read(reader: &mut BodyReader<'_>) -> Result<Self, Status>;

    /// Returns the encoded body.
    fn encode(&self) -> Vec<u8> {
        let mut writer = BodyWriter::new();
        self.write(&mut writer);
        writer.into_bytes()
    }

    /// Reads a body that must end with its last field.
    ///
    /// # Errors
    /// As [`Body::read`].
    fn decode(body: &[u8]) -> Result<Self, Status> {
        let mut reader = BodyReader::new(body);
        let value = Self::read(&mut reader)?;
        reader.finish()?;
        Ok(value)
    }
}

/// A list.
impl<T: Body> Body for Vec<T> {
    fn write(&self, writer: &mut BodyWriter) {
        writer.u32(self.len() as u32);
        for element in self {
            element.write(writer);
        }
    }

    fn read(reader: &mut BodyReader<'_>) -> Result<Vec<T>, Status> {
        let count = reader.u32()? as usize;
        // An element has at least one byte, so a count beyond the rest is invalid and must not reserve capacity.
        if count > reader.bytes_left() {
            return Err(Status::Malformed);
        }
        let mut list = Vec::new();
        for _ in 0..count {
            list.push(T::read(reader)?);
        }
        Ok(list)
    }
}

/// Appends fields to a body.
#[derive(Debug, Default)]
pub struct BodyWriter {
    bytes: Vec<u8>,
}

impl BodyWriter {
    /// Creates an empty body.
    pub const fn new() -> BodyWriter {
        BodyWriter { bytes: Vec::new() }
    }

    /// Returns the body.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Appends one byte.
    pub fn u8(&mut self, value: u8) {
        self.bytes.push(value);
    }

    /// Appends one byte, 0 or 1.
    pub fn flag(&mut self, value: bool) {
        self.u8(u8::from(value));
    }

    /// Appends two bytes.
    pub fn u16(&mut self, value: u16) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    /// Appends four bytes.
    pub fn u32(&mut self, value: u32) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    /// Appends eight bytes.
    pub fn u64(&mut self, value: u64) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    /// Appends a string; one beyond 65,535 bytes is cut at a character.
    pub fn text(&mut self, value: &str) {
        let cut = &value[..value.floor_char_boundary(u16::MAX as usize)];
        self.u16(cut.len() as u16);
        self.bytes.extend_from_slice(cut.as_bytes());
    }

    /// Appends bytes of a fixed number.
    pub fn array<const N: usize>(&mut self, value: &[u8; N]) {
        self.bytes.extend_from_slice(value);
    }

    /// Appends bytes.
    ///
    /// # Panics
    /// For 4 GiB or more, which no body may have.
    pub fn blob(&mut self, value: &[u8]) {
        self.u32(u32::try_from(value.len()).expect("a body is smaller than 4 GiB"));
        self.bytes.extend_from_slice(value);
    }
}

/// Takes fields off a body.
#[derive(Clone, Copy, Debug)]
pub struct BodyReader<'a> {
    rest: &'a [u8],
}

impl<'a> BodyReader<'a> {
    /// Creates a reader at the start of `body`.
    pub const fn new(body: &'a [u8]) -> BodyReader<'a> {
        BodyReader { rest: body }
    }

    /// Returns the number of bytes not read yet.
    pub const fn bytes_left(&self) -> usize {
        self.rest.len()
    }

    /// Checks that all bytes were read.
    ///
    /// # Errors
    /// [`Status::Malformed`].
    pub const fn finish(self) -> Result<(), Status> {
        if self.rest.is_empty() { Ok(()) } else { Err(Status::Malformed) }
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], Status> {
        let (head, rest) = self.rest.split_first_chunk().ok_or(Status::Malformed)?;
        self.rest = rest;
        Ok(*head)
    }

    /// Takes one byte.
    ///
    /// # Errors
    /// [`Status::Malformed`] if it is missing, here and in the other methods.
    pub fn u8(&mut self) -> Result<u8, Status> {
        Ok(u8::from_le_bytes(self.take()?))
    }

    /// Takes one byte that must be 0 or 1.
    ///
    /// # Errors
    /// [`Status::Malformed`].
    pub fn flag(&mut self) -> Result<bool, Status> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Status::Malformed),
        }
    }

    /// Takes two bytes.
    ///
    /// # Errors
    /// [`Status::Malformed`].
    pub fn u16(&mut self) -> Result<u16, Status> {
        Ok(u16::from_le_bytes(self.take()?))
    }

    /// Takes four bytes.
    ///
    /// # Errors
    /// [`Status::Malformed`].
    pub fn u32(&mut self) -> Result<u32, Status> {
        Ok(u32::from_le_bytes(self.take()?))
    }

    /// Takes eight bytes.
    ///
    /// # Errors
    /// [`Status::Malformed`].
    pub fn u64(&mut self) -> Result<u64, Status> {
        Ok(u64::from_le_bytes(self.take()?))
    }

    /// Takes bytes of a fixed number.
    ///
    /// # Errors
    /// [`Status::Malformed`].
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Status> {
        self.take()
    }

    /// Takes a string.
    ///
    /// # Errors
    /// [`Status::Malformed`], also if it is not UTF-8.
    pub fn text(&mut self) -> Result<&'a str, Status> {
        let length = self.u16()? as usize;
        let bytes = self.slice(length)?;
        core::str::from_utf8(bytes).map_err(|_| Status::Malformed)
    }

    /// Takes a string that must be a name.
    ///
    /// # Errors
    /// [`Status::Malformed`], or [`Status::NameInvalid`] for an invalid name.
    pub fn name(&mut self) -> Result<&'a str, Status> {
        let length = self.u16()? as usize;
        let name = core::str::from_utf8(self.slice(length)?).map_err(|_| Status::NameInvalid)?;
        if name_is_valid(name) { Ok(name) } else { Err(Status::NameInvalid) }
    }

    /// Takes bytes.
    ///
    /// # Errors
    /// [`Status::Malformed`].
    pub fn blob(&mut self) -> Result<&'a [u8], Status> {
        let length = self.u32()? as usize;
        self.slice(length)
    }

    fn slice(&mut self, length: usize) -> Result<&'a [u8], Status> {
        let (bytes, rest) = self.rest.split_at_checked(length).ok_or(Status::Malformed)?;
        self.rest = rest;
        Ok(bytes)
    }
}
