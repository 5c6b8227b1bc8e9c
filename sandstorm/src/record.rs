//! What an extension reads and names: tables, records, conditions.

use crate::abi::RawCondition;
use crate::abi::RawRecord;
use crate::abi::RawSlice;

/// A table of the tenant, by id. The store checks the id at every use, so any number may be tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Table(u32);

impl Table {
    /// The table of an id, for instance one found in the arguments.
    pub const fn from_id(id: u32) -> Table {
        Table(id)
    }

    /// The id.
    pub const fn id(self) -> u32 {
        self.0
    }
}

/// An object as the store holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// The value, lent until the invocation ends.
    pub value: &'a [u8],
    /// The version; it grows with every write of the object. `u64::MAX` for a write of this very
    /// invocation, which has none before it is applied.
    pub version: u64,
}

impl<'a> Record<'a> {
    /// The record that the host described, or `None` when it found nothing.
    ///
    /// # Safety
    /// A value that is present is readable and unchanged for `'a`.
    #[inline]
    pub(crate) unsafe fn from_raw(raw: RawRecord) -> Option<Record<'a>> {
        if raw.version == 0 {
            return None;
        }
        // SAFETY: the caller promises it for a record that is present.
        let value = unsafe { raw.value.as_slice() };
        Some(Record { value, version: raw.version })
    }
}

/// When a write applies; checked again when the invocation's writes are applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Condition {
    /// Always.
    #[default]
    Always,
    /// Only when there is no such object.
    Absent,
    /// Only when there is such an object.
    Present,
    /// Only when the object has exactly this version.
    Version(u64),
}

impl Condition {
    /// The condition at the border.
    #[inline]
    pub(crate) fn raw(self) -> RawCondition {
        match self {
            Condition::Always => RawCondition { kind: 0, version: 0 },
            Condition::Absent => RawCondition { kind: 1, version: 0 },
            Condition::Present => RawCondition { kind: 2, version: 0 },
            Condition::Version(version) => RawCondition { kind: 3, version },
        }
    }

    /// The condition of a border value; `None` for an unknown kind.
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
    /// The border form of a slice.
    #[inline]
    pub fn of(bytes: &[u8]) -> RawSlice {
        RawSlice { address: bytes.as_ptr(), bytes: bytes.len() }
    }

    /// The slice itself.
    ///
    /// # Safety
    /// `bytes` bytes at `address` are readable and unchanged for `'a`; `address` is not null.
    #[inline]
    pub unsafe fn as_slice<'a>(self) -> &'a [u8] {
        // SAFETY: exactly what the caller promises.
        unsafe { core::slice::from_raw_parts(self.address, self.bytes) }
    }
}
