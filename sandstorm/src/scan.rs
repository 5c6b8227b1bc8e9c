//! Scans of ordered tables: key ranges, and their objects in key order.

use core::future::Future;
use core::mem::MaybeUninit;
use core::pin::Pin;
use core::task::Context;
use core::task::Poll;

use crate::Db;
use crate::Error;
use crate::Table;
use crate::abi::RANGE_HAS_AFTER;
use crate::abi::RANGE_HAS_TO;
use crate::abi::RANGE_REVERSE;
use crate::abi::RawEntry;
use crate::abi::RawRange;
use crate::abi::RawScanned;
use crate::abi::RawSlice;
use crate::operation::poll_of;

/// Objects per host call: enough to overlap memory accesses, with little space in the future.
const CHUNK_ENTRIES: usize = 32;

/// A range of keys of an ordered table, with a direction and a limit.
///
/// ```
/// # use sandstorm::KeyRange;
/// let newest = KeyRange::prefix(b"user:7:").reverse().limit(10);
/// let between = KeyRange::all().from(b"a").to(b"c");
/// # let _ = (newest, between);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyRange<'r> {
    from: &'r [u8],
    to: Option<&'r [u8]>,
    prefix: &'r [u8],
    after: Option<&'r [u8]>,
    reverse: bool,
    limit: Option<usize>,
}

impl<'r> KeyRange<'r> {
    /// Returns the range of all keys, in ascending order.
    pub const fn all() -> KeyRange<'r> {
        KeyRange { from: &[], to: None, prefix: &[], after: None, reverse: false, limit: None }
    }

    /// Returns the range of the keys that begin with `prefix`.
    pub const fn prefix(prefix: &'r [u8]) -> KeyRange<'r> {
        KeyRange { prefix, ..KeyRange::all() }
    }

    /// Restricts the range to this key and larger ones.
    pub const fn from(self, from: &'r [u8]) -> KeyRange<'r> {
        KeyRange { from, ..self }
    }

    /// Restricts the range to keys below this one.
    pub const fn to(self, to: &'r [u8]) -> KeyRange<'r> {
        KeyRange { to: Some(to), ..self }
    }

    /// Restricts the range to keys after this one in scan order, to continue a scan.
    pub const fn after(self, after: &'r [u8]) -> KeyRange<'r> {
        KeyRange { after: Some(after), ..self }
    }

    /// Reverses the order: from the largest key to the smallest.
    pub const fn reverse(self) -> KeyRange<'r> {
        KeyRange { reverse: true, ..self }
    }

    /// Limits the number of objects.
    pub const fn limit(self, limit: usize) -> KeyRange<'r> {
        KeyRange { limit: Some(limit), ..self }
    }

    /// Returns the ABI form, starting after `after` if that is given.
    fn raw(&self, after: Option<&[u8]>) -> RawRange {
        let after = after.or(self.after);
        let flag = |is_set: bool, flag: u32| if is_set { flag } else { 0 };
        RawRange {
            from: RawSlice::of(self.from),
            to: RawSlice::of(self.to.unwrap_or_default()),
            prefix: RawSlice::of(self.prefix),
            after: RawSlice::of(after.unwrap_or_default()),
            flags: flag(self.to.is_some(), RANGE_HAS_TO)
                | flag(after.is_some(), RANGE_HAS_AFTER)
                | flag(self.reverse, RANGE_REVERSE),
            reserved: 0,
        }
    }
}

/// An object that a scan or an enumeration found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Key of the object, lent until the invocation ends.
    pub key: &'a [u8],
    /// Value of the object, lent until the invocation ends.
    pub value: &'a [u8],
    /// Version of the object, as in [`crate::Record`].
    pub version: u64,
}

/// A running scan. Returned by [`Db::scan`].
#[derive(Debug)]
#[must_use = "a scan does nothing unless `next` is awaited"]
pub struct Scan<'f, 'a> {
    db: &'f Db<'a>,
    table: Table,
    range: KeyRange<'f>,
    left: usize,
    last: Option<&'a [u8]>,
    entries: [Option<Entry<'a>>; CHUNK_ENTRIES],
    filled: usize,
    taken: usize,
    ended: bool,
}

impl<'f, 'a> Scan<'f, 'a> {
    /// Returns a scan that has not read anything yet.
    pub(crate) fn new(db: &'f Db<'a>, table: Table, range: KeyRange<'f>) -> Scan<'f, 'a> {
        let left = range.limit.unwrap_or(usize::MAX);
        let entries = [None; CHUNK_ENTRIES];
        Scan { db, table, range, left, last: None, entries, filled: 0, taken: 0, ended: left == 0 }
    }

    /// Reads the next object; `None` after the last.
    #[inline]
    #[expect(clippy::should_implement_trait, reason = "it is awaited, as an iterator's cannot be")]
    pub fn next(&mut self) -> NextEntry<'_, 'f, 'a> {
        NextEntry { scan: self, ticket: 0 }
    }

    /// Reads the next objects from the host.
    fn poll_chunk(&mut self, ticket: &mut u64) -> Poll<Result<(), Error>> {
        let range = self.range.raw(self.last);
        let capacity = self.left.min(CHUNK_ENTRIES);
        let mut entries = [const { MaybeUninit::<RawEntry>::uninit() }; CHUNK_ENTRIES];
        let mut scanned = RawScanned { count: 0, last: RawSlice::of(&[]), ended: 0, reserved: 0 };
        // SAFETY: the Db's creator allows the call; range and buffers live during it. MaybeUninit<T> has the layout of
        // T.
        let code = unsafe {
            (self.db.host().scan)(
                self.db.context(),
                ticket,
                self.table.id(),
                &range,
                entries.as_mut_ptr().cast(),
                capacity,
                &mut scanned,
            )
        };
        let answer = poll_of(code, ticket);
        if matches!(answer, Poll::Ready(Ok(()))) {
            (self.filled, self.taken) = (scanned.count.min(capacity), 0);
            for (entry, raw) in self.entries.iter_mut().zip(&entries[..self.filled]) {
                // SAFETY: a host that returns OK has filled this many entries with memory lent for 'a.
                *entry = Some(unsafe { Entry::from_raw(raw.assume_init()) });
            }
            self.left -= self.filled;
            self.ended = scanned.ended != 0 || self.left == 0;
            if scanned.ended == 0 {
                // SAFETY: a host that is not at the end has set the last key examined, lent for 'a.
                self.last = Some(unsafe { scanned.last.as_slice() });
            }
        }
        answer
    }
}

impl<'a> Entry<'a> {
    /// Returns the object that the host described.
    ///
    /// # Safety
    /// Key and value are readable and unchanged for `'a`.
    pub(crate) unsafe fn from_raw(raw: RawEntry) -> Entry<'a> {
        // SAFETY: guaranteed by the caller.
        let (key, value) = unsafe { (raw.key.as_slice(), raw.record.value.as_slice()) };
        Entry { key, value, version: raw.record.version }
    }
}

/// Future of [`Scan::next`].
#[derive(Debug)]
#[must_use = "futures do nothing unless you `.await` them"]
pub struct NextEntry<'s, 'f, 'a> {
    scan: &'s mut Scan<'f, 'a>,
    ticket: u64,
}

impl<'a> Future for NextEntry<'_, '_, 'a> {
    type Output = Result<Option<Entry<'a>>, Error>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        while this.scan.taken == this.scan.filled {
            if this.scan.ended {
                return Poll::Ready(Ok(None));
            }
            match this.scan.poll_chunk(&mut this.ticket) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return Poll::Pending,
            }
        }
        this.scan.taken += 1;
        Poll::Ready(Ok(this.scan.entries[this.scan.taken - 1]))
    }
}
