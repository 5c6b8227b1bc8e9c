//! Enumeration of a [`MemoryDb`](super::MemoryDb) in an order that no test can rely on.
//!
//! It is neither the order of the keys' bytes nor that of the writes.

use alloc::vec::Vec;

use super::State;
use crate::Error;
use crate::abi::CURSOR_BYTES_MAX;
use crate::abi::RawEntry;
use crate::abi::RawListed;
use crate::abi::RawRecord;
use crate::abi::RawSlice;

/// Bytes of a cursor: the table, and the position of the last key found.
const CURSOR_BYTES: usize = 4 + 16;

impl State {
    /// Returns at most `capacity` objects of a table after a cursor. Lends keys and values, which the state keeps.
    pub(super) fn page(
        &self,
        table: u32,
        cursor: &[u8],
        capacity: usize,
    ) -> Result<(Vec<RawEntry>, RawListed), Error> {
        if !self.tables.values().any(|id| *id == table) {
            return Err(Error::UnknownTable);
        }
        let done = match cursor.split_first_chunk::<4>() {
            None if cursor.is_empty() => None,
            Some((of, place)) if *of == table.to_le_bytes() => {
                Some(u128::from_le_bytes(place.try_into().map_err(|_| Error::CursorInvalid)?))
            }
            _ => return Err(Error::CursorInvalid),
        };
        let of_table = self.objects.range((table, Vec::new())..).take_while(|((id, _), _)| *id == table);
        let mut placed: Vec<_> = of_table
            .filter(|(_, object)| object.expires_ms > self.now_ms)
            .map(|((_, key), object)| (place_of(key), key, object))
            .filter(|(place, ..)| done.is_none_or(|done| *place > done))
            .collect();
        placed.sort_unstable_by_key(|(place, ..)| *place);
        let is_end = placed.len() <= capacity;
        placed.truncate(capacity);
        let entries: Vec<_> = placed
            .iter()
            .map(|(_, key, object)| RawEntry {
                key: RawSlice::of(key),
                record: RawRecord { value: RawSlice::of(&object.value), version: object.version },
            })
            .collect();
        let mut listed = RawListed {
            count: entries.len(),
            cursor_bytes: 0,
            cursor: [0; CURSOR_BYTES_MAX],
            page: RawSlice::EMPTY,
        };
        if let Some((place, ..)) = placed.last().filter(|_| !is_end) {
            listed.cursor[..4].copy_from_slice(&table.to_le_bytes());
            listed.cursor[4..CURSOR_BYTES].copy_from_slice(&place.to_le_bytes());
            listed.cursor_bytes = CURSOR_BYTES;
        }
        Ok((entries, listed))
    }
}

/// Returns the position of a key in the order: FNV-1a of 128 bits.
fn place_of(key: &[u8]) -> u128 {
    let prime = (1 << 88) + 0x13b;
    key.iter().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d, |hash: u128, byte| {
        (hash ^ u128::from(*byte)).wrapping_mul(prime)
    })
}
