//! Sessions: the right to send requests, and the records by which each request runs once.
//!
//! A [`Session`] is opened over a stream, identified by an unguessable token, and shared by all workers without a lock:
//! any core may serve any of its requests. Its [`Ring`] holds the records of RAMCloud's RIFL ("Implementing
//! Linearizability at Large Scale and Low Latency", SOSP'15, section 4), bounded to a window. A session ends when it is
//! revoked, when its tenant is removed, or after a minute without a stream or a frame.
//!
//! [`Origin`] is the return path of a request that is answered later: an invocation, or any request over a stream. A
//! request in a frame that runs to completion needs none. An invocation keeps its origin until it ends; then origin,
//! status and reply go to the worker, which stores the reply for retries and sends it.

pub mod completions;
pub mod ring;

pub use ring::{Claim, Ring};

use std::fmt;
use std::mem::offset_of;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use net::shm::is_link;
use store::{RequestId, prefetch_value};
use wire::limits::{ASKS_SYNCED, MAY_PUSH_BACK};
use wire::{Status, TenantId};

use crate::limits::PROGRESS_EVERY_US;
use crate::sync::oneshot::Sender;
use crate::tenant::account::Account;
use crate::tenant::ledger::Arrivals;

/// An open session of a tenant. The first cache line holds the fields that every request reads.
#[repr(C, align(64))]
pub struct Session {
    /// The tenant's limits.
    pub account: Arc<Account>,
    /// The unguessable token, which authorizes requests of the session.
    pub token: u64,
    /// The number of the client, unique for the server's lifetime; not a secret.
    pub client_id: u64,
    /// Messages in one round of a worker.
    pub arrivals: Arrivals,
    seen_ms: AtomicU64,
    streams: AtomicU32,
    /// The tenant of the session.
    pub tenant: TenantId,
    /// The records of mutations and invocations; its first fields lie on this line.
    pub ring: Ring,
    closed: AtomicBool,
    /// The address that opened the session over a stream, and so has proved to be reachable.
    opener: Option<IpAddr>,
    /// The migration progress that the client was told last.
    pub told: ProgressThrottle,
}

const _: () = assert!(offset_of!(Session, ring) + Ring::READ_BYTES <= 64);

impl Session {
    /// Creates a session without history.
    #[must_use]
    pub fn new(token: u64, client_id: u64, account: Arc<Account>, now_us: u64) -> Self {
        Self {
            token,
            client_id,
            tenant: account.tenant,
            account,
            ring: Ring::new(),
            arrivals: Arrivals::new(),
            seen_ms: AtomicU64::new(now_us / 1000),
            streams: AtomicU32::new(0),
            closed: AtomicBool::new(false),
            opener: None,
            told: ProgressThrottle::default(),
        }
    }

    /// Sets the address from which it was opened over a stream.
    #[must_use]
    pub fn opened_from(self, address: IpAddr) -> Self {
        Self { opener: Some(address.to_canonical()), ..self }
    }

    /// Returns whether the address opened the session or belongs to a shared-memory channel. Replies much longer than
    /// their request go nowhere else, because the address of a datagram can be forged.
    #[inline]
    #[must_use]
    pub fn is_reached_at(&self, address: IpAddr) -> bool {
        self.opener == Some(address) || self.opener == Some(address.to_canonical()) || is_link(address)
    }

    /// Returns the worker that the client should send to: its tenant's home core.
    #[inline]
    #[must_use]
    pub fn home_core(&self) -> u16 {
        self.account.home_core()
    }

    /// Prefetches the fields that every request reads.
    #[inline]
    pub fn prefetch(&self) {
        prefetch_value(&self.account);
    }

    /// Records that the client is alive.
    #[inline]
    pub fn seen(&self, now_us: u64) {
        let now_ms = now_us / 1000;
        if self.seen_ms.load(Ordering::Relaxed) != now_ms {
            self.seen_ms.store(now_ms, Ordering::Relaxed);
        }
    }

    /// Returns milliseconds since the last activity; 0 while a stream is attached.
    #[must_use]
    pub fn idle_ms(&self, now_us: u64) -> u64 {
        if self.streams.load(Ordering::Relaxed) > 0 {
            return 0;
        }
        (now_us / 1000).saturating_sub(self.seen_ms.load(Ordering::Relaxed))
    }

    /// Records an attached stream.
    pub fn stream_opened(&self) {
        self.streams.fetch_add(1, Ordering::Relaxed);
    }

    /// Records a closed stream.
    pub fn stream_closed(&self, now_us: u64) {
        self.seen(now_us);
        self.streams.fetch_sub(1, Ordering::Relaxed);
    }

    /// Marks the session as ended, for its streams to see. Returns true for the first call.
    pub fn close(&self) -> bool {
        !self.closed.swap(true, Ordering::AcqRel)
    }

    /// Returns whether the session has ended.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }
}

/// Keeps the token out of logs.
impl fmt::Debug for Session {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Session")
            .field("client_id", &self.client_id)
            .field("tenant", &self.tenant)
            .finish_non_exhaustive()
    }
}

/// The sender of a request and the destination of its reply.
#[derive(Clone, Debug)]
pub struct Origin {
    /// The session of the request.
    pub session: Arc<Session>,
    /// The request's number in its session.
    pub sequence: u64,
    /// Whether the exactly-once ring holds an executing record that must be completed.
    pub recorded: bool,
    /// The destination of the reply.
    pub route: Route,
}

impl Origin {
    /// Returns the identity of the request, if it may write.
    #[must_use]
    pub fn request(&self) -> Option<RequestId> {
        self.recorded.then(|| RequestId { client: self.session.client_id, sequence: self.sequence })
    }

    /// Returns whether the request asks that what it writes and shows be on the disk.
    #[must_use]
    pub fn asks_synced(&self) -> bool {
        self.route.asks_synced()
    }

    /// Returns whether the client can run the invoked function itself.
    #[must_use]
    pub fn may_push_back(&self) -> bool {
        self.route.may_push_back()
    }
}

/// The destination of a reply.
#[derive(Clone, Debug)]
pub enum Route {
    /// Into a frame.
    Frame {
        /// The index of the worker whose port received the request; the reply leaves from there.
        port: u16,
        /// The client's address.
        peer: SocketAddr,
        /// The request's flags, as [`wire::limits`] lists them.
        flags: u8,
    },
    /// To the control thread of a stream; with the request's flags.
    Stream(Sender<StreamAnswer>, u8),
}

impl Route {
    /// Returns whether the client can run the invoked function itself.
    #[must_use]
    pub fn may_push_back(&self) -> bool {
        self.flags() & MAY_PUSH_BACK != 0
    }

    /// Returns whether the request asks that what it writes and shows be on the disk.
    #[must_use]
    pub fn asks_synced(&self) -> bool {
        self.flags() & ASKS_SYNCED != 0
    }

    fn flags(&self) -> u8 {
        let (Self::Frame { flags, .. } | Self::Stream(_, flags)) = self;
        *flags
    }
}

/// The reply to a request over a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamAnswer {
    /// The status of the request.
    pub status: Status,
    /// The body of the reply.
    pub body: Vec<u8>,
}

/// The throttle of migration progress per session: suppresses repeated values and frequent messages.
///
/// Two workers that report at once may send the progress twice, which is harmless.
#[derive(Debug, Default)]
pub struct ProgressThrottle {
    not_before_us: AtomicU64,
    /// A sum of the progress sent last.
    sum: AtomicU64,
}

impl ProgressThrottle {
    /// Returns whether progress may be sent at `now_us`.
    #[must_use]
    pub fn is_due(&self, now_us: u64) -> bool {
        self.not_before_us.load(Ordering::Relaxed) <= now_us
    }

    /// Records that progress is sent; returns whether `sum` differs from the last one.
    pub fn tell(&self, now_us: u64, sum: u64) -> bool {
        self.not_before_us.store(now_us + PROGRESS_EVERY_US, Ordering::Relaxed);
        self.sum.swap(sum, Ordering::Relaxed) != sum
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use wire::TenantId;

    use super::{ProgressThrottle, Session};
    use crate::limits::PROGRESS_EVERY_US;
    use crate::tenant::account::Account;

    #[test]
    fn a_session_is_reached_where_it_was_opened_and_nowhere_else() {
        let session = || Session::new(7, 1, Arc::new(Account::new(TenantId(1))), 0);
        let at = |text: &str| text.parse().expect("an address");
        assert!(!session().is_reached_at(at("127.0.0.1")));
        for opener in ["10.0.0.1", "::ffff:10.0.0.1"] {
            let session = session().opened_from(at(opener));
            assert!(session.is_reached_at(at("10.0.0.1")) && session.is_reached_at(at("::ffff:10.0.0.1")));
            assert!(!session.is_reached_at(at("10.0.0.2")));
        }
    }

    #[test]
    fn a_session_with_a_stream_is_never_idle() {
        let session = Session::new(7, 1, Arc::new(Account::new(TenantId(1))), 0);
        assert_eq!(session.idle_ms(5_000_000), 5_000);
        session.stream_opened();
        assert_eq!(session.idle_ms(9_000_000), 0);
        session.stream_closed(9_000_000);
        assert_eq!(session.idle_ms(10_000_000), 1_000);
        session.seen(10_000_000);
        assert_eq!(session.idle_ms(10_000_000), 0);
    }

    #[test]
    fn a_session_closes_once() {
        let session = Session::new(7, 1, Arc::new(Account::new(TenantId(1))), 0);
        assert!(!session.is_closed());
        assert!(session.close());
        assert!(!session.close());
        assert!(session.is_closed());
    }

    #[test]
    fn only_news_are_told_and_not_too_often() {
        let told = ProgressThrottle::default();
        assert!(told.is_due(5) && told.tell(5, 77));
        assert!(!told.is_due(6) && told.is_due(5 + PROGRESS_EVERY_US));
        assert!(!told.tell(5 + PROGRESS_EVERY_US, 77) && told.tell(5 + 2 * PROGRESS_EVERY_US, 78));
    }
}
