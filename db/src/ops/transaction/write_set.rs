//! The pending writes of one invocation: at most one per object, the latest.
//!
//! Keys and values are copied once into memory that never moves, because the extension may be lent a value that it
//! wrote. An overwrite here takes new memory and leaves the old bytes unchanged. With few writes a lookup compares
//! hashes in sequence; with many it uses a hash table.

use std::ptr;
use std::slice;

use guest::arena::Arena;

use crate::limits::{TRANSACTION_WRITES_KEPT, TRANSACTION_WRITES_MAX, TRANSACTION_WRITES_SCANNED};

/// Bytes in the memory of the transaction or in the store's log, valid until the transaction is cleared.
#[derive(Clone, Copy, Debug)]
pub struct Lent {
    address: *const u8,
    bytes: usize,
}

impl Lent {
    /// Records the location of `bytes`.
    #[inline]
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self { address: bytes.as_ptr(), bytes: bytes.len() }
    }

    /// Returns the address of the first byte; never null.
    #[inline]
    #[must_use]
    pub fn address(self) -> *const u8 {
        self.address
    }

    /// Returns the length in bytes.
    #[inline]
    #[must_use]
    pub fn bytes(self) -> usize {
        self.bytes
    }

    /// Returns the bytes.
    ///
    /// # Safety
    /// Their memory is still valid: the transaction was not cleared, and its pin is held.
    #[inline]
    #[must_use]
    pub unsafe fn as_slice<'l>(self) -> &'l [u8] {
        // SAFETY: made from a slice that still stands, as the caller promises.
        unsafe { slice::from_raw_parts(self.address, self.bytes) }
    }
}

/// One object to be written.
#[derive(Clone, Copy, Debug)]
pub struct Write {
    /// Hash of the key.
    pub hash: u64,
    /// The table.
    pub table: u32,
    /// The key.
    pub key: Lent,
    /// The value; `None` deletes the object.
    pub value: Option<Lent>,
    /// The expiry, by the store's clock.
    pub expires_ms: u64,
}

/// The reason why a write was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// It exceeds the maximum number of objects.
    Writes,
    /// With it, the bytes of keys and values would be this many, more than allowed.
    Bytes(u64),
    /// The memory is used up.
    Memory,
}

/// A set of writes. It keeps its vectors from one invocation to the next; its memory is lent to it each time.
#[derive(Debug)]
pub struct WriteSet {
    memory: Arena,
    writes_max: usize,
    bytes_max: usize,
    bytes_written: usize,
    writes: Vec<Write>,
    /// Open addressing by hash: 0 is empty, otherwise an index into `writes` plus one.
    places: Vec<u32>,
}

const PLACES: usize = (TRANSACTION_WRITES_MAX * 2).next_power_of_two();

impl WriteSet {
    /// Creates an empty set without memory.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            memory: Arena::empty(),
            writes_max: 0,
            bytes_max: 0,
            bytes_written: 0,
            writes: Vec::new(),
            places: Vec::new(),
        }
    }

    /// Empties the set and gives it memory for the next invocation, with its limits of objects and of bytes of keys and
    /// values.
    ///
    /// # Panics
    /// Beyond [`TRANSACTION_WRITES_MAX`] objects.
    #[inline]
    pub fn begin(&mut self, memory: Arena, writes_max: usize, bytes_max: usize) {
        assert!(writes_max <= TRANSACTION_WRITES_MAX, "more writes than the set can hold");
        self.memory = memory;
        (self.writes_max, self.bytes_max, self.bytes_written) = (writes_max, bytes_max, 0);
        self.writes.clear();
        self.places.clear();
    }

    /// Returns the capacity of the list of writes.
    #[inline]
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.writes.capacity()
    }

    /// Empties the set and releases the capacity that many writes needed.
    pub fn shrink(&mut self) {
        self.writes.clear();
        self.writes.shrink_to(TRANSACTION_WRITES_KEPT);
        self.places = Vec::new();
    }

    /// Returns the bytes of the list of writes and of the hash table.
    #[must_use]
    pub fn list_bytes(&self) -> usize {
        self.writes.capacity() * size_of::<Write>() + self.places.capacity() * size_of::<u32>()
    }

    /// Returns the writes in the order in which their objects were first written.
    #[inline]
    #[must_use]
    pub fn writes(&self) -> &[Write] {
        &self.writes
    }

    /// Returns the recorded bytes of keys and values, including those overwritten since.
    #[inline]
    #[must_use]
    pub fn bytes_written(&self) -> usize {
        self.bytes_written
    }

    /// Returns the bytes of memory in use.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.memory.highest_bytes()
    }

    /// Returns the write of an object, if any.
    #[inline]
    #[must_use]
    pub fn find(&self, table: u32, hash: u64, key: &[u8]) -> Option<&Write> {
        if self.writes.is_empty() {
            return None;
        }
        self.index_of(table, hash, key).map(|index| &self.writes[index])
    }

    /// Adds a write that does not expire.
    ///
    /// # Errors
    /// See [`WriteSet::record_until`].
    #[cfg(test)]
    fn record(&mut self, table: u32, hash: u64, key: &[u8], value: Option<&[u8]>) -> Result<(), Full> {
        self.record_until(table, hash, key, value, store::NEVER_MS)
    }

    /// Adds a write; `value` `None` deletes. Replaces an earlier write of the same object.
    ///
    /// # Errors
    /// [`Full`]; then the set is unchanged.
    pub fn record_until(
        &mut self,
        table: u32,
        hash: u64,
        key: &[u8],
        value: Option<&[u8]>,
        expires_ms: u64,
    ) -> Result<(), Full> {
        let known = self.index_of(table, hash, key);
        if known.is_none() && self.writes.len() == self.writes_max {
            return Err(Full::Writes);
        }
        let key_bytes = if known.is_none() { key.len() } else { 0 };
        let bytes_written = self.bytes_written + key_bytes + value.map_or(0, <[u8]>::len);
        if bytes_written > self.bytes_max {
            return Err(Full::Bytes(bytes_written as u64));
        }
        let value = value.map(|value| self.copy(value)).transpose()?;
        self.bytes_written = bytes_written;
        if let Some(index) = known {
            (self.writes[index].value, self.writes[index].expires_ms) = (value, expires_ms);
            return Ok(());
        }
        let key = self.copy(key)?;
        self.writes.push(Write { hash, table, key, value, expires_ms });
        self.add_place();
        Ok(())
    }

    /// Copies bytes into the memory of the set.
    ///
    /// # Errors
    /// [`Full`].
    pub fn copy(&mut self, bytes: &[u8]) -> Result<Lent, Full> {
        if bytes.is_empty() {
            return Ok(Lent::of(&[]));
        }
        let copy = self.memory.allocate(bytes.len(), 1);
        if copy.is_null() {
            return Err(Full::Memory);
        }
        // The one copy of a written key or value before the log.
        // SAFETY: the memory was just allocated with this length and overlaps nothing.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), copy, bytes.len()) };
        Ok(Lent { address: copy, bytes: bytes.len() })
    }

    fn index_of(&self, table: u32, hash: u64, key: &[u8]) -> Option<usize> {
        let is_it = |write: &Write| {
            // SAFETY: keys of the set lie in its memory, which stands until the next `begin`.
            write.hash == hash && write.table == table && unsafe { write.key.as_slice() } == key
        };
        if self.places.is_empty() {
            return self.writes.iter().position(is_it);
        }
        let mut place = hash as usize % PLACES;
        while self.places[place] != 0 {
            let index = self.places[place] as usize - 1;
            if is_it(&self.writes[index]) {
                return Some(index);
            }
            place = (place + 1) % PLACES;
        }
        None
    }

    /// Enters the latest write into the hash table; creates the table when there are enough writes.
    fn add_place(&mut self) {
        let from = match self.writes.len() {
            count if count < TRANSACTION_WRITES_SCANNED => return,
            TRANSACTION_WRITES_SCANNED => {
                self.places.resize(PLACES, 0);
                0
            }
            count => count - 1,
        };
        for index in from..self.writes.len() {
            let mut place = self.writes[index].hash as usize % PLACES;
            while self.places[place] != 0 {
                place = (place + 1) % PLACES;
            }
            self.places[place] = index as u32 + 1;
        }
    }
}

impl Default for WriteSet {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use guest::arena::Arena;

    use super::{Full, WriteSet};
    use crate::limits::TRANSACTION_WRITES_MAX;

    fn with_set(bytes: usize, test: impl FnOnce(&mut WriteSet)) {
        let mut memory = vec![0_u8; bytes];
        let mut set = WriteSet::new();
        // SAFETY: `memory` outlives the test and is used through the arena alone.
        set.begin(unsafe { Arena::over(memory.as_mut_ptr(), bytes) }, TRANSACTION_WRITES_MAX, usize::MAX);
        test(&mut set);
    }

    fn value_of(set: &WriteSet, table: u32, key: &[u8]) -> Option<Option<Vec<u8>>> {
        // SAFETY: the memory stands until the test is over.
        set.find(table, 7, key).map(|write| write.value.map(|value| unsafe { value.as_slice() }.to_vec()))
    }

    #[test]
    fn the_latest_write_of_an_object_counts_and_lent_bytes_stay() {
        with_set(4096, |set| {
            set.record(1, 7, b"key", Some(b"old")).expect("room");
            let lent = set.find(1, 7, b"key").and_then(|write| write.value).expect("written");
            set.record(1, 7, b"key", Some(b"newer")).expect("room");
            // SAFETY: the memory stands until the test is over.
            assert_eq!(unsafe { lent.as_slice() }, b"old");
            assert_eq!(value_of(set, 1, b"key"), Some(Some(b"newer".to_vec())));
            set.record(1, 7, b"key", None).expect("room");
            assert_eq!(value_of(set, 1, b"key"), Some(None));
            assert_eq!(set.writes().len(), 1);
        });
    }

    #[test]
    fn keys_of_one_hash_and_tables_are_told_apart() {
        with_set(4096, |set| {
            set.record(1, 7, b"a", Some(b"1")).expect("room");
            set.record(2, 7, b"a", Some(b"2")).expect("room");
            set.record(1, 7, b"", Some(b"")).expect("room");
            assert_eq!(value_of(set, 1, b"a"), Some(Some(b"1".to_vec())));
            assert_eq!(value_of(set, 2, b"a"), Some(Some(b"2".to_vec())));
            assert_eq!(value_of(set, 1, b""), Some(Some(Vec::new())));
            assert_eq!(value_of(set, 3, b"a"), None);
        });
    }

    #[test]
    fn a_full_set_refuses_and_keeps_what_it_has() {
        with_set(64, |set| {
            set.record(1, 7, b"key", Some(&[1; 40])).expect("room");
            assert_eq!(set.record(1, 7, b"key", Some(&[2; 40])), Err(Full::Memory));
            assert_eq!(value_of(set, 1, b"key"), Some(Some(vec![1; 40])));
        });
        with_set(TRANSACTION_WRITES_MAX * 8, |set| {
            for number in 0..TRANSACTION_WRITES_MAX as u64 {
                set.record(1, number % 50, &number.to_le_bytes(), None).expect("room");
            }
            for number in 0..TRANSACTION_WRITES_MAX as u64 {
                assert!(set.find(1, number % 50, &number.to_le_bytes()).is_some());
            }
            assert_eq!(set.record(1, 1, b"one more", None), Err(Full::Writes));
            set.record(1, 3, &3_u64.to_le_bytes(), None).expect("an object that is there already");
        });
    }
}
