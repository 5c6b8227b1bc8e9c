//! The reasons why an installation failed, with the status of each on the wire.

use std::fmt;

use builder::BuildError;
use wire::Status;

use crate::extension::native::LoadError;

/// The reason why an installation failed; nothing has changed. `E` is the refusal of its `InstallHooks`.
#[derive(Debug)]
pub enum InstallError<E> {
    /// The build failed.
    Build(BuildError),
    /// The artefact was built and cannot be loaded.
    Load(LoadError),
    /// Too many installations wait already.
    Busy,
    /// The hooks refused the start or could not record the installation.
    Customer(E),
}

impl<E> InstallError<E> {
    /// Returns the status on the wire; `None` if the hooks refused, because their owner knows the status.
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
            Self::Busy => out.write_str("too many installations are waiting; try again later"),
            Self::Customer(error) => error.fmt(out),
        }
    }
}

impl<E: fmt::Debug + fmt::Display> std::error::Error for InstallError<E> {}
