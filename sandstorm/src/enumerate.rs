//! Enumeration of whole tables: objects page by page, from a cursor, in arbitrary order.

use core::fmt;
use core::future::Future;
use core::mem::MaybeUninit;
use core::pin::Pin;
use core::task::Context;
use core::task::Poll;

use crate::Db;
use crate::Entry;
use crate::Error;
use crate::Table;
use crate::abi::CURSOR_BYTES_MAX;
use crate::abi::RawEntry;
use crate::abi::RawListed;
use crate::abi::RawSlice;
use crate::operation::poll_of;

/// Objects of one page: enough to overlap memory accesses, with little space on the stack.
const PAGE_ENTRIES: usize = 32;

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

/// The result of reading a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// Number of objects found; may be 0 before the end too.
    pub count: usize,
    /// Start of the next page; `None` at the end.
    pub next: Option<Cursor>,
}

/// Future of [`Db::enumerate`].
#[derive(Debug)]
#[must_use = "futures do nothing unless you `.await` them"]
pub struct Enumerate<'f, 'a> {
    pub(crate) db: &'f Db<'a>,
    pub(crate) table: Table,
    pub(crate) cursor: Cursor,
    pub(crate) entries: &'f mut [Option<Entry<'a>>],
    pub(crate) ticket: u64,
}

impl Future for Enumerate<'_, '_> {
    type Output = Result<Page, Error>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let capacity = this.entries.len().min(PAGE_ENTRIES);
        if capacity == 0 {
            return Poll::Ready(Err(Error::BadArguments));
        }
        let mut raw = [const { MaybeUninit::<RawEntry>::uninit() }; PAGE_ENTRIES];
        let mut listed = RawListed { count: 0, cursor_bytes: 0, cursor: [0; CURSOR_BYTES_MAX] };
        // SAFETY: the Db's creator allows the call; cursor and buffers live during it. MaybeUninit<T> has the layout of
        // T.
        let code = unsafe {
            (this.db.host().enumerate)(
                this.db.context(),
                &mut this.ticket,
                this.table.id(),
                RawSlice::of(this.cursor.as_bytes()),
                raw.as_mut_ptr().cast(),
                capacity,
                &mut listed,
            )
        };
        poll_of(code, &mut this.ticket).map_ok(|()| {
            let count = listed.count.min(capacity);
            this.entries.fill(None);
            for (entry, raw) in this.entries.iter_mut().zip(&raw[..count]) {
                // SAFETY: a host that returns OK has filled this many entries with memory lent for 'a.
                *entry = Some(unsafe { Entry::from_raw(raw.assume_init()) });
            }
            let used = listed.cursor_bytes.min(CURSOR_BYTES_MAX);
            Page { count, next: (used > 0).then_some(Cursor { bytes: listed.cursor, used }) }
        })
    }
}
