//! Pages: the objects that one call of a scan or an enumeration found.
//!
//! A host may reuse the memory of a page for the next one. So the entries of an [`EntryPage`] borrow from it, and
//! filling it again needs it exclusively: the compiler refuses code that keeps an entry, its key or its value beyond the
//! page. The page keeps its entries in the ABI's form, because no reference may outlive the memory that it refers to.
//! Copying a page would break this, so it is neither `Clone` nor `Copy`.
//!
//! The host of a module copies what it lends to memory that a page keeps ([`PageMemory`]). The host does not see when a
//! page is dropped, so the module passes the memory to its next page.

use core::fmt;
use core::iter::FusedIterator;
use core::marker::PhantomData;
use core::mem::MaybeUninit;
use core::ops::Range;

use crate::abi::RawEntry;
use crate::abi::RawSlice;

/// Objects of one page: enough to overlap memory accesses, with little space in the future.
pub(crate) const PAGE_ENTRIES: usize = 32;

/// An object that a scan or an enumeration found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'p> {
    /// Key of the object, lent until the next object of the scan or the next page of the enumeration is read.
    pub key: &'p [u8],
    /// Value of the object, lent as the key.
    pub value: &'p [u8],
    /// Version of the object, as in [`crate::Record`].
    pub version: u64,
}

/// Up to 32 objects of a table, filled by [`Db::enumerate`](crate::Db::enumerate).
///
/// The entries borrow from the page, so they end when it is filled again:
///
/// ```compile_fail,E0502
/// # use sandstorm::{Args, Cursor, Db, EntryPage, Error};
/// # async fn kept(db: &Db<'_>, args: Args<'_>) -> Result<(), Error> {
/// let mut page = EntryPage::new();
/// let next = db.enumerate(args.table(), Cursor::start(), &mut page).await?;
/// let first = page.get(0);
/// db.enumerate(args.table(), next.unwrap_or(Cursor::start()), &mut page).await?;
/// assert!(first.is_some());
/// # Ok(())
/// # }
/// ```
pub struct EntryPage<'a> {
    /// The first `filled` are initialized.
    entries: [MaybeUninit<RawEntry>; PAGE_ENTRIES],
    filled: usize,
    /// Maximum number of objects, at most [`PAGE_ENTRIES`].
    limit: usize,
    pub(crate) memory: PageMemory,
    /// The invocation, whose end is the latest end of the memory.
    invocation: PhantomData<&'a [u8]>,
}

impl<'a> EntryPage<'a> {
    /// Returns an empty page for up to 32 objects.
    pub const fn new() -> EntryPage<'a> {
        EntryPage {
            entries: [const { MaybeUninit::uninit() }; PAGE_ENTRIES],
            filled: 0,
            limit: PAGE_ENTRIES,
            memory: PageMemory(RawSlice::EMPTY),
            invocation: PhantomData,
        }
    }

    /// Limits the number of objects; above 32 this has no effect.
    pub const fn limit(mut self, limit: usize) -> EntryPage<'a> {
        self.limit = if limit < PAGE_ENTRIES { limit } else { PAGE_ENTRIES };
        self
    }

    /// Returns the number of objects; may be 0 before the end of the table too.
    pub const fn len(&self) -> usize {
        self.filled
    }

    /// Returns whether the page has no objects.
    pub const fn is_empty(&self) -> bool {
        self.filled == 0
    }

    /// Returns the object at a position.
    #[inline]
    pub fn get(&self, index: usize) -> Option<Entry<'_>> {
        if index >= self.filled {
            return None;
        }
        let raw = self.entries[index];
        // SAFETY: `set_filled`'s caller filled this entry. The next call of the host that may overwrite its memory
        // begins with `clear`, which needs the page exclusively, so it comes after the borrow that the entry holds.
        Some(unsafe { Entry::from_raw(raw.assume_init()) })
    }

    /// Returns the objects, in no order.
    #[inline]
    pub fn iter(&self) -> Entries<'_> {
        Entries { page: self, left: 0..self.filled }
    }

    /// Removes all entries. Returns the array for a host to fill, and its capacity, which is the limit.
    pub(crate) fn clear(&mut self) -> (*mut RawEntry, usize) {
        self.filled = 0;
        // MaybeUninit<T> has the layout of T.
        (self.entries.as_mut_ptr().cast(), self.limit)
    }

    /// Sets the number of objects after a call of the host that succeeded.
    ///
    /// # Safety
    /// The host has filled the first `count` entries of the array of [`EntryPage::clear`] since; their keys and values
    /// are readable and unchanged until its next call with `memory`, and no longer than `'a`.
    pub(crate) unsafe fn set_filled(&mut self, count: usize) {
        self.filled = count.min(self.limit);
    }
}

/// What the host stored for a page at its last call, for its next one. Hosts but that of a module leave it empty.
pub(crate) struct PageMemory(RawSlice);

impl PageMemory {
    /// Returns what to pass to the host: for a first call, the memory of a page that was dropped.
    pub(crate) fn pass(&mut self) -> RawSlice {
        if self.0.bytes == 0 {
            self.0 = dropped::take();
        }
        self.0
    }

    /// Keeps what the host stored.
    pub(crate) fn set(&mut self, memory: RawSlice) {
        self.0 = memory;
    }
}

impl Drop for PageMemory {
    fn drop(&mut self) {
        dropped::keep(self.0);
    }
}

/// Memory of dropped pages, in the call block of a module. The host begins each invocation with a block of zeros.
#[cfg(target_pointer_width = "32")]
mod dropped {
    use core::mem;

    use crate::abi::RawSlice;
    use crate::abi::wasm32::BLOCK_AT;
    use crate::abi::wasm32::block;

    fn slices() -> &'static mut [RawSlice; block::PAGES_KEPT] {
        let slices = (BLOCK_AT + block::PAGES) as *mut [RawSlice; block::PAGES_KEPT];
        // SAFETY: the linker keeps the block's addresses free for it, nothing else uses these, any words are slices, a
        // module has one thread, and the callers keep no reference.
        unsafe { &mut *slices }
    }

    /// Takes the largest; an empty slice if there is none.
    pub(super) fn take() -> RawSlice {
        let largest = slices().iter_mut().max_by_key(|slice| slice.bytes);
        largest.map_or(RawSlice::EMPTY, |slice| mem::replace(slice, RawSlice::EMPTY))
    }

    /// Keeps a slice in the place of the smallest.
    pub(super) fn keep(memory: RawSlice) {
        let smallest = slices().iter_mut().min_by_key(|slice| slice.bytes);
        if let Some(slice) = smallest.filter(|slice| slice.bytes < memory.bytes) {
            *slice = memory;
        }
    }
}

/// Nothing where hosts lend their own memory.
#[cfg(not(target_pointer_width = "32"))]
mod dropped {
    use crate::abi::RawSlice;

    pub(super) fn take() -> RawSlice {
        RawSlice::EMPTY
    }

    pub(super) fn keep(_: RawSlice) {}
}

impl Default for EntryPage<'_> {
    fn default() -> Self {
        EntryPage::new()
    }
}

impl fmt::Debug for EntryPage<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_list().entries(self).finish()
    }
}

impl<'p> IntoIterator for &'p EntryPage<'_> {
    type Item = Entry<'p>;
    type IntoIter = Entries<'p>;

    #[inline]
    fn into_iter(self) -> Entries<'p> {
        self.iter()
    }
}

/// Iterator over the objects of an [`EntryPage`].
#[derive(Clone, Debug)]
#[must_use = "iterators do nothing unless they are advanced"]
pub struct Entries<'p> {
    page: &'p EntryPage<'p>,
    left: Range<usize>,
}

impl<'p> Iterator for Entries<'p> {
    type Item = Entry<'p>;

    #[inline]
    fn next(&mut self) -> Option<Entry<'p>> {
        self.page.get(self.left.next()?)
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        self.left.size_hint()
    }
}

impl DoubleEndedIterator for Entries<'_> {
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        self.page.get(self.left.next_back()?)
    }
}

impl ExactSizeIterator for Entries<'_> {}

impl FusedIterator for Entries<'_> {}

impl<'p> Entry<'p> {
    /// Returns the object that the host described.
    ///
    /// # Safety
    /// Key and value are readable and unchanged for `'p`.
    #[inline]
    unsafe fn from_raw(raw: RawEntry) -> Entry<'p> {
        // SAFETY: guaranteed by the caller.
        let (key, value) = unsafe { (raw.key.as_slice(), raw.record.value.as_slice()) };
        Entry { key, value, version: raw.record.version }
    }
}
