//! The source of an extension in transit: files with their paths.
//!
//! Paths are checked by the reader, so that none leaves its target folder and none occurs twice. The bytes are
//! borrowed from the record.

use crate::body::{BodyReader, BodyWriter};
use crate::limits::{INSTALL_BODY_BYTES_MAX, PACKAGE_FILES_MAX};
use crate::name::path_is_valid;
use crate::status::Status;
use crate::{Body, Placement};

/// One file of an extension's source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PackageFile<'a> {
    /// Path below the package, parts separated by `/`.
    pub path: &'a str,
    /// The file's bytes.
    pub bytes: &'a [u8],
}

pub(super) fn write_installation(
    writer: &mut BodyWriter,
    name: &str,
    files: &[PackageFile<'_>],
    placement: Placement,
) -> Result<(), Status> {
    let source_bytes: usize = files.iter().map(|file| file.path.len() + file.bytes.len() + 6).sum();
    let body_bytes = name.len() + 6 + source_bytes;
    if files.len() > PACKAGE_FILES_MAX || body_bytes > INSTALL_BODY_BYTES_MAX {
        return Err(Status::LimitExceeded);
    }
    writer.text(name);
    writer.u16(files.len() as u16);
    for file in files {
        writer.text(file.path);
        writer.blob(file.bytes);
    }
    placement.write(writer);
    Ok(())
}

pub(super) fn read_files<'a>(reader: &mut BodyReader<'a>) -> Result<Vec<PackageFile<'a>>, Status> {
    let count = reader.u16()? as usize;
    if count > PACKAGE_FILES_MAX {
        return Err(Status::LimitExceeded);
    }
    let mut files: Vec<PackageFile<'a>> = Vec::with_capacity(count);
    for _ in 0..count {
        let path = reader.text()?;
        if !path_is_valid(path) || files.iter().any(|file| file.path == path) {
            return Err(Status::NameInvalid);
        }
        files.push(PackageFile { path, bytes: reader.blob()? });
    }
    Ok(files)
}
