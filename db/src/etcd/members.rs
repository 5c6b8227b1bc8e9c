//! The members of an etcd: one is asked as long as it answers, then the next one.
//!
//! So a member that is gone, cut off from the others, or stopped with open connections costs one attempt, not a part of
//! all later calls. Another member answers as of the same commits, because all reads are linearizable.

use std::error::{self, Error as _};
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use etcd_client::{Client, ConnectOptions, Error, KvClient, LeaseClient, WatchClient};
use tokio::time::{sleep, timeout};

use crate::config::EtcdAddress;
use crate::limits::{
    ETCD_ANSWER_BYTES_MAX, ETCD_ATTEMPT_MS, ETCD_CALL_MS, ETCD_CONNECT_MS, ETCD_LOOK_MS, ETCD_PING_MS,
    ETCD_PING_TIMEOUT_MS,
};
use cluster::records::RecordsError;

/// The members of an etcd, and which one is asked.
pub(super) struct Members {
    clients: Vec<Client>,
    /// The member to ask; counts on over all of them.
    asked: AtomicUsize,
}

impl Members {
    /// Creates clients of all members. They connect on first use, and again when needed.
    pub(super) async fn connect(address: &EtcdAddress) -> Result<Self, RecordsError> {
        let mut clients = Vec::new();
        for member in &address.members {
            let options = ConnectOptions::new()
                .with_connect_timeout(Duration::from_millis(ETCD_CONNECT_MS))
                .with_keep_alive(
                    Duration::from_millis(ETCD_PING_MS),
                    Duration::from_millis(ETCD_PING_TIMEOUT_MS),
                )
                .with_keep_alive_while_idle(true)
                .with_require_leader(true);
            let client = Client::connect([member], Some(options)).await;
            clients.push(
                client.map_err(|error| RecordsError::Unavailable(format!("{address}: {member}: {error}")))?,
            );
        }
        Ok(Self { clients, asked: AtomicUsize::new(0) })
    }

    fn client(&self) -> &Client {
        &self.clients[self.asked.load(Ordering::Relaxed) % self.clients.len()]
    }

    pub(super) fn kv(&self) -> KvClient {
        self.client().kv_client().max_decoding_message_size(ETCD_ANSWER_BYTES_MAX)
    }

    pub(super) fn leases(&self) -> LeaseClient {
        self.client().lease_client()
    }

    pub(super) fn watches(&self) -> WatchClient {
        self.client().watch_client().max_decoding_message_size(ETCD_ANSWER_BYTES_MAX)
    }

    /// Waits for the reply of the current member for the time of one attempt, then asks the next one.
    pub(super) async fn answer<T>(
        &self,
        answer: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Failure> {
        let asked = self.asked.load(Ordering::Relaxed);
        let failure = match timeout(Duration::from_millis(ETCD_ATTEMPT_MS), answer).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) => Failure::of(&error),
            Err(_) => Failure::Lost("no answer in time".to_owned()),
        };
        if let Failure::Lost(_) = failure {
            // Somebody else may have turned already.
            let next = asked.wrapping_add(1);
            let _ = self.asked.compare_exchange(asked, next, Ordering::Relaxed, Ordering::Relaxed);
        }
        Err(failure)
    }
}

/// Repeats attempts within the time limit, until one is answered.
pub(super) async fn patiently<T, F>(attempt: impl Fn() -> F) -> Result<T, RecordsError>
where
    F: Future<Output = Result<T, Failure>>,
{
    let deadline = Instant::now() + Duration::from_millis(ETCD_CALL_MS);
    loop {
        match attempt().await {
            Ok(answer) => return Ok(answer),
            Err(Failure::Refused(error)) => return Err(error),
            Err(Failure::Lost(why)) if Instant::now() >= deadline => {
                return Err(RecordsError::Unavailable(why));
            }
            Err(Failure::Lost(_)) => sleep(Duration::from_millis(ETCD_LOOK_MS)).await,
        }
    }
}

/// Numbers of the gRPC statuses with which etcd refuses permanently.
const INVALID_ARGUMENT: i32 = 3;
const NOT_FOUND: i32 = 5;
const PERMISSION_DENIED: i32 = 7;
const RESOURCE_EXHAUSTED: i32 = 8;
const FAILED_PRECONDITION: i32 = 9;
const OUT_OF_RANGE: i32 = 11;
const UNAUTHENTICATED: i32 = 16;

/// The reason why there is no reply: a refusal by etcd, or an unknown outcome.
#[derive(Clone, Debug)]
pub(super) enum Failure {
    /// Etcd refused: nothing was changed.
    Refused(RecordsError),
    /// The outcome is unknown, and a retry may succeed.
    Lost(String),
}

impl Failure {
    fn of(error: &Error) -> Self {
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
