//! The errors of a disk.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// The reason why a call did not do its work.
#[derive(Debug)]
pub enum DiskError {
    /// The limit of frames is reached, or the file system has no space for another one.
    Full,
    /// An operation failed.
    Failed {
        /// What was attempted: "write", "sync".
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// The kernel's reason.
        error: io::Error,
    },
    /// An earlier write or sync failed, and nothing is written since.
    Stopped,
    /// Another process has the file open.
    InUse(PathBuf),
    /// The file is none of ours, of another format or of other sizes; the text says what to do.
    Unsuitable {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, and what to do.
        reason: String,
    },
}

impl DiskError {
    pub(crate) fn failed(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::Failed { operation, path: path.to_owned(), error }
    }
}

impl fmt::Display for DiskError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => write!(formatter, "the disk is full"),
            Self::Failed { operation, path, error } => {
                write!(formatter, "{operation} of {} failed: {error}", path.display())
            }
            Self::Stopped => write!(formatter, "nothing is written since an earlier write failed"),
            Self::InUse(path) => write!(formatter, "{} is open in another process", path.display()),
            Self::Unsuitable { path, reason } => write!(formatter, "{}: {reason}", path.display()),
        }
    }
}

impl std::error::Error for DiskError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Failed { error, .. } => Some(error),
            _ => None,
        }
    }
}
