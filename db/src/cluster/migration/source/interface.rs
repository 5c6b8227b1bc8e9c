//! What a source hears, and what it wants of who drives it.

use crate::cluster::migration::Phase;
use crate::cluster::migration::copying::Gathered;
use crate::cluster::migration::message::{Message, PullCursor};

/// What a source hears of.
#[derive(Clone, Debug, PartialEq)]
pub enum SourceInput {
    /// From the target.
    Message(Message),
    /// There is a slot for it.
    Admitted,
    /// What the records say, as far as is known.
    Standing(Phase),
    /// There is no record of it any more: as far as the source is concerned it has ended so.
    Forgotten(Phase),
    /// An action has ended.
    End(SourceEnd),
    /// Time has passed, in which so many bytes more may be copied; at least as often as a message is said again.
    Tick {
        /// Now.
        now_us: u64,
        /// What the load of the workers leaves.
        allowance_bytes: u64,
    },
    /// The target is dead: its lease is over, it serves nobody.
    TargetGone,
    /// The lease of this server is over, or held again.
    Registered(bool),
}

/// What is to be done here.
#[derive(Clone, Debug, PartialEq)]
pub enum SourceAction {
    /// Ask for a slot: nothing is done on the store without one.
    TakeSlot,
    /// Count the objects that would move.
    Count,
    /// Read the records, and say what they say.
    LookUp,
    /// Change what the records say, if it is that; then say what they say, changed or not.
    Commit {
        /// What they should say now.
        from: Phase,
        /// What they say then.
        to: Phase,
        /// Only while the other server is gone, as the records have it in the same moment.
        is_peer_gone: bool,
    },
    /// Take the range away from all workers.
    Cut,
    /// Gather a pull.
    Gather {
        /// As asked.
        partition: u8,
        /// As asked.
        number: u32,
        /// Behind this place.
        from: Option<PullCursor>,
    },
    /// Gather all objects of these hashes.
    GatherHashes {
        /// As asked.
        number: u32,
        /// As asked.
        hashes: Vec<u64>,
    },
    /// See to it that all writers mark what they write to.
    Watch,
    /// Gather what comes next in a round of copying: of all in round 0, else of what was marked, with its mark taken first.
    GatherCopy {
        /// Which; another one than before begins at the first hash.
        round: u32,
    },
    /// Remove all objects of the range.
    Discard,
    /// Store objects that come back, remove what was removed.
    TakeBack {
        /// Their bytes.
        objects: Vec<u8>,
        /// Keys by their two hashes.
        removed: Vec<PullCursor>,
    },
    /// Give the range to all workers, who write no version up to this one.
    Serve {
        /// At the target.
        ceiling: u64,
    },
}

/// How an action ended.
#[derive(Clone, Debug, PartialEq)]
pub enum SourceEnd {
    /// So many objects.
    Counted(u64),
    /// The records say so after the change, made or not.
    Committed(Phase),
    /// The records say so, and whether this server was registered from before they were read until now.
    LookedUp(Phase, bool),
    /// No worker has the range; no object of it has or had a higher version.
    Cut(u64),
    /// A pull.
    Gathered(Message),
    /// Whatever is written from now on is marked.
    Watched,
    /// A piece.
    GatheredCopy(Gathered),
    /// Nothing is left.
    Discarded,
    /// What came back is here.
    TakenBack,
    /// All workers have the range.
    Served,
}

/// What a source wants.
#[derive(Clone, Debug, PartialEq)]
pub enum SourceOutput {
    /// Sent to the target.
    Send(Message),
    /// Done here.
    Do(SourceAction),
}
