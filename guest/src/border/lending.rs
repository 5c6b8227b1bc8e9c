//! Copies of objects in the lent part of a module's linear memory.
//!
//! The addresses of one call's copies follow each other at multiples of [`ALIGN`], in the order of the slices, so they
//! need no list.

use std::mem::MaybeUninit;
use std::ptr;

use sandstorm::Error;
use sandstorm::abi::wasm32::{record, slice};
use sandstorm::abi::{RawRecord, RawSlice};

use super::Host;
use super::linear::LinearMemory;
use crate::limits::LENT_BYTES_AT_ONCE;
use crate::running;
use crate::stack::Cause;

/// The alignment of each copy.
pub(super) const ALIGN: usize = 8;

/// Reserves `bytes` of the lent part; returns their offset.
///
/// # Errors
/// `LimitExceeded` when the invocation has no more left.
#[inline]
pub(super) fn lend(host: &mut impl Host, bytes: usize) -> Result<u32, Error> {
    let bytes = bytes.next_multiple_of(ALIGN);
    match host.lent().take(bytes) {
        Some(at) => Ok(at),
        None => Err(host.lent_too_much(bytes)),
    }
}

/// Returns the bytes that copies of all slices take.
pub(super) fn lent_bytes(slices: impl Iterator<Item = RawSlice>) -> usize {
    slices.map(|slice| slice.bytes.next_multiple_of(ALIGN)).sum()
}

/// Returns the distance from a copy of `bytes` bytes to the next. What a host call lends fits 32 bits, since it was
/// [reserved](lend).
#[inline]
pub(super) fn padded(bytes: usize) -> u32 {
    bytes.next_multiple_of(ALIGN) as u32
}

/// Returns the values of records.
pub(super) fn values(records: &[RawRecord]) -> impl Iterator<Item = RawSlice> + Clone {
    records.iter().map(|record| record.value)
}

/// Returns the first `count` records.
///
/// # Safety
/// They have been written.
pub(super) unsafe fn records(records: &[MaybeUninit<RawRecord>], count: usize) -> &[RawRecord] {
    // SAFETY: as the caller promises.
    unsafe { records[..count].assume_init_ref() }
}

/// Writes a record whose value is at `lent`.
///
/// # Errors
/// [`Cause::WrongCode`] if its place is outside of the memory.
#[inline]
pub(super) fn write_record(memory: LinearMemory, at: u32, found: &RawRecord, lent: u32) -> Result<(), Cause> {
    memory.write(at, record_bytes(found, lent))
}

/// Returns a record as the module sees it.
#[inline]
pub(super) fn record_bytes(found: &RawRecord, lent: u32) -> [u8; record::BYTES] {
    let mut bytes = [0; record::BYTES];
    bytes[record::VALUE..record::VERSION].copy_from_slice(&slice_bytes(lent, found.value.bytes));
    bytes[record::VERSION..].copy_from_slice(&found.version.to_le_bytes());
    bytes
}

/// Returns a slice as the module sees it.
#[inline]
pub(super) fn slice_bytes(at: u32, length: usize) -> [u8; slice::BYTES] {
    (u64::from(at) | (length as u64) << 32).to_le_bytes()
}

/// Writes the array of records whose values follow each other from `lent`.
///
/// # Errors
/// As for [`write_record`].
pub(super) fn write_records(
    memory: LinearMemory,
    at: u32,
    records: &[RawRecord],
    mut lent: u32,
) -> Result<(), Cause> {
    memory.address(at, records.len() * record::BYTES)?;
    for (index, found) in records.iter().enumerate() {
        write_record(memory, at + (index * record::BYTES) as u32, found, lent)?;
        lent += padded(found.value.bytes);
    }
    Ok(())
}

/// Copies a slice to `lent`; returns what is left of a long one, with its place.
///
/// # Errors
/// [`Cause::WrongCode`] if the place is outside of the memory.
///
/// # Safety
/// The slice is readable.
#[inline]
pub(super) unsafe fn copy(
    memory: LinearMemory,
    slice: RawSlice,
    lent: u32,
) -> Result<Option<(RawSlice, u32)>, Cause> {
    let bytes = slice.bytes.min(LENT_BYTES_AT_ONCE);
    let place = memory.address(lent, bytes)?;
    // SAFETY: readable, as the caller promises, and the place is within the memory. They may overlap where a slice is
    // one of the module's own.
    unsafe { ptr::copy(slice.address, place, bytes) };
    if bytes == slice.bytes {
        return Ok(None);
    }
    // SAFETY: the slice is longer.
    let address = unsafe { slice.address.add(bytes) };
    Ok(Some((RawSlice { address, bytes: slice.bytes - bytes }, lent + bytes as u32)))
}

/// Copies a key to `lent`.
///
/// # Errors
/// As for [`copy`].
///
/// # Safety
/// The key is readable.
pub(super) unsafe fn copy_at_once(memory: LinearMemory, key: RawSlice, lent: u32) -> Result<(), Cause> {
    debug_assert!(key.bytes <= LENT_BYTES_AT_ONCE, "a key is short");
    // SAFETY: as the caller promises.
    unsafe { copy(memory, key, lent) }.map(|_| ())
}

/// Copies slices one after the other to `lent`, in steps between which the invocation may be parked.
///
/// # Errors
/// As for [`copy`].
///
/// # Safety
/// As for [`copy`], until the invocation ends; called by an import of the module that runs on this thread.
pub(super) unsafe fn copy_in_steps(
    memory: LinearMemory,
    mut lent: u32,
    slices: impl Iterator<Item = RawSlice>,
) -> Result<(), Cause> {
    let mut copied = 0;
    for slice in slices {
        let mut rest = Some((slice, lent));
        while let Some((slice, place)) = rest {
            // SAFETY: readable, as the caller promises.
            rest = unsafe { copy(memory, slice, place) }?;
            copied += slice.bytes.min(LENT_BYTES_AT_ONCE);
            if copied >= LENT_BYTES_AT_ONCE {
                copied = 0;
                // SAFETY: within a host call of the module, in frames that own nothing.
                unsafe { running::yield_in_host_call() };
            }
        }
        lent += padded(slice.bytes);
    }
    Ok(())
}
