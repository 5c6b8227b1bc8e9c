//! The database of an extension: a host's call table and its context.
//!
//! This file has the calls that never wait; the operations that may are in `access`.

use core::ffi::c_void;
use core::fmt;

use crate::abi::Host;
use crate::abi::RawSlice;

/// Maximum length of a log line, which is cut beyond it; longer lines would only cost stack.
const LOG_LINE_BYTES_MAX: usize = 256;

/// The store, within one invocation. Memory that it lends lives for `'a`, the invocation; that of a page ends earlier.
pub struct Db<'a> {
    host: &'a Host,
    context: *mut c_void,
}

/// Severity of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Something failed.
    Error = 0,
    /// Something looks wrong.
    Warning = 1,
    /// Worth knowing.
    Information = 2,
    /// Details for the author.
    Debug = 3,
}

impl<'a> Db<'a> {
    /// Returns the database of a host.
    ///
    /// # Safety
    /// The calls of `host` may be made with `context` on this thread for `'a`; slices that they lend stay readable and
    /// unchanged for `'a`, those of a page until the next call with its memory.
    #[doc(hidden)]
    #[inline]
    pub unsafe fn from_raw(host: &'a Host, context: *mut c_void) -> Db<'a> {
        Db { host, context }
    }

    /// Writes a line to the tenant's log: `db.log(Level::Debug, format_args!("{count} edges"))`. Cuts the line after
    /// 256 bytes; the server limits how many lines it keeps.
    pub fn log(&self, level: Level, text: fmt::Arguments<'_>) {
        let mut line = Line { bytes: [0; LOG_LINE_BYTES_MAX], used: 0 };
        // A cut line ends the formatting with an error, and the author's own Display may fail: the text formatted until
        // then is logged.
        let _ = fmt::write(&mut line, text);
        let text = RawSlice::of(&line.bytes[..line.used]);
        // SAFETY: from_raw's caller allows calls of `host` with `context`; the text lives during the call.
        unsafe { (self.host.log)(self.context, level as u32, text) }
    }

    /// Returns the milliseconds since 1970, by the server's clock.
    #[inline]
    pub fn now_ms(&self) -> u64 {
        // SAFETY: from_raw's caller allows calls of `host` with `context`.
        unsafe { (self.host.now_ms)(self.context) }
    }

    /// Returns the host's calls.
    #[inline]
    pub(crate) fn host(&self) -> &'a Host {
        self.host
    }

    /// Returns the context of the host's calls.
    #[inline]
    pub(crate) fn context(&self) -> *mut c_void {
        self.context
    }
}

impl fmt::Debug for Db<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Db")
    }
}

/// A log line that is cut, at a character boundary, when its buffer is full.
struct Line {
    bytes: [u8; LOG_LINE_BYTES_MAX],
    used: usize,
}

impl fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = &mut self.bytes[self.used..];
        let count = text.floor_char_boundary(room.len());
        room[..count].copy_from_slice(&text.as_bytes()[..count]);
        self.used += count;
        if count == text.len() { Ok(()) } else { Err(fmt::Error) }
    }
}
