//! Refusals of requests that name something that does not exist.

use cluster::metadata::MetadataError;
use control::Subject;
use wire::Status;

use crate::control_plane::Refusal;

pub(super) fn unknown_table(name: &str) -> Refusal {
    Refusal::new(Status::UnknownTable, format!("there is no table `{name}`"))
}

pub(super) fn unknown_extension(name: &str) -> Refusal {
    Refusal::new(Status::UnknownExtension, format!("there is no extension `{name}`"))
}

pub(super) fn unknown(subject: Subject, name: &str) -> Refusal {
    match subject {
        Subject::Table => unknown_table(name),
        Subject::Extension => unknown_extension(name),
    }
}

/// Makes refusals of errors: `missing` if the metadata does not have what the request names.
pub(super) fn if_missing(missing: impl FnOnce() -> Refusal) -> impl FnOnce(MetadataError) -> Refusal {
    move |error| match error {
        MetadataError::NotFound => missing(),
        error => error.into(),
    }
}
