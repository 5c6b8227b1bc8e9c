//! The description of an extension: its functions, limits, versions, and statistics of their invocations.

use crate::body::{Body, BodyReader, BodyWriter};
use crate::status::Status;
use crate::{FunctionEntry, Statistic, VersionState};

/// Statistics of a version's invocations since the server started, over all its workers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Measured {
    /// Number of invocations by outcome. The server names the outcomes, `ok` is success. Outcomes that did not occur
    /// are omitted.
    pub ends: Vec<Statistic>,
    /// Processor time in nanoseconds, extrapolated from the timed invocations.
    pub cpu_ns: u64,
    /// Number of timed invocations.
    pub timed: u64,
    /// Median in nanoseconds; 0 if none was timed.
    pub ns_p50: u64,
    /// 99th percentile in nanoseconds.
    pub ns_p99: u64,
    /// 99.9th percentile in nanoseconds.
    pub ns_p999: u64,
}

impl Body for Measured {
    fn write(&self, writer: &mut BodyWriter) {
        self.ends.write(writer);
        for number in [self.cpu_ns, self.timed, self.ns_p50, self.ns_p99, self.ns_p999] {
            writer.u64(number);
        }
    }

    fn read(reader: &mut BodyReader<'_>) -> Result<Measured, Status> {
        Ok(Measured {
            ends: Vec::read(reader)?,
            cpu_ns: reader.u64()?,
            timed: reader.u64()?,
            ns_p50: reader.u64()?,
            ns_p99: reader.u64()?,
            ns_p999: reader.u64()?,
        })
    }
}

/// The description of one version.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VersionDescription {
    /// Its number.
    pub version: u32,
    /// Hash of the artefact, as hexadecimal text.
    pub content_hash: String,
    /// Bytes of the artefact.
    pub artefact_bytes: u64,
    /// Bytes of the source.
    pub source_bytes: u64,
    /// The time of its installation, in milliseconds since the Unix epoch.
    pub installed_ms: u64,
    /// Milliseconds of checking and compiling.
    pub compile_ms: u32,
    /// Statistics of its invocations.
    pub measured: Measured,
}

impl Body for VersionDescription {
    fn write(&self, writer: &mut BodyWriter) {
        writer.u32(self.version);
        writer.text(&self.content_hash);
        writer.u64(self.artefact_bytes);
        writer.u64(self.source_bytes);
        writer.u64(self.installed_ms);
        writer.u32(self.compile_ms);
        self.measured.write(writer);
    }

    fn read(reader: &mut BodyReader<'_>) -> Result<VersionDescription, Status> {
        Ok(VersionDescription {
            version: reader.u32()?,
            content_hash: reader.text()?.to_owned(),
            artefact_bytes: reader.u64()?,
            source_bytes: reader.u64()?,
            installed_ms: reader.u64()?,
            compile_ms: reader.u32()?,
            measured: Measured::read(reader)?,
        })
    }
}

/// The description of an extension.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExtensionDescription {
    /// The id that invocations use.
    pub extension: u32,
    /// Its name.
    pub name: String,
    /// The versions that invocations get.
    pub state: VersionState,
    /// The functions of the current version.
    pub functions: Vec<FunctionEntry>,
    /// The maximum use of an invocation; the server names each limit, unit last.
    pub limits: Vec<Statistic>,
    /// The loaded versions, oldest first.
    pub versions: Vec<VersionDescription>,
}

impl Body for ExtensionDescription {
    fn write(&self, writer: &mut BodyWriter) {
        writer.u32(self.extension);
        writer.text(&self.name);
        self.state.write(writer);
        self.functions.write(writer);
        self.limits.write(writer);
        self.versions.write(writer);
    }

    fn read(reader: &mut BodyReader<'_>) -> Result<ExtensionDescription, Status> {
        Ok(ExtensionDescription {
            extension: reader.u32()?,
            name: reader.text()?.to_owned(),
            state: VersionState::read(reader)?,
            functions: Vec::read(reader)?,
            limits: Vec::read(reader)?,
            versions: Vec::read(reader)?,
        })
    }
}
