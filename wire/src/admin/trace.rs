//! Traces of single invocations.

use crate::body::{Body, BodyReader, BodyWriter};
use crate::status::Status;

/// Host calls of one kind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TracedCalls {
    /// The kind: `get`, `put`, ...
    pub kind: String,
    /// Number of calls.
    pub count: u64,
    /// Total duration, in nanoseconds.
    pub ns: u64,
}

/// One poll of the function.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TracedPoll {
    /// The time of its beginning, in nanoseconds since the invocation arrived.
    pub at_ns: u64,
    /// Its duration, host calls included.
    pub ns: u64,
    /// The reason of its end: 0 completion, 1 yield, 2 end of its slice, 3 conflict at the commit.
    pub end: u8,
    /// Duration of the commit behind it.
    pub commit_ns: u64,
    /// Its host calls by kind.
    pub calls: Vec<TracedCalls>,
}

/// The trace of one invocation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TraceEntry {
    /// The time of its arrival, in milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// The version of the extension.
    pub version: u32,
    /// The function.
    pub function: String,
    /// The status of its reply.
    pub status: u8,
    /// The time from its arrival until its reply was on its way, in nanoseconds.
    pub ns: u64,
    /// The duration of the reply, in nanoseconds.
    pub reply_ns: u64,
    /// Total number of polls; those beyond the list are added to its last one.
    pub polls_made: u64,
    /// Its polls in order.
    pub polls: Vec<TracedPoll>,
}

/// Traces, and the position to continue from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Traces {
    /// The last trace examined: the `after` of the next request.
    pub looked_at: u64,
    /// Traces behind `after` that were already discarded.
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
