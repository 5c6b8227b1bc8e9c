//! Log lines of a tenant's extensions.

use crate::body::{Body, BodyReader, BodyWriter};
use crate::status::Status;

/// One line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogEntry {
    /// Its number in the tenant's log; later lines have higher ones.
    pub number: u64,
    /// The time of writing, in milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// 0 error, 1 warning, 2 information, 3 debug.
    pub level: u8,
    /// The version of the extension.
    pub version: u32,
    /// The text.
    pub text: String,
}

impl Body for LogEntry {
    fn write(&self, writer: &mut BodyWriter) {
        writer.u64(self.number);
        writer.u64(self.at_ms);
        writer.u8(self.level);
        writer.u32(self.version);
        writer.text(&self.text);
    }

    fn read(reader: &mut BodyReader<'_>) -> Result<LogEntry, Status> {
        Ok(LogEntry {
            number: reader.u64()?,
            at_ms: reader.u64()?,
            level: reader.u8()?,
            version: reader.u32()?,
            text: reader.text()?.to_owned(),
        })
    }
}

/// Log lines, and the position to continue from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogLines {
    /// The last line examined: the `after` of the next request. 0 if there is none.
    pub looked_at: u64,
    /// Lines of the tenant behind `after` that were already discarded.
    pub missed: u64,
    /// The requested lines, oldest first.
    pub lines: Vec<LogEntry>,
}

impl Body for LogLines {
    fn write(&self, writer: &mut BodyWriter) {
        writer.u64(self.looked_at);
        writer.u64(self.missed);
        self.lines.write(writer);
    }

    fn read(reader: &mut BodyReader<'_>) -> Result<LogLines, Status> {
        Ok(LogLines { looked_at: reader.u64()?, missed: reader.u64()?, lines: Vec::read(reader)? })
    }
}
