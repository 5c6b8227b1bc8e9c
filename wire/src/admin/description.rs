//! All that is known of an extension: its functions, limits, versions, and what their invocations came to.

use crate::body::{Body, BodyReader, BodyWriter};
use crate::status::Status;
use crate::{FunctionEntry, Statistic, VersionState};

/// What the invocations of a version came to since the server started, over all its workers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Measured {
    /// How many ended in each way; a way is named by the server, `ok` the good one. Ways that did not occur
    /// are left out.
    pub ends: Vec<Statistic>,
    /// Time on the processor, in nanoseconds, extrapolated from those that were timed.
    pub cpu_ns: u64,
    /// How many were timed.
    pub timed: u64,
    /// Nanoseconds that half of them did not exceed; 0 when none was timed.
    pub ns_p50: u64,
    /// Nanoseconds that 99 of 100 did not exceed.
    pub ns_p99: u64,
    /// Nanoseconds that 999 of 1000 did not exceed.
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

/// One version.
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
    /// When it was installed, in milliseconds since the Unix epoch.
    pub installed_ms: u64,
    /// Milliseconds that checking and compiling took.
    pub compile_ms: u32,
    /// What its invocations came to.
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

/// All that is known of an extension.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExtensionDescription {
    /// What invocations name it by.
    pub extension: u32,
    /// Its name.
    pub name: String,
    /// Which versions invocations get.
    pub standing: VersionState,
    /// The functions of the current version.
    pub functions: Vec<FunctionEntry>,
    /// What an invocation may use at most; each limit is named by the server, unit last.
    pub limits: Vec<Statistic>,
    /// The versions that are loaded, oldest first.
    pub versions: Vec<VersionDescription>,
}

impl Body for ExtensionDescription {
    fn write(&self, writer: &mut BodyWriter) {
        writer.u32(self.extension);
        writer.text(&self.name);
        self.standing.write(writer);
        self.functions.write(writer);
        self.limits.write(writer);
        self.versions.write(writer);
    }

    fn read(reader: &mut BodyReader<'_>) -> Result<ExtensionDescription, Status> {
        Ok(ExtensionDescription {
            extension: reader.u32()?,
            name: reader.text()?.to_owned(),
            standing: VersionState::read(reader)?,
            functions: Vec::read(reader)?,
            limits: Vec::read(reader)?,
            versions: Vec::read(reader)?,
        })
    }
}
