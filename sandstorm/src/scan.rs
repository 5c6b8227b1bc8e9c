//! Scans of ordered tables: key ranges, and their objects in key order.
//!
//! A scan reads a page of objects per host call and lends them one by one. An object borrows the scan, because the next
//! page may take the place of its own.

use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::Context;
use core::task::Poll;

use crate::Db;
use crate::Entry;
use crate::EntryPage;
use crate::Error;
use crate::Table;
use crate::abi::RANGE_HAS_AFTER;
use crate::abi::RANGE_HAS_TO;
use crate::abi::RANGE_REVERSE;
use crate::abi::RawRange;
use crate::abi::RawScanned;
use crate::abi::RawSlice;
use crate::operation::poll_of;

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
    fn raw(&self, after: Option<RawSlice>) -> RawRange {
        let after = after.or(self.after.map(RawSlice::of));
        let flag = |is_set: bool, flag: u32| if is_set { flag } else { 0 };
        RawRange {
            from: RawSlice::of(self.from),
            to: RawSlice::of(self.to.unwrap_or_default()),
            prefix: RawSlice::of(self.prefix),
            after: after.unwrap_or(RawSlice::EMPTY),
            flags: flag(self.to.is_some(), RANGE_HAS_TO)
                | flag(after.is_some(), RANGE_HAS_AFTER)
                | flag(self.reverse, RANGE_REVERSE),
            reserved: 0,
        }
    }
}

/// A running scan. Returned by [`Db::scan`].
#[must_use = "a scan does nothing unless `next` is awaited"]
pub struct Scan<'f, 'a> {
    db: &'f Db<'a>,
    table: Table,
    range: KeyRange<'f>,
    left: usize,
    /// The last key examined, lent until a later call has succeeded.
    last: Option<RawSlice>,
    page: EntryPage<'a>,
    taken: usize,
    ended: bool,
}

impl<'f, 'a> Scan<'f, 'a> {
    /// Returns a scan that has not read anything yet.
    pub(crate) fn new(db: &'f Db<'a>, table: Table, range: KeyRange<'f>) -> Scan<'f, 'a> {
        let left = range.limit.unwrap_or(usize::MAX);
        Scan { db, table, range, left, last: None, page: EntryPage::new(), taken: 0, ended: left == 0 }
    }

    /// Reads the next object; `None` after the last. The object is lent until the next one is read:
    ///
    /// ```compile_fail,E0499
    /// # use sandstorm::{Args, Db, Error, KeyRange};
    /// # async fn kept(db: &Db<'_>, args: Args<'_>) -> Result<(), Error> {
    /// let mut scan = db.scan(args.table(), KeyRange::all());
    /// let first = scan.next().await?;
    /// let second = scan.next().await?;
    /// assert!(first != second);
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    #[expect(clippy::should_implement_trait, reason = "it is awaited, as an iterator's cannot be")]
    pub fn next(&mut self) -> NextEntry<'_, 'f, 'a> {
        NextEntry { scan: Some(self), ticket: 0 }
    }

    /// Reads the next page from the host.
    fn poll_page(&mut self, ticket: &mut u64) -> Poll<Result<(), Error>> {
        self.taken = 0;
        let (entries, capacity) = self.page.clear();
        let capacity = capacity.min(self.left);
        let range = self.range.raw(self.last);
        let mut scanned =
            RawScanned { count: 0, last: RawSlice::EMPTY, ended: 0, page: self.page.memory.pass() };
        // SAFETY: the Db's creator allows the call; range and buffers live during it.
        let code = unsafe {
            (self.db.host().scan)(
                self.db.context(),
                ticket,
                self.table.id(),
                &range,
                entries,
                capacity,
                &mut scanned,
            )
        };
        self.page.memory.set(scanned.page);
        let answer = poll_of(code, ticket);
        if matches!(answer, Poll::Ready(Ok(()))) {
            let count = scanned.count.min(capacity);
            // SAFETY: a host that returns OK has filled this many entries with memory lent for 'a, or until its next
            // call with the page's memory.
            unsafe { self.page.set_filled(count) };
            self.left -= count;
            self.ended = scanned.ended != 0 || self.left == 0;
            if scanned.ended == 0 {
                self.last = Some(scanned.last);
            }
        }
        answer
    }
}

impl fmt::Debug for Scan<'_, '_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Scan")
            .field("table", &self.table)
            .field("range", &self.range)
            .finish_non_exhaustive()
    }
}

/// Future of [`Scan::next`]. Panics if it is polled after it was ready: the object that it returned is then lent.
#[derive(Debug)]
#[must_use = "futures do nothing unless you `.await` them"]
pub struct NextEntry<'s, 'f, 'a> {
    /// None once ready: the object borrows the scan from then on.
    scan: Option<&'s mut Scan<'f, 'a>>,
    ticket: u64,
}

impl<'s> Future for NextEntry<'s, '_, '_> {
    type Output = Result<Option<Entry<'s>>, Error>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let scan = this.scan.take().expect("the future of `Scan::next` is polled after it was ready");
        while scan.taken == scan.page.len() {
            if scan.ended {
                return Poll::Ready(Ok(None));
            }
            match scan.poll_page(&mut this.ticket) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => {
                    this.scan = Some(scan);
                    return Poll::Pending;
                }
            }
        }
        scan.taken += 1;
        Poll::Ready(Ok(scan.page.get(scan.taken - 1)))
    }
}
