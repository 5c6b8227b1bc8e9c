//! The inputs and outputs of a target's state machine.
//!
//! Its driver performs the actions: those on the store one after another, in the order of output; changes of the
//! records concurrently.

use crate::migration::MigrationPhase;
use crate::migration::message::{Copied, Message, PullCursor};

/// An input of a target.
#[derive(Clone, Debug, PartialEq)]
pub enum TargetInput {
    /// A message of the source.
    Message(Message),
    /// A slot is free for it.
    Admitted,
    /// Time has passed, and more bytes may be pulled.
    Tick {
        /// The bytes that the load of the workers permits.
        allowance_bytes: u64,
    },
    /// The phase in the records, as far as known.
    Phase(MigrationPhase),
    /// The record no longer exists; for the target the migration ended in this phase.
    Forgotten(MigrationPhase),
    /// An action has ended.
    End(TargetEnd),
    /// A request waits for the objects of this hash.
    Want(u64),
    /// Restore the state before the migration.
    Abort,
    /// The source is dead: its lease is over, it serves nothing.
    SourceGone,
    /// This server's lease is over, or held again.
    Registered(bool),
}

/// An action at the target.
#[derive(Clone, Debug, PartialEq)]
pub enum TargetAction {
    /// Create a part for about `objects` objects, which nothing uses yet.
    MakePart {
        /// The approximate number of objects.
        objects: u64,
    },
    /// Change the phase in the records if it matches `from`; then report the phase, changed or not.
    Commit {
        /// The expected phase.
        from: MigrationPhase,
        /// The new phase.
        to: MigrationPhase,
        /// Whether the change requires that the records at that moment show the other server as gone.
        is_peer_gone: bool,
    },
    /// Read the records, and report their phase.
    LookUp,
    /// Give the range to all workers, which write only versions above this one.
    Serve {
        /// The highest version at the source.
        ceiling: u64,
    },
    /// Store objects of a partition, then record that it has arrived up to `next`; completely if `None`.
    Replay {
        /// The partition.
        partition: u8,
        /// The position up to which it has arrived.
        next: Option<PullCursor>,
        /// The encoded objects.
        objects: Vec<u8>,
    },
    /// Store objects of a priority pull, then record that their hashes were pulled.
    ReplayPriority {
        /// The hashes, whose existing objects are all included.
        hashes: Vec<u64>,
        /// The encoded objects.
        objects: Vec<u8>,
    },
    /// Remove objects in the spans of a piece that the piece does not contain, if any may exist; then store its
    /// objects.
    StoreCopy(Copied),
    /// Wait until the disk has all stored objects; if it fails, abort.
    Sync,
    /// Wake the requests that wait for these hashes.
    Wake {
        /// The hashes, each once.
        hashes: Vec<u64>,
    },
    /// Give up missing objects: nothing waits for them any more. Copied objects that are not served yet are outdated,
    /// and are dropped.
    GiveUpRest,
    /// Take the range away from all workers.
    Cut,
    /// Gather the next local writes and removals to return.
    GatherBack,
    /// Drop the part, which nothing uses any more.
    DropPart,
}

/// The outcome of an action.
#[derive(Clone, Debug, PartialEq)]
pub enum TargetEnd {
    /// The part exists; its partitions have these first and last hashes.
    PartMade(Vec<(u64, u64)>),
    /// The phase in the records after the change, made or not.
    Committed(MigrationPhase),
    /// The phase in the records, and whether this server was registered from before the read until now.
    LookedUp(MigrationPhase, bool),
    /// All workers have the range.
    Served,
    /// The objects of a pull are stored.
    Replayed {
        /// The partition.
        partition: u8,
    },
    /// The objects of a priority pull are stored.
    PriorityReplayed,
    /// The copied piece is stored.
    CopyStored,
    /// The disk has all stored objects.
    Synced,
    /// No worker has the range; the highest version of any present or former object in it.
    Cut(u64),
    /// Local writes and removals to return.
    GatheredBack {
        /// Whether they are the last.
        is_last: bool,
        /// The encoded objects.
        objects: Vec<u8>,
        /// The removed keys, by their two hashes.
        removed: Vec<PullCursor>,
    },
}

/// An output of a target.
#[derive(Clone, Debug, PartialEq)]
pub enum TargetOutput {
    /// A message to the source.
    Send(Message),
    /// An action at this server.
    Do(TargetAction),
}
