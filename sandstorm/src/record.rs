//! Tables, records and conditions.

use core::ptr::NonNull;

use crate::abi::RawCondition;
use crate::abi::RawRecord;
use crate::abi::RawSlice;

/// A table of the tenant, by id. The store checks the id at every use, so any number may be tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Table(u32);

impl Table {
    /// Returns the table with an id, for instance one from the arguments.
    pub const fn from_id(id: u32) -> Table {
        Table(id)
    }

    /// Returns the id.
    pub const fn id(self) -> u32 {
        self.0
    }
}

/// An object in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// The value, lent until the invocation ends.
    pub value: &'a [u8],
    /// Version of the object, which grows with every write. `u64::MAX` for a write of this invocation, which has no
    /// version before it is applied.
    pub version: u64,
}

impl<'a> Record<'a> {
    /// Returns the record that the host described, or `None` if it found nothing.
    ///
    /// # Safety
    /// The value of a present record is readable and unchanged for `'a`.
    #[inline]
    pub(crate) unsafe fn from_raw(raw: RawRecord) -> Option<Record<'a>> {
        if raw.version == 0 {
            return None;
        }
        // SAFETY: guaranteed by the caller for a record that is present.
        let value = unsafe { raw.value.as_slice() };
        Some(Record { value, version: raw.version })
    }
}

/// The condition of a write; checked again when the invocation's writes are applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Condition {
    /// The write always applies.
    #[default]
    Always,
    /// Only if the object does not exist.
    Absent,
    /// Only if the object exists.
    Present,
    /// Only if the object has exactly this version.
    Version(u64),
}

impl Condition {
    /// Returns the ABI form of the condition.
    #[inline]
    pub(crate) fn raw(self) -> RawCondition {
        match self {
            Condition::Always => RawCondition { kind: 0, version: 0 },
            Condition::Absent => RawCondition { kind: 1, version: 0 },
            Condition::Present => RawCondition { kind: 2, version: 0 },
            Condition::Version(version) => RawCondition { kind: 3, version },
        }
    }

    /// Returns the condition of an ABI value; `None` for an unknown kind.
    pub fn from_raw(raw: RawCondition) -> Option<Condition> {
        match raw.kind {
            0 => Some(Condition::Always),
            1 => Some(Condition::Absent),
            2 => Some(Condition::Present),
            3 => Some(Condition::Version(raw.version)),
            _ => None,
        }
    }
}

impl RawSlice {
    /// No bytes.
    pub const EMPTY: RawSlice = RawSlice { address: NonNull::dangling().as_ptr(), bytes: 0 };

    /// Returns the ABI form of a slice.
    #[inline]
    pub fn of(bytes: &[u8]) -> RawSlice {
        RawSlice { address: bytes.as_ptr(), bytes: bytes.len() }
    }

    /// Returns the slice.
    ///
    /// # Safety
    /// `bytes` bytes at `address` are readable and unchanged for `'a`; `address` is not null.
    #[inline]
    pub unsafe fn as_slice<'a>(self) -> &'a [u8] {
        // SAFETY: guaranteed by the caller.
        unsafe { core::slice::from_raw_parts(self.address, self.bytes) }
    }
}
