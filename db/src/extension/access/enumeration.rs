//! The host call that reads a page of a table.
//!
//! Each object counts as a read, and so does a call that finds none. Each object is compared with its checksum, so a
//! page has the same byte limit as one of a client's; a corrupted object is counted and not lent.

use sandstorm::Error;
use sandstorm::abi::{CURSOR_BYTES_MAX, RawEntry, RawListed, RawSlice};
use store::{CURSOR_BYTES, Cursor, Listed, PageLimits};

use super::Access;
use super::calls::raw_of;
use crate::extension::CallMode;
use crate::limits::ENUMERATION_ENTRIES_MAX;
use crate::metrics::Counter;
use crate::ops::transaction::FoundObject;

const _: () = assert!(CURSOR_BYTES <= CURSOR_BYTES_MAX);

impl Access {
    /// Reads objects after a cursor.
    ///
    /// # Safety
    /// There is room for `capacity` entries.
    pub unsafe fn enumerate(
        &mut self,
        table: u32,
        cursor: &[u8],
        (entries, capacity): (*mut RawEntry, usize),
    ) -> Result<RawListed, Error> {
        if self.mode == CallMode::Write {
            return Err(Error::NotSerializable);
        }
        // A call that reads buckets and finds nothing costs too.
        self.spending.reads(1)?;
        let environment = self.environment();
        let table = self.whole(environment, table)?;
        let from = Cursor::decode(table, cursor).map_err(|_| Error::CursorInvalid)?;
        let mut found: [Option<Listed<'_>>; ENUMERATION_ENTRIES_MAX] =
            [const { None }; ENUMERATION_ENTRIES_MAX];
        let found = &mut found[..capacity.min(ENUMERATION_ENTRIES_MAX)];
        let limits =
            PageLimits { objects: found.len(), bytes: wire::limits::ENUMERATE_BYTES_MAX, keys_only: false };
        let page = environment.pin.enumerate(table, from, limits, found).map_err(|_| Error::UnknownTable)?;
        if page.count == 0 && page.next == Some(from) {
            // Crafted keys: all of one place come together, and there is no room for them.
            return Err(Error::LimitExceeded);
        }
        let mut met = 0;
        for listed in found[..page.count].iter().flatten() {
            let Some(object) = &listed.object else {
                environment.metrics.add(Counter::ObjectsCorrupted, 1);
                continue;
            };
            if met > 0 {
                self.spending.reads(1)?;
            }
            self.spending.read_bytes(object.key().len() + object.value().len())?;
            let entry =
                RawEntry { key: RawSlice::of(object.key()), record: raw_of(Some(FoundObject::of(object))) };
            // SAFETY: no more than `capacity` objects are met, and there is room for them.
            unsafe { entries.add(met).write(entry) };
            met += 1;
        }
        let mut listed = RawListed { count: met, cursor_bytes: 0, cursor: [0; CURSOR_BYTES_MAX] };
        if let Some(next) = page.next {
            listed.cursor[..CURSOR_BYTES].copy_from_slice(&next.encode(table));
            listed.cursor_bytes = CURSOR_BYTES;
        }
        Ok(listed)
    }
}
