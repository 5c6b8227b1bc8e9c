//! The reply under construction.
//!
//! Bytes are appended directly to the host's buffer: one bounds check and one copy, no host call. The unwritten part of
//! the buffer is never exposed.

use core::fmt;
use core::marker::PhantomData;
use core::ptr::NonNull;
use core::sync::atomic::Ordering;
use core::sync::atomic::compiler_fence;

use crate::Error;
use crate::abi::RawReply;

/// The reply to the caller, one per invocation.
pub struct Reply<'a> {
    raw: NonNull<RawReply>,
    buffer: PhantomData<&'a mut [u8]>,
}

impl<'a> Reply<'a> {
    /// Returns the reply over a host's buffer.
    ///
    /// # Safety
    /// `raw` and the `capacity` bytes that it describes are valid for writes for `'a`, nothing else accesses them
    /// meanwhile, and the first `bytes` bytes are initialized.
    #[doc(hidden)]
    #[inline]
    pub unsafe fn from_raw(raw: NonNull<RawReply>) -> Reply<'a> {
        Reply { raw, buffer: PhantomData }
    }

    /// Appends bytes, or nothing if they do not fit.
    #[inline]
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        if bytes.len() > self.bytes_left() {
            return Err(self.refuse(bytes.len()));
        }
        // SAFETY: from_raw's caller lent the buffer for 'a; the bytes fit after those written, as just checked. They
        // cannot overlap: the written part is lent only while `self` is borrowed.
        unsafe {
            let raw = self.raw.as_ptr();
            let end = (*raw).address.add((*raw).bytes);
            (*raw).bytes += bytes.len();
            // The length comes first: a host that abandons the invocation during the copy sees what it touched.
            compiler_fence(Ordering::Release);
            core::ptr::copy_nonoverlapping(bytes.as_ptr(), end, bytes.len());
        }
        Ok(())
    }

    /// Records for the host how long the reply would have been.
    #[cold]
    #[inline(never)]
    fn refuse(&mut self, bytes: usize) -> Error {
        // SAFETY: from_raw's caller lent the description for 'a.
        unsafe {
            let raw = self.raw.as_ptr();
            (*raw).asked = (*raw).bytes.saturating_add(bytes);
        }
        Error::ReplyTooLarge
    }

    /// Appends one byte.
    #[inline]
    pub fn u8(&mut self, number: u8) -> Result<(), Error> {
        self.write(&[number])
    }

    /// Appends two bytes, little-endian.
    #[inline]
    pub fn u16(&mut self, number: u16) -> Result<(), Error> {
        self.write(&number.to_le_bytes())
    }

    /// Appends four bytes, little-endian.
    #[inline]
    pub fn u32(&mut self, number: u32) -> Result<(), Error> {
        self.write(&number.to_le_bytes())
    }

    /// Appends eight bytes, little-endian.
    #[inline]
    pub fn u64(&mut self, number: u64) -> Result<(), Error> {
        self.write(&number.to_le_bytes())
    }

    /// Appends eight bytes, little-endian.
    #[inline]
    pub fn i64(&mut self, number: i64) -> Result<(), Error> {
        self.write(&number.to_le_bytes())
    }

    /// Appends formatted text, or nothing if it does not fit; `write!(reply, "..")?` calls this.
    ///
    /// # Panics
    /// If the formatting itself fails, as in `format!`.
    pub fn write_fmt(&mut self, text: fmt::Arguments<'_>) -> Result<(), Error> {
        let before = self.len();
        let mut refused = None;
        if fmt::write(&mut Text { reply: self, refused: &mut refused }, text).is_err() {
            self.truncate(before);
            return Err(refused.expect("what is formatted does not fail by itself"));
        }
        Ok(())
    }

    /// Returns the bytes written so far, for instance to fill in a count at the front.
    #[inline]
    pub fn written(&mut self) -> &mut [u8] {
        // SAFETY: only this type wrote the first `bytes` bytes, and `self` is borrowed mutably for as long as the slice
        // lives.
        unsafe {
            let raw = self.raw.as_ptr();
            core::slice::from_raw_parts_mut((*raw).address, (*raw).bytes)
        }
    }

    /// Returns the number of bytes written.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "a length in bytes, not a collection")]
    pub fn len(&self) -> usize {
        // SAFETY: from_raw's caller lent the description for 'a.
        unsafe { (*self.raw.as_ptr()).bytes }
    }

    /// Returns the number of bytes that still fit.
    #[inline]
    pub fn bytes_left(&self) -> usize {
        // SAFETY: from_raw's caller lent the description for 'a. `bytes` never exceeds `capacity`.
        unsafe { (*self.raw.as_ptr()).capacity - (*self.raw.as_ptr()).bytes }
    }

    /// Drops all but the first `bytes` bytes.
    #[inline]
    pub fn truncate(&mut self, bytes: usize) {
        // SAFETY: from_raw's caller lent the description for 'a.
        unsafe {
            let raw = self.raw.as_ptr();
            (*raw).highest = (*raw).touched_bytes();
            (*raw).bytes = (*raw).bytes.min(bytes);
        }
    }
}

/// Receives formatted text; keeps the error if the reply refuses some.
struct Text<'r, 'a> {
    reply: &'r mut Reply<'a>,
    refused: &'r mut Option<Error>,
}

impl fmt::Write for Text<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.reply.write(text.as_bytes()).map_err(|error| {
            *self.refused = Some(error);
            fmt::Error
        })
    }
}

impl fmt::Write for Reply<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.write(text.as_bytes()).map_err(|_| fmt::Error)
    }
}

impl fmt::Debug for Reply<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Reply").field("len", &self.len()).field("bytes_left", &self.bytes_left()).finish()
    }
}

#[cfg(test)]
mod tests {
    use core::ptr::NonNull;

    use super::Reply;
    use crate::Error;
    use crate::abi::RawReply;

    fn raw_over(buffer: &mut [u8]) -> RawReply {
        RawReply { address: buffer.as_mut_ptr(), bytes: 0, capacity: buffer.len(), highest: 0, asked: 0 }
    }

    #[test]
    fn what_was_dropped_still_counts_as_touched() {
        let mut buffer = [0u8; 8];
        let mut raw = raw_over(&mut buffer);
        let description = NonNull::from(&mut raw);
        // SAFETY: buffer and description outlive the reply; the description is read between its calls alone.
        let (mut reply, touched) =
            unsafe { (Reply::from_raw(description), || (*description.as_ptr()).touched_bytes()) };
        assert_eq!(touched(), 0);
        assert_eq!(reply.write(&[1; 6]), Ok(()));
        assert_eq!(touched(), 6);
        reply.truncate(1);
        reply.truncate(0);
        assert_eq!(touched(), 6);
        assert_eq!(reply.write(&[1; 7]), Ok(()));
        assert_eq!((reply.len(), touched()), (7, 7));
    }

    #[test]
    fn a_write_that_does_not_fit_appends_nothing() {
        let mut buffer = [0u8; 8];
        let mut raw = raw_over(&mut buffer);
        // SAFETY: buffer and description outlive the reply and nobody else uses them meanwhile.
        let mut reply = unsafe { Reply::from_raw(NonNull::from(&mut raw)) };
        assert_eq!(reply.u32(7), Ok(()));
        assert_eq!(reply.write(&[1; 5]), Err(Error::ReplyTooLarge));
        assert_eq!(reply.len(), 4);
        assert_eq!(reply.write(&[1; 4]), Ok(()));
        assert_eq!(reply.bytes_left(), 0);
        assert_eq!(reply.written(), [7, 0, 0, 0, 1, 1, 1, 1]);
        reply.truncate(100);
        assert_eq!(reply.len(), 8);
        reply.truncate(2);
        assert_eq!(reply.written(), [7, 0]);
    }

    #[test]
    fn formatted_text_that_does_not_fit_appends_nothing() {
        let mut buffer = [0u8; 8];
        let mut raw = raw_over(&mut buffer);
        // SAFETY: buffer and description outlive the reply and nobody else uses them meanwhile.
        let mut reply = unsafe { Reply::from_raw(NonNull::from(&mut raw)) };
        assert_eq!(write!(reply, "{}-{:03}", "a", 7), Ok(()));
        assert_eq!(reply.written(), b"a-007");
        assert_eq!(write!(reply, "{}{}", "bcd", "e"), Err(Error::ReplyTooLarge));
        assert_eq!(reply.written(), b"a-007");
        assert_eq!(write!(&mut reply, "fgh"), Ok(()));
        assert_eq!(reply.bytes_left(), 0);
    }
}
