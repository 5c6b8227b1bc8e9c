//! Records in etcd, which the servers of a cluster share: [`Records`] over the network.
//!
//! One thread, `etcd`, runs a small runtime with the client; control threads pass it their calls and wait, never longer
//! than the limits. While etcd does not answer, an occasional call detects that and all others are refused at once,
//! until a background check finds etcd present again. So no calls queue behind it.
//!
//! ```text
//!   control thread ── call ──▶ etcd thread: reading | committing | leasing      (one task per call)
//!                  ◀─ reply ──             reading: following a prefix          (one task per watch)
//!                                          checking, while etcd does not answer
//! ```
//! A commit carries a unique mark, by which its outcome can be determined when its reply is lost. See `committing`.
//! Keys stand below `/splinter/CLUSTER/`.

mod committing;
mod leasing;
mod members;
mod reading;

use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use self::leasing::EtcdLeases;
use self::members::Members;
use crate::config::EtcdAddress;
use crate::limits::{ETCD_ATTEMPT_MS, ETCD_CALL_MS, ETCD_LOOK_MS, ETCD_RESOLVE_MS};
use cluster::records::{
    Committed, Condition, HeldLease, LeaseId, Query, Reading, RecordChange, Records, RecordsError, Revision,
    Watch,
};

/// Records in a shared etcd.
pub struct Etcd {
    shared: Arc<EtcdShared>,
    runtime: Handle,
    thread: Option<JoinHandle<()>>,
    /// Ends the thread on drop.
    stop: Option<oneshot::Sender<()>>,
}

/// The state shared by all tasks.
struct EtcdShared {
    members: Members,
    /// The prefix of all keys.
    root: String,
    /// True after a call got no answer, until etcd answers again.
    missing: AtomicBool,
    leases: EtcdLeases,
    /// Marks of commits whose outcome is known; the next commit removes them.
    settled: Mutex<Vec<String>>,
    /// True once the reply to a commit was lost. From then on marks stay as long as their lease, because a request may
    /// still be in flight.
    lost: AtomicBool,
}

impl Etcd {
    /// Connects, and checks that etcd answers.
    ///
    /// # Errors
    /// `Unavailable` when none of its members answers in time.
    pub fn open(address: &EtcdAddress) -> Result<Self, RecordsError> {
        let (stop, stopped) = oneshot::channel::<()>();
        let (started, starting) = sync_channel(1);
        let wanted = address.clone();
        let thread = thread::Builder::new().name("etcd".to_owned()).spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build();
            let connected =
                runtime.map_err(|error| RecordsError::Unavailable(error.to_string())).and_then(|runtime| {
                    let members = runtime.block_on(Members::connect(&wanted))?;
                    Ok((runtime, members))
                });
            match connected {
                Ok((runtime, members)) => {
                    let handle = runtime.handle().clone();
                    let told = started.send(Ok((handle, members)));
                    // Ends when the stop message arrives or its sender is dropped.
                    if told.is_ok() {
                        let _ = runtime.block_on(stopped);
                    }
                    runtime.shutdown_background();
                }
                Err(error) => drop(started.send(Err(error))),
            }
        });
        let thread = thread.map_err(|error| RecordsError::Unavailable(error.to_string()))?;
        let ended = |_| RecordsError::Unavailable("the etcd thread has ended".to_owned());
        let (runtime, members) = starting.recv().map_err(ended)??;
        let root = format!("/splinter/{}/", address.cluster);
        let shared = EtcdShared {
            members,
            root,
            missing: AtomicBool::new(false),
            leases: EtcdLeases::default(),
            settled: Mutex::default(),
            lost: AtomicBool::new(false),
        };
        let etcd = Self { shared: Arc::new(shared), runtime, thread: Some(thread), stop: Some(stop) };
        let shared = Arc::clone(&etcd.shared);
        let looked = etcd.wait(ETCD_CALL_MS, RecordsError::Unavailable, async move {
            reading::read(&shared, &[], None).await
        });
        match looked {
            Ok(_) => Ok(etcd),
            Err(RecordsError::Unavailable(text)) => {
                Err(RecordsError::Unavailable(format!("{address}: {text}")))
            }
            Err(other) => Err(other),
        }
    }

    /// Runs a call, unless etcd is known to be absent.
    fn call<T, F>(&self, most_ms: u64, late: fn(String) -> RecordsError, work: F) -> Result<T, RecordsError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, RecordsError>> + Send + 'static,
    {
        if self.shared.missing.load(Ordering::Relaxed) {
            return Err(missing());
        }
        let result = self.wait(most_ms, late, work);
        if let Err(RecordsError::Unavailable(text) | RecordsError::Uncertain(text)) = &result {
            self.miss(text);
        }
        result
    }

    /// Runs `work` on the etcd thread and waits for it; returns `late` after the time limit.
    fn wait<T, F>(&self, most_ms: u64, late: fn(String) -> RecordsError, work: F) -> Result<T, RecordsError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, RecordsError>> + Send + 'static,
    {
        let (answer, answered) = sync_channel(1);
        self.runtime.spawn(async move {
            // The caller may have given up.
            let _ = answer.send(work.await);
        });
        // Every call ends one attempt after its limit at the latest; the rest is for a slow machine.
        answered.recv_timeout(Duration::from_millis(most_ms + 2 * ETCD_ATTEMPT_MS)).unwrap_or_else(|error| {
            Err(match error {
                RecvTimeoutError::Timeout => late("etcd does not answer".to_owned()),
                RecvTimeoutError::Disconnected => late("the call was cancelled".to_owned()),
            })
        })
    }

    /// Refuses all calls until etcd is seen again.
    fn miss(&self, why: &str) {
        if self.shared.missing.swap(true, Ordering::Relaxed) {
            return;
        }
        tracing::warn!(why, "etcd does not answer: metadata cannot be changed until it does");
        let shared = Arc::clone(&self.shared);
        self.runtime.spawn(async move {
            while reading::attempt(&shared, &[], None).await.is_err() {
                sleep(Duration::from_millis(ETCD_LOOK_MS)).await;
            }
            shared.missing.store(false, Ordering::Relaxed);
            tracing::info!("etcd answers again");
        });
    }
}

/// Returns the refusal of calls until etcd is seen again.
fn missing() -> RecordsError {
    RecordsError::Unavailable("etcd does not answer at present".to_owned())
}

impl EtcdShared {
    fn key(&self, key: &str) -> String {
        format!("{}{key}", self.root)
    }
}

impl Records for Etcd {
    fn is_shared(&self) -> bool {
        true
    }

    fn read(&self, queries: &[Query], at: Option<Revision>) -> Result<Reading, RecordsError> {
        let (shared, queries) = (Arc::clone(&self.shared), queries.to_vec());
        let most_ms = ETCD_CALL_MS + queries.len() as u64 * ETCD_ATTEMPT_MS;
        self.call(
            most_ms,
            RecordsError::Unavailable,
            async move { reading::read(&shared, &queries, at).await },
        )
    }

    fn read_within(
        &self,
        queries: &[Query],
        at: Option<Revision>,
        patience: Duration,
    ) -> Result<Reading, RecordsError> {
        if self.shared.missing.load(Ordering::Relaxed) {
            return Err(missing());
        }
        let (shared, queries) = (Arc::clone(&self.shared), queries.to_vec());
        // Others wait for longer, and find out whether etcd is missing or only slow.
        self.wait(ETCD_CALL_MS, RecordsError::Unavailable, async move {
            let read = timeout(patience, reading::read(&shared, &queries, at)).await;
            read.unwrap_or_else(|_| Err(RecordsError::Unavailable("etcd did not answer in time".to_owned())))
        })
    }

    fn commit(&self, conditions: &[Condition], changes: &[RecordChange]) -> Result<Committed, RecordsError> {
        let shared = Arc::clone(&self.shared);
        let (conditions, changes) = (conditions.to_vec(), changes.to_vec());
        self.call(2 * ETCD_CALL_MS + ETCD_RESOLVE_MS, RecordsError::Uncertain, async move {
            committing::commit(&shared, &conditions, &changes).await
        })
    }

    fn watch(&self, prefix: &str, after: Revision) -> Result<Watch, RecordsError> {
        let (source, watch) = Watch::pair();
        let (shared, prefix) = (Arc::clone(&self.shared), self.shared.key(prefix));
        self.runtime.spawn(async move { reading::follow(&shared, &prefix, after, &source).await });
        Ok(watch)
    }

    fn lease_grant(&self, ttl: Duration) -> Result<HeldLease, RecordsError> {
        let shared = Arc::clone(&self.shared);
        self.call(ETCD_CALL_MS, RecordsError::Unavailable, async move {
            shared.leases.grant(&shared.members, ttl).await
        })
    }

    fn lease_keep(&self, lease: LeaseId) -> Result<HeldLease, RecordsError> {
        let shared = Arc::clone(&self.shared);
        self.call(ETCD_CALL_MS, RecordsError::Unavailable, async move {
            shared.leases.keep(&shared.members, lease).await
        })
    }

    fn lease_revoke(&self, lease: LeaseId) -> Result<(), RecordsError> {
        let shared = Arc::clone(&self.shared);
        self.call(ETCD_CALL_MS, RecordsError::Unavailable, async move {
            shared.leases.revoke(&shared.members, lease).await
        })
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        if let Some(lease) = self.shared.leases.of_marks()
            && !self.shared.lost.load(Ordering::Relaxed)
        {
            // A lease that cannot be revoked expires.
            let _ = self.lease_revoke(lease);
        }
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Etcd {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Etcd").field("root", &self.shared.root).finish_non_exhaustive()
    }
}
