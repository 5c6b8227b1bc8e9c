//! What happened to single invocations.

use crate::body::{Body, BodyReader, BodyWriter};
use crate::status::Status;

/// Host calls of one kind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TracedCalls {
    /// Which kind: `get`, `put`, ...
    pub kind: String,
    /// How many.
    pub count: u64,
    /// How long all of them took, in nanoseconds.
    pub ns: u64,
}

/// One time that the function ran.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TracedPoll {
    /// When it began, in nanoseconds since the invocation came.
    pub at_ns: u64,
    /// How long it ran, host calls included.
    pub ns: u64,
    /// 0 it ended, 1 it yielded, 2 its slice was over, 3 its commit met a conflict.
    pub end: u8,
    /// How long the commit behind it took.
    pub commit_ns: u64,
    /// Its host calls by kind.
    pub calls: Vec<TracedCalls>,
}

/// One invocation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TraceEntry {
    /// When it came, in milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// The version of the extension.
    pub version: u32,
    /// The function.
    pub function: String,
    /// The status of its answer.
    pub status: u8,
    /// From its coming until its answer was on its way, in nanoseconds.
    pub ns: u64,
    /// How long the answer took, in nanoseconds.
    pub reply_ns: u64,
    /// Polls in all; those beyond the list are added up in its last one.
    pub polls_made: u64,
    /// Its polls in order.
    pub polls: Vec<TracedPoll>,
}

/// Traces, and where to go on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Traces {
    /// The last trace that was looked at: what `after` of the next request is.
    pub looked_at: u64,
    /// Traces behind `after` that were no longer there.
    pub missed: u64,
    /// The traces, oldest first.
    pub traces: Vec<TraceEntry>,
}

impl Body for TracedCalls {
    fn write(&self, writer: &mut BodyWriter) {
        writer.text(&self.kind);
        writer.u64(self.count);
        writer.u64(self.ns);
    }

    fn read(reader: &mut BodyReader<'_>) -> Result<TracedCalls, Status> {
        Ok(TracedCalls { kind: reader.text()?.to_owned(), count: reader.u64()?, ns: reader.u64()? })
    }
}

impl Body for TracedPoll {
    fn write(&self, writer: &mut BodyWriter) {
        writer.u64(self.at_ns);
        writer.u64(self.ns);
        writer.u8(self.end);
        writer.u64(self.commit_ns);
        self.calls.write(writer);
    }

    fn read(reader: &mut BodyReader<'_>) -> Result<TracedPoll, Status> {
        Ok(TracedPoll {
            at_ns: reader.u64()?,
            ns: reader.u64()?,
            end: reader.u8()?,
            commit_ns: reader.u64()?,
            calls: Vec::read(reader)?,
        })
    }
}

impl Body for TraceEntry {
    fn write(&self, writer: &mut BodyWriter) {
        writer.u64(self.at_ms);
        writer.u32(self.version);
        writer.text(&self.function);
        writer.u8(self.status);
        writer.u64(self.ns);
        writer.u64(self.reply_ns);
        writer.u64(self.polls_made);
        self.polls.write(writer);
    }

    fn read(reader: &mut BodyReader<'_>) -> Result<TraceEntry, Status> {
        Ok(TraceEntry {
            at_ms: reader.u64()?,
            version: reader.u32()?,
            function: reader.text()?.to_owned(),
            status: reader.u8()?,
            ns: reader.u64()?,
            reply_ns: reader.u64()?,
            polls_made: reader.u64()?,
            polls: Vec::read(reader)?,
        })
    }
}

impl Body for Traces {
    fn write(&self, writer: &mut BodyWriter) {
        writer.u64(self.looked_at);
        writer.u64(self.missed);
        self.traces.write(writer);
    }

    fn read(reader: &mut BodyReader<'_>) -> Result<Traces, Status> {
        Ok(Traces { looked_at: reader.u64()?, missed: reader.u64()?, traces: Vec::read(reader)? })
    }
}
