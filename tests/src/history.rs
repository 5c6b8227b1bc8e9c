//! What clients asked a store, when, and what they were told: one history, to be checked afterwards.
//!
//! An [`Operation`] is on one key; values are numbers of eight bytes, so that a put, a get and an increment can be told apart
//! from each other. Moments are numbers of one clock for all clients: that one operation ended before another began is
//! told by them alone. What a client was never told the end of has no end and an [`Outcome::Unknown`]: it happened at some
//! moment after its call, or never. Written by the simulated cluster and by recording clients, read by [`linearizability`].

pub mod linearizability;
mod model;
pub mod porcupine;
mod text;

pub use linearizability::{Verdict, check};
pub use text::to_text;

/// When an operation may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Condition {
    /// Always.
    Always,
    /// There is no object.
    Absent,
    /// There is one.
    Present,
    /// There is one of this version.
    Version(u64),
}

/// What was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// The object.
    Get,
    /// To write this.
    Put(i64, Condition),
    /// To delete it.
    Delete(Condition),
    /// To add this to it; what is not there counts as 0.
    Add(i64),
    /// If this is its value it is there no more: it was put for a while.
    Expire(i64),
    /// A server died with it: from some moment on it is as it was at any time before, or was never there.
    Lose,
}

/// What was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The object: its version and value.
    Found(u64, i64),
    /// There is none.
    Nothing,
    /// Written, or deleted: the version.
    Done(u64),
    /// Added: the version and the sum.
    Summed(u64, i64),
    /// The condition does not hold: the version that is there, 0 for none.
    Refused(u64),
    /// No answer.
    Unknown,
}

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Who asked.
    pub client: u32,
    /// Which key.
    pub key: u64,
    /// When it was asked.
    pub call: u64,
    /// When the answer came.
    pub end: Option<u64>,
    /// What was asked.
    pub action: Action,
    /// The answer.
    pub outcome: Outcome,
}
