//! Answers about a cluster as a whole: its servers, there or not, who coordinates, and plans.

use crate::body::{Body, BodyReader, BodyWriter};
use crate::status::Status;

/// A cluster as one of its servers knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClusterStatus {
    /// Number of the server that was asked; 0 of one that is alone.
    pub asked: u32,
    /// Number of the server that coordinates; 0 for a moment after that one is gone.
    pub coordinator: u32,
    /// The servers that the cluster has, or has had, by number.
    pub members: Vec<MemberEntry>,
    /// The plans that are kept, by number.
    pub plans: Vec<PlanEntry>,
}

/// A server that a cluster has, or has had.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemberEntry {
    /// Its number.
    pub id: u32,
    /// Where it is reached, or was last.
    pub tcp: String,
    /// How often it was started.
    pub starts: u32,
    /// Whether it is there.
    pub is_there: bool,
    /// Whether it is drained: it gets no tablets.
    pub is_drained: bool,
}

/// How far a plan is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum PlanProgress {
    /// Moves are begun.
    Running = 0,
    /// Its goal is reached.
    Done = 1,
    /// A move came to nothing, or somebody stopped it.
    Stopped = 2,
}

impl PlanProgress {
    const ALL: [PlanProgress; 3] = [Self::Running, Self::Done, Self::Stopped];

    /// In a word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Done => "done",
            Self::Stopped => "stopped",
        }
    }
}

/// Migrations that lead to a goal together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlanEntry {
    /// Its number, never reused.
    pub id: u32,
    /// The server that is to own nothing; 0 when all are to own the same.
    pub drains: u32,
    /// How far it is.
    pub progress: PlanProgress,
    /// When it was made, in milliseconds since the Unix epoch.
    pub begun_ms: u64,
    /// Moves that are known so far.
    pub moves: u32,
    /// Those that are on the way.
    pub on_the_way: u32,
    /// Those that are there.
    pub done: u32,
    /// Those that came to nothing.
    pub failed: u32,
}

/// Tablets that others were given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Adopted {
    /// How many.
    pub tablets: u32,
    /// Whether some are still on the move.
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
