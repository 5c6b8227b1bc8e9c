//! The inputs of a source's state machine, and its outputs to its driver.

use crate::migration::MigrationPhase;
use crate::migration::copying::Gathered;
use crate::migration::message::{Message, PullCursor};

/// An input of a source.
#[derive(Clone, Debug, PartialEq)]
pub enum SourceInput {
    /// A message of the target.
    Message(Message),
    /// A slot is free for it.
    Admitted,
    /// The phase in the records, as far as known.
    Phase(MigrationPhase),
    /// The record no longer exists; for the source the migration ended in this phase.
    Forgotten(MigrationPhase),
    /// An action has ended.
    End(SourceEnd),
    /// Time has passed, and more bytes may be copied; at least as often as messages are retransmitted.
    Tick {
        /// The current time.
        now_us: u64,
        /// The bytes that the load of the workers permits.
        allowance_bytes: u64,
    },
    /// The target is dead: its lease is over, it serves nothing.
    TargetGone,
    /// This server's lease is over, or held again.
    Registered(bool),
}

/// An action at the source.
#[derive(Clone, Debug, PartialEq)]
pub enum SourceAction {
    /// Request a slot, which all work on the store requires.
    TakeSlot,
    /// Count the objects that would move.
    Count,
    /// Read the records, and report their phase.
    LookUp,
    /// Change the phase in the records if it matches `from`; then report the phase, changed or not.
    Commit {
        /// The expected phase.
        from: MigrationPhase,
        /// The new phase.
        to: MigrationPhase,
        /// Whether the change requires that the records at that moment show the other server as gone.
        is_peer_gone: bool,
    },
    /// Take the range away from all workers.
    Cut,
    /// Gather the objects of a pull.
    Gather {
        /// The requested partition.
        partition: u8,
        /// The number of the pull.
        number: u32,
        /// The position to continue after.
        from: Option<PullCursor>,
    },
    /// Gather all objects of these hashes.
    GatherHashes {
        /// The number of the pull.
        number: u32,
        /// The requested hashes.
        hashes: Vec<u64>,
    },
    /// Make all writers mark their writes.
    Watch,
    /// Gather the next piece of a copying round: from all hashes in round 0, otherwise from the marked ones, whose
    /// marks are taken first.
    GatherCopy {
        /// The round; a new one begins at the first hash.
        round: u32,
    },
    /// Remove all objects of the range.
    Discard,
    /// Store returned objects, remove removed keys.
    TakeBack {
        /// The encoded objects.
        objects: Vec<u8>,
        /// The keys, by their two hashes.
        removed: Vec<PullCursor>,
    },
    /// Give the range to all workers, which write only versions above this one.
    Serve {
        /// The highest version at the target.
        ceiling: u64,
    },
}

/// The outcome of an action.
#[derive(Clone, Debug, PartialEq)]
pub enum SourceEnd {
    /// The number of objects.
    Counted(u64),
    /// The phase in the records after the change, made or not.
    Committed(MigrationPhase),
    /// The phase in the records, and whether this server was registered from before the read until now.
    LookedUp(MigrationPhase, bool),
    /// No worker has the range; the highest version of any present or former object in it.
    Cut(u64),
    /// The reply to a pull.
    Gathered(Message),
    /// All later writes are marked.
    Watched,
    /// A gathered piece.
    GatheredCopy(Gathered),
    /// Nothing is left.
    Discarded,
    /// The returned objects are stored.
    TakenBack,
    /// All workers have the range.
    Served,
}

/// An output of a source.
#[derive(Clone, Debug, PartialEq)]
pub enum SourceOutput {
    /// A message to the target.
    Send(Message),
    /// An action at this server.
    Do(SourceAction),
}
