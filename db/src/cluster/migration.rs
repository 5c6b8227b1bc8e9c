//! Moving a tablet from one server to another while it is in use: who says what when.
//!
//! ```text
//!   target                          records                        source
//!     wait for a slot
//!     prepare ─────────────────────────────────────────────────────► wait for a slot; objects
//!     make the part
//!     preparing ──► moving            owner := target
//!     hand over ───────────────────────────────────────────────────► cut: workers leave the range
//!     serve ◄──────────────────────────────────────────────────────── version ceiling
//!     pull, 8 partitions, 2 x 20 KB each; priority pulls ◄──────────► gather
//!     moving ──► finished             source is nothing any more
//!     discard ─────────────────────────────────────────────────────► discard
//!
//!   pre-copy, before it says that it moves:
//!     copy ────────────────────────────────────────────────────────► pieces of all, then of what was written since
//!     store ◄──────────────────────────────────────────────────────── little is left
//!     preparing ──► moving            owner := target
//!     hand over ───────────────────────────────────────────────────► cut
//!     store, serve ◄───────────────────────────────────────────────── the last pieces, version ceiling
//!
//!   abort:  preparing ──► ended       or  moving ──► returning: target cuts, gives back what it has written
//!                                         since, source serves, returning ──► ended
//! ```
//! [`Target`] and [`Source`] are state machines without I/O: messages, ticks, ends of actions and the [`Phase`] in the
//! records go in, messages and actions come out. Messages may be lost, come twice, and in any order. No message moves
//! ownership: a side stops or begins to serve by the standing alone, which changes by compare-and-swap. What is local (a part,
//! workers, the store) is an action of who drives the machine.
//!
//! How many move at a time is bounded by slots ([`SlotAdmission`]). A side without one hears all the same, and can end.
//!
//! While the standing is `preparing`, `moving` or `returning` the death of one side makes the other one the owner. So who is
//! not registered serves none of the hashes meanwhile, and that somebody is gone is said by a commit which finds it
//! unregistered: see "Leases" in docs/notes.md.

mod admission;
mod copies;
mod copying;
mod lease;
mod local_view;
mod message;
mod priority;
mod pulls;
mod source;
mod target;

#[cfg(test)]
mod tests;

pub use admission::SlotAdmission;
pub use copying::Gathered;
pub use lease::Tenure;
pub use local_view::MigrationWait;
pub use message::{BadMessage, Copied, Left, Message, PullCursor, PullSpan};
pub use source::{Source, SourceAction, SourceEnd, SourceInput, SourceOutput};
pub use target::{Target, TargetAction, TargetEnd, TargetInput, TargetOutput};

use serde::{Deserialize, Serialize};

/// In which way a tablet moves.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// The target owns it first, and pulls.
    Rocksteady,
    /// The source stands still until the target has it: to compare with.
    StopAndCopy,
    /// The target owns it first, and pulls; the source goes on answering reads of clients that ask both.
    #[default]
    Cooperative,
    /// The source owns it while it sends all of it, then again and again what was written meanwhile, and stands still for
    /// the last of that: to compare with.
    PreCopy,
}

/// What the records say of a migration; the only way is down, but for a return that a dead source cannot take.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// The source owns the tablet.
    Preparing,
    /// The target owns it, the source has what has not arrived.
    Moving,
    /// The source owns it, the target has what was written since.
    Returning,
    /// The target owns it.
    Finished,
    /// The source owns it, as before.
    Ended,
}
