//! What the reply to a request waits for.

use crate::limits::{ASKS_SYNCED, ASKS_WRITTEN};

/// What the reply to a data request waits for, if the client wants another durability than the table's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum RequestDurability {
    /// What the table promises.
    #[default]
    OfTable = 0,
    /// What a written table's replies wait for: nothing, or in a cluster until replicas have received it. What the reply shows or
    /// acknowledges may be gone after a crash of the server, or of all of these.
    Written = ASKS_WRITTEN,
    /// Until all that it shows or acknowledges is stable on the disk. A write to a table in memory, or a function
    /// that writes one, is refused with [`crate::Status::NotDurable`] and writes nothing.
    Synced = ASKS_SYNCED,
}

impl RequestDurability {
    /// Returns the flags of the request.
    #[inline]
    #[must_use]
    pub const fn flags(self) -> u8 {
        self as u8
    }

    /// Returns what the flags of a request ask for: the stricter one, if both.
    #[inline]
    #[must_use]
    pub const fn of_flags(flags: u8) -> RequestDurability {
        if flags & (ASKS_SYNCED | ASKS_WRITTEN) == 0 {
            RequestDurability::OfTable
        } else if flags & ASKS_SYNCED != 0 {
            RequestDurability::Synced
        } else {
            RequestDurability::Written
        }
    }
}
