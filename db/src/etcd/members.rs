//! The members of an etcd: one is asked as long as it answers, then the next one.
//!
//! So a member that is gone, cut off from the others, or stopped with open connections costs one attempt, not a part of
//! all later calls. Another member answers as of the same commits, because all reads are linearizable.

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use etcd_client::{Client, ConnectOptions, Error, KvClient, LeaseClient, WatchClient};
use tokio::time::{sleep, timeout};

use super::failure::Failure;
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
