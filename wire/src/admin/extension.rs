//! Answers about the extensions of a tenant, their description apart.
//!
//! An invocation names an extension by its id, a version of it (or 0, the current one) and a function by
//! [`crate::function_hash`] of its name; [`ExtensionResolved`] is the way from names to these numbers.

use crate::body::{Body, BodyReader, BodyWriter};
use crate::status::Status;
use crate::{VersionEntry, VersionState};

/// What a function may do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FunctionMode {
    /// It may not write, and is not recorded for exactly-once execution.
    Read,
    /// Its writes are applied together when it ends well.
    Write,
}

impl Body for FunctionMode {
    fn write(&self, writer: &mut BodyWriter) {
        writer.u8(match self {
            FunctionMode::Read => 0,
            FunctionMode::Write => 1,
        });
    }

    fn read(reader: &mut BodyReader<'_>) -> Result<FunctionMode, Status> {
        match reader.u8()? {
            0 => Ok(FunctionMode::Read),
            1 => Ok(FunctionMode::Write),
            _ => Err(Status::Malformed),
        }
    }
}

/// One function of an extension.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FunctionEntry {
    /// Its name.
    pub name: String,
    /// [`crate::function_hash`] of its name.
    pub hash: u32,
    /// What it may do.
    pub mode: FunctionMode,
    /// What its author wrote above it; may be empty.
    pub doc: String,
}

impl Body for FunctionEntry {
    fn write(&self, writer: &mut BodyWriter) {
        writer.text(&self.name);
        writer.u32(self.hash);
        self.mode.write(writer);
        writer.text(&self.doc);
    }

    fn read(reader: &mut BodyReader<'_>) -> Result<FunctionEntry, Status> {
        Ok(FunctionEntry {
            name: reader.text()?.to_owned(),
            hash: reader.u32()?,
            mode: FunctionMode::read(reader)?,
            doc: reader.text()?.to_owned(),
        })
    }
}

/// The answer to an installation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExtensionInstalled {
    /// What invocations name it by; the same for all its versions.
    pub extension: u32,
    /// The version that was installed.
    pub version: u32,
    /// The version that is current now.
    pub current: u32,
    /// Milliseconds that checking and compiling took, 0 when the same source had been built before.
    pub compile_ms: u32,
    /// What the compiler warned of when the source was built, now or before; empty when it was nothing.
    pub diagnostics: String,
}

impl Body for ExtensionInstalled {
    fn write(&self, writer: &mut BodyWriter) {
        writer.u32(self.extension);
        writer.u32(self.version);
        writer.u32(self.current);
        writer.u32(self.compile_ms);
        writer.text(&self.diagnostics);
    }

    fn read(reader: &mut BodyReader<'_>) -> Result<ExtensionInstalled, Status> {
        Ok(ExtensionInstalled {
            extension: reader.u32()?,
            version: reader.u32()?,
            current: reader.u32()?,
            compile_ms: reader.u32()?,
            diagnostics: reader.text()?.to_owned(),
        })
    }
}

/// One extension of the list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExtensionEntry {
    /// What invocations name it by.
    pub extension: u32,
    /// Its name.
    pub name: String,
    /// Which versions invocations get.
    pub standing: VersionState,
    /// How many functions the current version has; 0 when it could not be loaded.
    pub functions: u32,
    /// All versions that are kept, oldest first.
    pub versions: Vec<VersionEntry>,
}

impl Body for ExtensionEntry {
    fn write(&self, writer: &mut BodyWriter) {
        writer.u32(self.extension);
        writer.text(&self.name);
        self.standing.write(writer);
        writer.u32(self.functions);
        self.versions.write(writer);
    }

    fn read(reader: &mut BodyReader<'_>) -> Result<ExtensionEntry, Status> {
        Ok(ExtensionEntry {
            extension: reader.u32()?,
            name: reader.text()?.to_owned(),
            standing: VersionState::read(reader)?,
            functions: reader.u32()?,
            versions: Vec::read(reader)?,
        })
    }
}

/// The way from names to the numbers of an invocation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExtensionResolved {
    /// What invocations name it by.
    pub extension: u32,
    /// The current version.
    pub version: u32,
    /// Its functions.
    pub functions: Vec<FunctionEntry>,
}

impl Body for ExtensionResolved {
    fn write(&self, writer: &mut BodyWriter) {
        writer.u32(self.extension);
        writer.u32(self.version);
        self.functions.write(writer);
    }

    fn read(reader: &mut BodyReader<'_>) -> Result<ExtensionResolved, Status> {
        Ok(ExtensionResolved {
            extension: reader.u32()?,
            version: reader.u32()?,
            functions: Vec::read(reader)?,
        })
    }
}
