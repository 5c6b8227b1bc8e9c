//! Enumeration of whole tables: objects page by page, from a cursor, in arbitrary order.

use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::Context;
use core::task::Poll;

use crate::Db;
use crate::EntryPage;
use crate::Error;
use crate::Table;
use crate::abi::CURSOR_BYTES_MAX;
use crate::abi::RawListed;
use crate::abi::RawSlice;
use crate::operation::poll_of;

/// The position of an enumeration. The store defines its bytes, which are valid only for their table; they may be
/// stored in an object or returned to the caller.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Cursor {
    bytes: [u8; CURSOR_BYTES_MAX],
    used: usize,
}

impl Cursor {
    /// Returns the cursor before the first object.
    pub const fn start() -> Cursor {
        Cursor { bytes: [0; CURSOR_BYTES_MAX], used: 0 }
    }

    /// Restores a cursor from its bytes; no bytes mean the start. The store refuses bytes that it did not create.
    ///
    /// # Errors
    /// [`Error::CursorInvalid`] for more bytes than a cursor has.
    pub fn from_bytes(bytes: &[u8]) -> Result<Cursor, Error> {
        let mut cursor = Cursor::start();
        cursor.bytes.get_mut(..bytes.len()).ok_or(Error::CursorInvalid)?.copy_from_slice(bytes);
        cursor.used = bytes.len();
        Ok(cursor)
    }

    /// Returns the bytes of the cursor, at most 64; empty at the start.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.used]
    }
}

impl fmt::Debug for Cursor {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Cursor({:?})", self.as_bytes())
    }
}

/// Future of [`Db::enumerate`].
#[derive(Debug)]
#[must_use = "futures do nothing unless you `.await` them"]
pub struct Enumerate<'f, 'a> {
    pub(crate) db: &'f Db<'a>,
    pub(crate) table: Table,
    pub(crate) cursor: Cursor,
    pub(crate) page: &'f mut EntryPage<'a>,
    pub(crate) ticket: u64,
}

impl Future for Enumerate<'_, '_> {
    type Output = Result<Option<Cursor>, Error>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let (entries, capacity) = this.page.clear();
        if capacity == 0 {
            return Poll::Ready(Err(Error::BadArguments));
        }
        let mut listed = RawListed {
            count: 0,
            cursor_bytes: 0,
            cursor: [0; CURSOR_BYTES_MAX],
            page: this.page.memory.pass(),
        };
        // SAFETY: the Db's creator allows the call; cursor and buffers live during it.
        let code = unsafe {
            (this.db.host().enumerate)(
                this.db.context(),
                &mut this.ticket,
                this.table.id(),
                RawSlice::of(this.cursor.as_bytes()),
                entries,
                capacity,
                &mut listed,
            )
        };
        this.page.memory.set(listed.page);
        poll_of(code, &mut this.ticket).map_ok(|()| {
            // SAFETY: a host that returns OK has filled this many entries with memory lent for 'a, or until its next
            // call with the page's memory.
            unsafe { this.page.set_filled(listed.count) };
            let used = listed.cursor_bytes.min(CURSOR_BYTES_MAX);
            (used > 0).then_some(Cursor { bytes: listed.cursor, used })
        })
    }
}
