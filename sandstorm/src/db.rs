//! The database as an extension sees it: a host's calls, and what they are called with.
//!
//! Here are the calls that never wait; the operations that may are in `access`.

use core::ffi::c_void;
use core::fmt;

use crate::abi::Host;
use crate::abi::RawSlice;

/// A log line longer than this is cut; longer lines would only cost stack.
const LOG_LINE_BYTES_MAX: usize = 256;

/// The store, within one invocation. What it lends lives for `'a`, the invocation.
pub struct Db<'a> {
    host: &'a Host,
    context: *mut c_void,
}

/// How much a log line matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Something failed.
    Error = 0,
    /// Something looks wrong.
    Warning = 1,
    /// Worth knowing.
    Information = 2,
    /// For the author.
    Debug = 3,
}

impl<'a> Db<'a> {
    /// The database of a host.
    ///
    /// # Safety
    /// The calls of `host` may be made with `context` on this thread for `'a`; slices that they lend stay
    /// readable and unchanged for `'a`.
    #[doc(hidden)]
    #[inline]
    pub unsafe fn from_raw(host: &'a Host, context: *mut c_void) -> Db<'a> {
        Db { host, context }
    }

    /// Writes a line to the tenant's log: `db.log(Level::Debug, format_args!("{count} edges"))`. Lines
    /// beyond 256 bytes are cut; the server limits how many it keeps.
    pub fn log(&self, level: Level, text: fmt::Arguments<'_>) {
        let mut line = Line { bytes: [0; LOG_LINE_BYTES_MAX], used: 0 };
        // A cut line ends the formatting with an error, and the text of the author's own Display may fail:
        // what was formatted until then is logged.
        let _ = fmt::write(&mut line, text);
        let text = RawSlice::of(&line.bytes[..line.used]);
        // SAFETY: from_raw's caller lets `host` be called with `context`; the text lives over the call.
        unsafe { (self.host.log)(self.context, level as u32, text) }
    }

    /// Milliseconds since 1970, as the server's clock says.
    #[inline]
    pub fn now_ms(&self) -> u64 {
        // SAFETY: from_raw's caller lets `host` be called with `context`.
        unsafe { (self.host.now_ms)(self.context) }
    }

    /// The host's calls.
    #[inline]
    pub(crate) fn host(&self) -> &'a Host {
        self.host
    }

    /// What the host's calls get.
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

/// A log line that is cut, at a character's border, when its buffer is full.
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
