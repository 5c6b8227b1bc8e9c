//! Copying a table in use: the objects to copy again, and the keys to remove from the copy because the source no
//! longer has them.

use crate::carried::Carried;
use crate::cursor::Cursor;
use crate::dirty_map::DirtyMap;
use crate::enumerate::Gone;
use crate::hash_range::Position;
use crate::store::core::Pinned;
use crate::table::Table;

impl Table {
    /// Starts to mark writes and removals. The head of `dirty_map.rs` describes from when on all writers mark. Ends
    /// after an equal number of calls of [`Table::unwatch`].
    pub fn watch(&self) {
        self.touched.get_or_init(|| DirtyMap::new(self.hashes(), self.objects())).watch();
    }

    /// Removes one watcher.
    ///
    /// # Panics
    /// If there is no watcher.
    pub fn unwatch(&self) {
        assert!(self.touched.get().map_or(0, DirtyMap::unwatch) > 0, "somebody watches");
    }

    /// Takes the first mark at or after `from`, among the hashes `within`; returns the hashes to read now. `None` if
    /// there is none. A mark that also covers hashes outside stays, since others may need it.
    #[must_use]
    pub fn take_dirty(&self, from: u64, within: (u64, u64)) -> Option<(u64, u64)> {
        self.touched.get()?.take_next(from, within)
    }

    /// Returns the approximate bytes of the objects written since their marks were taken.
    #[must_use]
    pub fn dirty_bytes(&self, within: (u64, u64)) -> u64 {
        self.touched.get().map_or(0, |touched| {
            touched.count(within) * (self.bytes() / touched.chunks_of(self.hashes())).max(1)
        })
    }
}

impl Pinned<'_> {
    /// Removes the keys from the place `first` to the place `last`, by their two hashes, that are not in this pull,
    /// which has all objects of the source between them. Returns their number.
    ///
    /// # Errors
    /// [`Gone`].
    pub fn remove_absent(
        &self,
        table: &Table,
        (first, last): ((u64, u64), (u64, u64)),
        mut pull: &[u8],
    ) -> Result<u64, Gone> {
        let place = |(hash, second)| Position { hash, second };
        let (first, last) = (place(first), place(last));
        let mut kept = Vec::new();
        while let Ok((carried, rest)) = Carried::split(pull) {
            kept.push(Position::of(carried.key()));
            pull = rest;
        }
        kept.sort_unstable();
        let mut absent = Vec::new();
        let mut next = Some(Cursor::before(first.hash).until(last.hash));
        while let Some(from) = next {
            next = self.walk(table, from, |group| {
                let position = group[0].position;
                if (first..=last).contains(&position) && kept.binary_search(&position).is_err() {
                    absent.push(position);
                }
                true
            })?;
        }
        for position in &absent {
            self.remove_placed(table, (position.hash, position.second))?;
        }
        Ok(absent.len() as u64)
    }
}
