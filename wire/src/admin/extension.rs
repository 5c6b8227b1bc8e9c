//! Replies about the extensions of a tenant, except their description.
//!
//! An invocation names an extension by its id, a version of it (or 0, the current one) and a function by
//! [`crate::function_hash`] of its name; [`ExtensionResolved`] maps names to these numbers.

use crate::body::{Body, BodyReader, BodyWriter};
use crate::status::Status;
use crate::{VersionEntry, VersionState};

/// The access mode of a function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FunctionMode {
    /// The function cannot write, and is not recorded for exactly-once execution.
    Read,
    /// Its writes are applied together when it succeeds.
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
    /// The access mode.
    pub mode: FunctionMode,
    /// The author's doc comment; may be empty.
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

/// The reply to an installation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExtensionInstalled {
    /// The id that invocations use; the same for all its versions.
    pub extension: u32,
    /// The installed version.
    pub version: u32,
    /// The version that is current now.
    pub current: u32,
    /// Milliseconds of checking and compiling, 0 if the same source had been built before.
    pub compile_ms: u32,
    /// The compiler's warnings of the source's build, now or earlier; may be empty.
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
    /// The id that invocations use.
    pub extension: u32,
    /// Its name.
    pub name: String,
    /// The versions that invocations get.
    pub state: VersionState,
    /// Number of functions of the current version; 0 if it could not be loaded.
    pub functions: u32,
    /// All stored versions, oldest first.
    pub versions: Vec<VersionEntry>,
}

impl Body for ExtensionEntry {
    fn write(&self, writer: &mut BodyWriter) {
        writer.u32(self.extension);
        writer.text(&self.name);
        self.state.write(writer);
        writer.u32(self.functions);
        self.versions.write(writer);
    }

    fn read(reader: &mut BodyReader<'_>) -> Result<ExtensionEntry, Status> {
        Ok(ExtensionEntry {
            extension: reader.u32()?,
            name: reader.text()?.to_owned(),
            state: VersionState::read(reader)?,
            functions: reader.u32()?,
            versions: Vec::read(reader)?,
        })
    }
}

/// The mapping from names to the numbers of an invocation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExtensionResolved {
    /// The id that invocations use.
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
