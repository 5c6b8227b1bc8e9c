//! What goes into the machine of a target, and what comes out of it.
//!
//! Actions are done by whoever drives it: those on the store one after the other, in the order in which they came out; changes of
//! the records beside them.

use crate::cluster::migration::Phase;
use crate::cluster::migration::message::{Copied, Message, PullCursor};

/// What a target hears of.
#[derive(Clone, Debug, PartialEq)]
pub enum TargetInput {
    /// From the source.
    Message(Message),
    /// There is a slot for it.
    Admitted,
    /// Time has passed, in which so many bytes more may be pulled.
    Tick {
        /// What the load of the workers leaves.
        allowance_bytes: u64,
    },
    /// What the records say, as far as is known.
    Standing(Phase),
    /// There is no record of it any more: as far as the target is concerned it has ended so.
    Forgotten(Phase),
    /// An action has ended.
    End(TargetEnd),
    /// Somebody waits for the objects of this hash.
    Want(u64),
    /// Let everything be as it was.
    Abort,
    /// The source is dead: its lease is over, it serves nobody.
    SourceGone,
    /// The lease of this server is over, or held again.
    Registered(bool),
}

/// What is to be done here.
#[derive(Clone, Debug, PartialEq)]
pub enum TargetAction {
    /// Make a part for about so many objects, which nobody uses yet.
    MakePart {
        /// About how many.
        objects: u64,
    },
    /// Change what the records say, if it is that; then say what they say, changed or not.
    Commit {
        /// What they should say now.
        from: Phase,
        /// What they say then.
        to: Phase,
        /// Only while the other server is gone, as the records have it in the same moment.
        is_peer_gone: bool,
    },
    /// Read the records, and say what they say.
    LookUp,
    /// Give the range to all workers, who write no version up to this one.
    Serve {
        /// At the source.
        ceiling: u64,
    },
    /// Store objects of a partition, then note that it has arrived up to there; wholly where there is no place.
    Replay {
        /// Which.
        partition: u8,
        /// Up to where.
        next: Option<PullCursor>,
        /// Their bytes.
        objects: Vec<u8>,
    },
    /// Store objects that somebody waits for, then note that these hashes were pulled.
    ReplayPriority {
        /// Of these hashes, all there are.
        hashes: Vec<u64>,
        /// Their bytes.
        objects: Vec<u8>,
    },
    /// Remove what is in the spans of a piece and not in it, where there may be something; then store its objects.
    StoreCopy(Copied),
    /// What waits for these hashes need not wait any more.
    Wake {
        /// Each once.
        hashes: Vec<u64>,
    },
    /// What has not arrived will never: nobody waits for it any more. What is copied and not served yet is of the past, and goes.
    GiveUpRest,
    /// Take the range away from all workers.
    Cut,
    /// Gather what comes next of what was written and removed here.
    GatherBack,
    /// Nobody uses the part any more.
    DropPart,
}

/// How an action ended.
#[derive(Clone, Debug, PartialEq)]
pub enum TargetEnd {
    /// The part is there, its partitions have these first and last hashes.
    PartMade(Vec<(u64, u64)>),
    /// The records say so after the change, made or not.
    Committed(Phase),
    /// The records say so, and whether this server was registered from before they were read until now.
    LookedUp(Phase, bool),
    /// All workers have the range.
    Served,
    /// They are here.
    Replayed {
        /// Of this partition.
        partition: u8,
    },
    /// They are here.
    PriorityReplayed,
    /// It is here.
    CopyStored,
    /// No worker has the range; no object of it has or had a higher version.
    Cut(u64),
    /// What was written here.
    GatheredBack {
        /// There is no more.
        is_last: bool,
        /// Their bytes.
        objects: Vec<u8>,
        /// Keys by their two hashes.
        removed: Vec<PullCursor>,
    },
}

/// What a target wants.
#[derive(Clone, Debug, PartialEq)]
pub enum TargetOutput {
    /// Sent to the source.
    Send(Message),
    /// Done here.
    Do(TargetAction),
}
