//! The migration of a tablet from one server to another while it is in use: the protocol.
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
//!     moving ──► finished             source owns nothing
//!     discard ─────────────────────────────────────────────────────► discard
//!
//!   pre-copy, before the phase `moving`:
//!     copy ────────────────────────────────────────────────────────► pieces of all objects, then of later writes
//!     store ◄──────────────────────────────────────────────────────── little is left
//!     preparing ──► moving            owner := target
//!     hand over ───────────────────────────────────────────────────► cut
//!     store, serve ◄───────────────────────────────────────────────── the last pieces, version ceiling
//!
//!   abort:  preparing ──► ended       or  moving ──► returning: target cuts, returns the objects written
//!                                         since, source serves, returning ──► ended
//! ```
//! [`Target`] and [`Source`] are state machines without I/O. Their inputs are messages, ticks, ends of actions and the
//! [`MigrationPhase`] in the records; their outputs are messages and actions. Messages may be lost, duplicated and reordered. No
//! message moves ownership: a side stops or begins to serve only by the phase, which changes by compare-and-swap. Local
//! work (a part, workers, the store) is an action of the machine's driver.
//!
//! Slots ([`SlotAdmission`]) bound the number of concurrent migrations. A side without a slot still receives messages,
//! and can end.
//!
//! While the phase is `preparing`, `moving` or `returning`, the death of one side makes the other one the owner. So an
//! unregistered server serves none of the hashes meanwhile, and a server is declared gone by a commit that finds it
//! unregistered: see "Leases" in docs/notes.md.

mod admission;
mod copying;
mod local_view;
mod message;
mod priority;
mod pulls;
mod source;
mod target;

#[cfg(test)]
mod tests;

pub use admission::SlotAdmission;
pub use control::{MigrationMode, MigrationPhase, MigrationWait};
pub use copying::Gathered;
pub use local_view::Tenure;
pub use message::{BadMessage, Copied, Left, Message, PullCursor, PullSpan};
pub use source::{Source, SourceAction, SourceEnd, SourceInput, SourceOutput};
pub use target::{Target, TargetAction, TargetEnd, TargetInput, TargetOutput};
