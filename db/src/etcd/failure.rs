//! Classification of client errors: a refusal by etcd, or an unknown outcome.

use std::error::{self, Error as _};

use etcd_client::Error;

use cluster::records::RecordsError;

/// Numbers of the gRPC statuses with which etcd refuses permanently.
const INVALID_ARGUMENT: i32 = 3;
const NOT_FOUND: i32 = 5;
const PERMISSION_DENIED: i32 = 7;
const RESOURCE_EXHAUSTED: i32 = 8;
const FAILED_PRECONDITION: i32 = 9;
const OUT_OF_RANGE: i32 = 11;
const UNAUTHENTICATED: i32 = 16;

/// The reason why there is no reply.
#[derive(Clone, Debug)]
pub(super) enum Failure {
    /// Etcd refused: nothing was changed.
    Refused(RecordsError),
    /// The outcome is unknown, and a retry may succeed.
    Lost(String),
}

impl Failure {
    pub(super) fn of(error: &Error) -> Self {
        let text = error.to_string();
        match error {
            Error::GRpcStatus(status) => {
                Self::of_status(i32::from(status.code()), &with_causes(status.message(), status.source()))
            }
            Error::LeaseKeepAliveError(_) => Self::Refused(RecordsError::LeaseGone),
            Error::InvalidArgs(_) | Error::InvalidUri(_) | Error::Utf8Error(_) => {
                Self::Refused(RecordsError::Storage(text))
            }
            _ => Self::Lost(text),
        }
    }

    fn of_status(code: i32, message: &str) -> Self {
        let text = || message.to_owned();
        Self::Refused(match code {
            INVALID_ARGUMENT if message.contains("too large") || message.contains("too many") => {
                RecordsError::TooLarge(text())
            }
            RESOURCE_EXHAUSTED if message.contains("space exceeded") => RecordsError::StorageFull,
            NOT_FOUND if message.contains("lease") => RecordsError::LeaseGone,
            OUT_OF_RANGE if message.contains("compacted") => RecordsError::Overtaken,
            INVALID_ARGUMENT | NOT_FOUND | PERMISSION_DENIED | FAILED_PRECONDITION | OUT_OF_RANGE
            | UNAUTHENTICATED => RecordsError::Storage(text()),
            _ => return Self::Lost(text()),
        })
    }
}

/// Returns an error's message with its causes, because "tcp connect error" alone helps nobody.
fn with_causes(message: &str, mut cause: Option<&(dyn error::Error + 'static)>) -> String {
    let mut text = message.to_owned();
    while let Some(error) = cause {
        let said = error.to_string();
        if !text.contains(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{Failure, RecordsError};

    #[test]
    fn refusals_are_told_from_what_nobody_knows() {
        let refusal = |code, message| match Failure::of_status(code, message) {
            Failure::Refused(error) => Some(error),
            Failure::Lost(_) => None,
        };
        let compacted = "etcdserver: mvcc: required revision has been compacted";
        assert_eq!(refusal(11, compacted), Some(RecordsError::Overtaken));
        assert_eq!(refusal(8, "etcdserver: mvcc: database space exceeded"), Some(RecordsError::StorageFull));
        assert_eq!(refusal(8, "etcdserver: too many requests"), None);
        assert_eq!(refusal(5, "etcdserver: requested lease not found"), Some(RecordsError::LeaseGone));
        assert!(matches!(refusal(3, "etcdserver: request is too large"), Some(RecordsError::TooLarge(_))));
        assert_eq!(refusal(14, "etcdserver: request timed out"), None);
        assert_eq!(refusal(2, "transport error"), None);
    }
}
