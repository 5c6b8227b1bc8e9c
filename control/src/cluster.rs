//! Replies about a cluster: servers, tablets, migrations, plans.
//!
//! Hashes are those of keys (docs/formats.md); a range includes its first and its last one.

use serde::{Deserialize, Serialize};

/// A cluster as seen by one of its servers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ClusterStatus {
    /// Number of the server that replied; 0 for a single server.
    pub asked: u32,
    /// Number of the coordinating server; 0 while there is none.
    pub coordinator: u32,
    /// The present and former servers of the cluster, by number.
    pub members: Vec<MemberEntry>,
    /// The stored plans, by number.
    pub plans: Vec<PlanEntry>,
}

/// A present or former server of a cluster.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MemberEntry {
    /// Its number.
    pub id: u32,
    /// Its present or last address.
    pub tcp: String,
    /// The number of its starts.
    pub starts: u32,
    /// Whether it is present.
    #[serde(rename = "is_there")]
    pub is_present: bool,
    /// Whether it is drained: it gets no tablets.
    pub is_drained: bool,
    /// How many other servers have, at least, all that it acknowledged of tables on the disk; `None` from an older server.
    #[serde(default)]
    pub replicas: Option<u32>,
    /// For how long it has been missing, in milliseconds, as far as the answering server knows.
    #[serde(default)]
    pub missing_ms: Option<u64>,
}

/// The progress of a plan.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PlanProgress {
    /// Its migrations are being started.
    Running,
    /// Its goal is reached.
    Done,
    /// A migration failed, or an operator stopped the plan.
    Stopped,
}

impl PlanProgress {
    /// Returns the progress as a word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Done => "done",
            Self::Stopped => "stopped",
        }
    }
}

/// Migrations with a common goal.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PlanEntry {
    /// Its number, never reused.
    pub id: u32,
    /// The server that is drained; 0 for a plan that balances all servers.
    pub drains: u32,
    /// The progress of the plan.
    pub progress: PlanProgress,
    /// The time of its creation, in milliseconds since the Unix epoch.
    pub begun_ms: u64,
    /// Migrations known so far.
    pub moves: u32,
    /// Migrations in progress.
    #[serde(rename = "on_the_way")]
    pub in_flight: u32,
    /// Completed migrations.
    pub done: u32,
    /// Failed migrations.
    pub failed: u32,
}

/// Tablets given to other servers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Adopted {
    /// Number of tablets.
    pub tablets: u32,
    /// Whether some are still moving.
    #[serde(rename = "are_left")]
    pub remaining: bool,
}

/// A present server of a cluster.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ServerEntry {
    /// Its number in the cluster.
    pub id: u32,
    /// Whether it is the server that replied.
    pub is_asked: bool,
    /// Address and port of its streams.
    pub tcp: String,
    /// The UDP port of each core.
    pub frame_ports: Vec<u16>,
    /// Its view.
    pub view: u64,
    /// The time of its start, in milliseconds since the Unix epoch.
    pub started_ms: u64,
    /// Its version.
    pub version: String,
}

/// A hash range of a table with one owner.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TabletEntry {
    /// `owner/name` of the table.
    pub table: String,
    /// The table's number.
    pub id: u32,
    /// The first hash.
    pub first: u64,
    /// The last hash.
    pub last: u64,
    /// Number of the owning server.
    pub server: u32,
    /// The time of its objects' loss, in milliseconds since the Unix epoch; 0 for no loss.
    pub emptied_ms: u64,
}

/// The mode of a migration.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MigrationMode {
    /// The target owns the tablet first, and pulls.
    Rocksteady,
    /// The source pauses until the target has the tablet: for comparison.
    StopAndCopy,
    /// The target owns the tablet first, and pulls; clients read both servers for objects that may not have arrived.
    #[default]
    Cooperative,
    /// The source sends everything while it serves, and pauses for the rest: for comparison.
    PreCopy,
    /// The source is gone, and the target rebuilds the tablet from replicas of its log.
    Recovery,
}

impl MigrationMode {
    /// Returns the name on command lines.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rocksteady => "rocksteady",
            Self::StopAndCopy => "stop-and-copy",
            Self::Cooperative => "cooperative",
            Self::PreCopy => "pre-copy",
            Self::Recovery => "recovery",
        }
    }
}

/// The phase of a migration, which determines the owner of the hashes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MigrationPhase {
    /// The source owns the hashes.
    Preparing,
    /// The target owns them; the source has the objects that have not arrived.
    Moving,
    /// The source owns them; the target has the objects written since.
    Returning,
    /// The target owns them; the source removes the rest.
    Finished,
    /// The source owns them, as before.
    Ended,
}

impl MigrationPhase {
    /// Returns the phase as a word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Preparing => "preparing",
            Self::Moving => "moving",
            Self::Returning => "returning",
            Self::Finished => "finished",
            Self::Ended => "ended",
        }
    }
}

/// A migration of a table's hashes from one server to another.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MigrationEntry {
    /// Its number, never reused.
    pub id: u32,
    /// `owner/name` of the table.
    pub table: String,
    /// The first hash.
    pub first: u64,
    /// The last hash.
    pub last: u64,
    /// Number of the source server.
    pub source: u32,
    /// Number of the target server.
    pub target: u32,
    /// The mode.
    pub mode: MigrationMode,
    /// The phase.
    pub phase: MigrationPhase,
    /// Whether an abort was requested; then the hashes stay at the source.
    pub is_aborted: bool,
    /// The time of its beginning, in milliseconds since the Unix epoch.
    pub begun_ms: u64,
}

/// The resource that a migration waits for at one of its servers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MigrationWait {
    /// Nothing: the migration proceeds.
    Nothing,
    /// A migration slot at this server.
    Slot,
    /// The other server.
    Peer,
    /// The metadata.
    #[serde(rename = "metadata")]
    Records,
    /// The target's disk, which is to have all objects of a durable table.
    Disk,
}

impl MigrationWait {
    /// Returns the resource as a word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Slot => "slot",
            Self::Peer => "peer",
            Self::Records => "metadata",
            Self::Disk => "disk",
        }
    }
}

/// The progress of a migration.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MigrationProgress {
    /// The migration, in the server's latest state.
    pub migration: MigrationEntry,
    /// Whether the source reports.
    pub is_source: bool,
    /// Whether the migration has ended.
    pub is_over: bool,
    /// The resource that it waits for.
    pub awaited: MigrationWait,
    /// Migrations that get a slot earlier, if it waits for one.
    pub ahead: u32,
    /// Approximate number of objects at the beginning.
    pub objects_expected: u64,
    /// Bytes of the log that a recovery has had read, once it knows how many these will be.
    #[serde(default)]
    pub log_bytes: Option<u64>,
    /// How many these will be.
    #[serde(default)]
    pub log_bytes_expected: Option<u64>,
    /// Objects stored at the target; a source does not count them.
    pub objects: u64,
    /// Bytes of objects sent or received.
    pub bytes: u64,
    /// Bytes of objects per second.
    pub bytes_per_second: u64,
    /// Reply bytes of the source to clients that read both servers.
    pub second_read_bytes: u64,
    /// Microseconds without a server for the hashes, as measured by the target.
    pub pause_us: u64,
    /// Milliseconds since the transfer began, until its end if it has ended.
    pub took_ms: u64,
}

impl MigrationProgress {
    /// Returns the milliseconds that are left until a recovery has read everything, at its pace so far; `None` for others, or if that
    /// is unknown.
    pub fn left_ms(&self) -> Option<u64> {
        let (read, expected) = (self.log_bytes?, self.log_bytes_expected?);
        let left = u128::from(expected.saturating_sub(read)) * u128::from(self.took_ms);
        let ms = left.checked_div(read.into())?;
        (!self.is_over).then(|| u64::try_from(ms).unwrap_or(u64::MAX))
    }
}
