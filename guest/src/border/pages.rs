//! The host calls that lend a page of objects: scans and enumerations.
//!
//! The entries of a page end with the next page, so its memory is used again: the module passes back the slice that the
//! host gave it for the last page. That slice is only ever a hint: unless it lies in the part that the host has lent,
//! the page gets new memory.

use std::mem::MaybeUninit;

use sandstorm::abi::wasm32::{entry, listed, range, scanned};
use sandstorm::abi::{CURSOR_BYTES_MAX, OK, RawEntry, RawListed, RawRange, RawScanned, RawSlice};

use super::lending::{self, copy_in_steps, slice_bytes};
use super::linear::LinearMemory;
use super::{CallKind, Host, with_code, words};
use crate::limits::{ENUMERATION_ENTRIES_MAX, SCAN_ENTRIES_MAX};
use crate::stack::Cause;
use crate::wasm::{Memory, Value};

/// `scan(ticket, table, range, entries, capacity, scanned)`
pub(super) unsafe fn scan<H: Host>(memory: &Memory, values: &mut [Value]) -> Result<(), Cause> {
    let [ticket_at, table, range_at, entries_at, capacity, scanned_at] = words(values);
    let memory = LinearMemory::of(memory);
    let mut entries = [const { MaybeUninit::<RawEntry>::uninit() }; SCAN_ENTRIES_MAX];
    let mut lent = None;
    let read = |host: &mut H, ticket: &mut u64| {
        memory.address(scanned_at, scanned::BYTES)?;
        let bounds = raw_range(memory, range_at)?;
        let place = (entries.as_mut_ptr().cast(), (capacity as usize).min(SCAN_ENTRIES_MAX));
        // SAFETY: the bounds lie within the memory and are used before anything is written; there is room for that
        // many entries.
        let answer = unsafe { host.scan(ticket, table, &bounds, place) };
        let RawScanned { count, last, ended, .. } = match answer {
            Ok(far) => far,
            Err(code) => return Ok(code),
        };
        // SAFETY: a successful call has written as many entries as it counted.
        let found = unsafe { entries[..count].assume_init_ref() };
        let page = match lend_page(host, memory, scanned_at + scanned::PAGE as u32, slices(last, found))? {
            Ok(page) => page,
            Err(code) => return Ok(code),
        };
        // Before anything else of the page: the key may lie in the page before.
        let first = lending::padded(last.bytes);
        // SAFETY: the key is readable.
        unsafe { lending::copy_at_once(memory, last, page.0) }?;
        write_entries(memory, entries_at, found, page.0 + first)?;
        let mut bytes = [0; scanned::BYTES];
        bytes[scanned::COUNT..][..4].copy_from_slice(&(count as u32).to_le_bytes());
        bytes[scanned::LAST..][..8].copy_from_slice(&slice_bytes(page.0, last.bytes));
        bytes[scanned::ENDED..][..4].copy_from_slice(&(ended as u32).to_le_bytes());
        bytes[scanned::PAGE..][..8].copy_from_slice(&slice_bytes(page.0, page.1));
        memory.write(scanned_at, bytes)?;
        lent = Some((page.0 + first, count));
        Ok(OK)
    };
    // SAFETY: an import of the module that runs.
    let code = unsafe { with_code(CallKind::Scan, (memory, ticket_at), read) }?;
    if let Some((lent, count)) = lent {
        // SAFETY: written above, as many as were counted.
        let found = unsafe { entries[..count].assume_init_ref() };
        // SAFETY: keys and values stay readable, also while the invocation is parked.
        unsafe { copy_in_steps(memory, lent, keys_and_values(found)) }?;
    }
    values[0].set_u64(code);
    Ok(())
}

/// `enumerate(ticket, table, cursor, cursor_bytes, entries, capacity, listed)`
pub(super) unsafe fn enumerate<H: Host>(memory: &Memory, values: &mut [Value]) -> Result<(), Cause> {
    let [ticket_at, table, cursor, cursor_bytes, entries_at, capacity, listed_at] = words(values);
    let memory = LinearMemory::of(memory);
    let mut entries = [const { MaybeUninit::<RawEntry>::uninit() }; ENUMERATION_ENTRIES_MAX];
    let mut lent = None;
    let read = |host: &mut H, ticket: &mut u64| {
        memory.address(listed_at, listed::BYTES)?;
        // SAFETY: used before anything is written.
        let cursor = unsafe { memory.slice(cursor, cursor_bytes) }?;
        let place = (entries.as_mut_ptr().cast(), (capacity as usize).min(ENUMERATION_ENTRIES_MAX));
        // SAFETY: there is room for that many entries.
        let answer = unsafe { host.enumerate(ticket, table, cursor, place) };
        let RawListed { count, cursor_bytes, cursor, .. } = match answer {
            Ok(page) => page,
            Err(code) => return Ok(code),
        };
        // SAFETY: a successful call has written as many entries as it counted.
        let found = unsafe { entries[..count].assume_init_ref() };
        let page = match lend_page(host, memory, listed_at + listed::PAGE as u32, keys_and_values(found))? {
            Ok(page) => page,
            Err(code) => return Ok(code),
        };
        write_entries(memory, entries_at, found, page.0)?;
        let mut bytes = [0; listed::BYTES];
        bytes[listed::COUNT..][..4].copy_from_slice(&(count as u32).to_le_bytes());
        bytes[listed::CURSOR_BYTES..][..4].copy_from_slice(&(cursor_bytes as u32).to_le_bytes());
        bytes[listed::CURSOR..][..CURSOR_BYTES_MAX].copy_from_slice(&cursor);
        bytes[listed::PAGE..][..8].copy_from_slice(&slice_bytes(page.0, page.1));
        memory.write(listed_at, bytes)?;
        lent = Some((page.0, count));
        Ok(OK)
    };
    // SAFETY: an import of the module that runs.
    let code = unsafe { with_code(CallKind::Enumerate, (memory, ticket_at), read) }?;
    if let Some((lent, count)) = lent {
        // SAFETY: written above, as many as were counted.
        let found = unsafe { entries[..count].assume_init_ref() };
        // SAFETY: as in `scan`.
        unsafe { copy_in_steps(memory, lent, keys_and_values(found)) }?;
    }
    values[0].set_u64(code);
    Ok(())
}

/// Returns the native form of the range at `at`.
fn raw_range(memory: LinearMemory, at: u32) -> Result<RawRange, Cause> {
    memory.address(at, range::BYTES)?;
    let bound = |offset: usize| memory.raw_slice(at + offset as u32);
    let [flags] = memory.words(at + range::FLAGS as u32)?;
    Ok(RawRange {
        from: bound(range::FROM)?,
        to: bound(range::TO)?,
        prefix: bound(range::PREFIX)?,
        after: bound(range::AFTER)?,
        flags,
        reserved: 0,
    })
}

/// Reserves the memory of a page that holds `slices`: that of the page before, which the module passes back at `at`,
/// if it is enough. Returns offset and bytes; the inner error is the code of a refusal.
fn lend_page(
    host: &mut impl Host,
    memory: LinearMemory,
    at: u32,
    slices: impl Iterator<Item = RawSlice>,
) -> Result<Result<(u32, usize), u64>, Cause> {
    let before = memory.words::<2>(at)?;
    let bytes = lending::lent_bytes(slices);
    let page = host.lent().take_page((before[0], before[1]), bytes);
    Ok(page.ok_or_else(|| host.lent_too_much(bytes).code()))
}

/// Returns the last key, and keys and values of the entries, in the order of their copies.
fn slices(last: RawSlice, found: &[RawEntry]) -> impl Iterator<Item = RawSlice> {
    [last].into_iter().chain(keys_and_values(found))
}

fn keys_and_values(found: &[RawEntry]) -> impl Iterator<Item = RawSlice> {
    found.iter().flat_map(|found| [found.key, found.record.value])
}

/// Writes the array of entries whose keys and values follow each other from `lent`.
fn write_entries(memory: LinearMemory, at: u32, found: &[RawEntry], mut lent: u32) -> Result<(), Cause> {
    memory.address(at, found.len() * entry::BYTES)?;
    for (index, found) in found.iter().enumerate() {
        let value = lent + lending::padded(found.key.bytes);
        let mut bytes = [0; entry::BYTES];
        bytes[entry::KEY..entry::RECORD].copy_from_slice(&slice_bytes(lent, found.key.bytes));
        bytes[entry::RECORD..].copy_from_slice(&lending::record_bytes(&found.record, value));
        memory.write(at + (index * entry::BYTES) as u32, bytes)?;
        lent = value + lending::padded(found.record.value.bytes);
    }
    Ok(())
}
