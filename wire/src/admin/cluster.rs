//! Replies about a cluster as a whole: its servers, present or not, its coordinator, and its plans.

use crate::body::{Body, BodyReader, BodyWriter};
use crate::status::Status;

/// A cluster as seen by one of its servers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClusterStatus {
    /// Number of the server that replied; 0 for a single server.
    pub asked: u32,
    /// Number of the coordinating server; 0 briefly after it is gone.
    pub coordinator: u32,
    /// The present and former servers of the cluster, by number.
    pub members: Vec<MemberEntry>,
    /// The stored plans, by number.
    pub plans: Vec<PlanEntry>,
}

/// A present or former server of a cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemberEntry {
    /// Its number.
    pub id: u32,
    /// Its present or last address.
    pub tcp: String,
    /// The number of its starts.
    pub starts: u32,
    /// Whether it is present.
    pub is_there: bool,
    /// Whether it is drained: it gets no tablets.
    pub is_drained: bool,
}

/// The progress of a plan.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum PlanProgress {
    /// Its migrations are being started.
    Running = 0,
    /// Its goal is reached.
    Done = 1,
    /// A migration failed, or an operator stopped the plan.
    Stopped = 2,
}

impl PlanProgress {
    const ALL: [PlanProgress; 3] = [Self::Running, Self::Done, Self::Stopped];

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
#[derive(Clone, PartialEq, Eq, Debug)]
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
    pub on_the_way: u32,
    /// Completed migrations.
    pub done: u32,
    /// Failed migrations.
    pub failed: u32,
}

/// Tablets given to other servers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Adopted {
    /// Number of tablets.
    pub tablets: u32,
    /// Whether some are still moving.
    pub are_left: bool,
}

impl Body for ClusterStatus {
    fn write(&self, writer: &mut BodyWriter) {
        writer.u32(self.asked);
        writer.u32(self.coordinator);
        self.members.write(writer);
        self.plans.write(writer);
    }

    fn read(reader: &mut BodyReader<'_>) -> Result<ClusterStatus, Status> {
        Ok(ClusterStatus {
            asked: reader.u32()?,
            coordinator: reader.u32()?,
            members: Vec::read(reader)?,
            plans: Vec::read(reader)?,
        })
    }
}

impl Body for MemberEntry {
    fn write(&self, writer: &mut BodyWriter) {
        writer.u32(self.id);
        writer.text(&self.tcp);
        writer.u32(self.starts);
        writer.flag(self.is_there);
        writer.flag(self.is_drained);
    }

    fn read(reader: &mut BodyReader<'_>) -> Result<MemberEntry, Status> {
        Ok(MemberEntry {
            id: reader.u32()?,
            tcp: reader.text()?.to_owned(),
            starts: reader.u32()?,
            is_there: reader.flag()?,
            is_drained: reader.flag()?,
        })
    }
}

impl Body for PlanEntry {
    fn write(&self, writer: &mut BodyWriter) {
        writer.u32(self.id);
        writer.u32(self.drains);
        writer.u8(self.progress as u8);
        writer.u64(self.begun_ms);
        [self.moves, self.on_the_way, self.done, self.failed].iter().for_each(|count| writer.u32(*count));
    }

    fn read(reader: &mut BodyReader<'_>) -> Result<PlanEntry, Status> {
        Ok(PlanEntry {
            id: reader.u32()?,
            drains: reader.u32()?,
            progress: {
                let number = usize::from(reader.u8()?);
                PlanProgress::ALL.get(number).copied().ok_or(Status::Malformed)?
            },
            begun_ms: reader.u64()?,
            moves: reader.u32()?,
            on_the_way: reader.u32()?,
            done: reader.u32()?,
            failed: reader.u32()?,
        })
    }
}

impl Body for Adopted {
    fn write(&self, writer: &mut BodyWriter) {
        writer.u32(self.tablets);
        writer.flag(self.are_left);
    }

    fn read(reader: &mut BodyReader<'_>) -> Result<Adopted, Status> {
        Ok(Adopted { tablets: reader.u32()?, are_left: reader.flag()? })
    }
}
