//! A refusal of a request, for programs and for people.

use std::fmt;

use cluster::metadata::{MetadataError, VersionStateError};
use cluster::records::RecordsError;
use wire::Status;
use wire::reply::Throttled;

use crate::tenant::limit::TenantLimit;

/// A refusal by the control plane: a status for programs and text for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The status, for programs.
    pub status: Status,
    /// The text, for people; for `Throttled` the name of the limit.
    pub text: String,
    /// Delay before the next attempt in microseconds, for `Throttled`.
    after_us: u32,
}

impl Refusal {
    /// Creates a refusal with its own text.
    #[must_use]
    pub fn new(status: Status, text: impl Into<String>) -> Self {
        Self { status, text: text.into(), after_us: 0 }
    }

    /// Creates a refusal because a limit of the tenant delays the request for this long.
    #[must_use]
    pub fn throttled(after_us: u64, limit: TenantLimit) -> Self {
        let after_us = u32::try_from(after_us).unwrap_or(u32::MAX);
        Self { status: Status::Throttled, text: limit.name().to_owned(), after_us }
    }

    /// Encodes the body of the answer.
    #[must_use]
    pub fn body(&self) -> Vec<u8> {
        if self.status != Status::Throttled {
            return self.text.clone().into_bytes();
        }
        let throttled = Throttled { after_us: self.after_us, limit: self.text.as_bytes() };
        let mut body = vec![0; throttled.body_bytes()];
        throttled.encode(&mut body);
        body
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

impl From<Status> for Refusal {
    fn from(status: Status) -> Self {
        Self::new(status, status.text())
    }
}

impl From<MetadataError> for Refusal {
    fn from(error: MetadataError) -> Self {
        let status = match &error {
            MetadataError::AlreadyExists => Status::AlreadyExists,
            MetadataError::NotFound => Status::NotFound,
            MetadataError::LimitExceeded => Status::LimitExceeded,
            MetadataError::VersionState(VersionStateError::InUse(_)) => Status::NotPermitted,
            MetadataError::VersionState(VersionStateError::NoSuchVersion(_)) => Status::UnknownExtension,
            MetadataError::VersionState(_) => Status::NotFound,
            MetadataError::DurabilityFixed => Status::Unavailable,
            MetadataError::Conflict => Status::Conflict,
            MetadataError::Tablets(_) => Status::WrongTablets,
            MetadataError::Records(RecordsError::StorageFull) => Status::StorageFull,
            MetadataError::Records(RecordsError::TooLarge(_)) => Status::LimitExceeded,
            MetadataError::Records(RecordsError::Unavailable(_) | RecordsError::Uncertain(_)) => {
                tracing::warn!(%error, "metadata unavailable");
                Status::Unavailable
            }
            MetadataError::Records(_) => {
                tracing::error!(%error, "metadata failed");
                Status::Internal
            }
        };
        Self::new(status, error.to_string())
    }
}
