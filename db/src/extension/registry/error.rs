//! Why an installation failed, and the status that says so on the wire.

use std::fmt;

use builder::BuildError;
use wire::Status;

use crate::extension::native::LoadError;

/// Why an installation failed. `E` is the refusal of its customer. Nothing has changed then.
#[derive(Debug)]
pub enum InstallError<E> {
    /// It was not built.
    Build(BuildError),
    /// It was built and cannot be loaded.
    Load(LoadError),
    /// Too many installations wait already.
    Busy,
    /// The customer did not let it begin, or could not record it.
    Customer(E),
}

impl<E> InstallError<E> {
    /// The status that says so on the wire; `None` when the customer refused, who knows better.
    #[must_use]
    pub fn status(&self) -> Option<Status> {
        match self {
            Self::Build(BuildError::Refused(_) | BuildError::ImportRefused { .. }) => {
                Some(Status::SourceRefused)
            }
            Self::Build(
                BuildError::CompileFailed { .. }
                | BuildError::CompilerCrashed { .. }
                | BuildError::TimedOut { .. },
            ) => Some(Status::CompileFailed),
            Self::Build(BuildError::SandboxMissing { .. } | BuildError::ToolchainMissing { .. }) => {
                Some(Status::Unavailable)
            }
            Self::Build(BuildError::DiskFull) => Some(Status::StorageFull),
            Self::Build(BuildError::Io { .. }) | Self::Load(_) => Some(Status::Internal),
            Self::Busy => Some(Status::LimitExceeded),
            Self::Customer(_) => None,
        }
    }
}

impl<E: fmt::Display> fmt::Display for InstallError<E> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Build(error) => error.fmt(out),
            Self::Load(error) => error.fmt(out),
            Self::Busy => out.write_str("too many installations wait; try again later"),
            Self::Customer(error) => error.fmt(out),
        }
    }
}

impl<E: fmt::Debug + fmt::Display> std::error::Error for InstallError<E> {}
