//! Sessions that clients resume: which ids this server gave out, and which of them may come back after a restart.
//!
//! ```text
//!   Resume ── proof ──► a session of this run is open ──────────────► that session
//!                       of an earlier run, for the first time ──────► a session under the same id, with the replies
//!                       else: it ended while this server ran ───────► refused, for its records are gone
//! ```
//! Client ids come from ranges that are reserved on disk before the first of them is given out, so an id below those of
//! this run belongs to an earlier one, and no two clients ever have the same. A client of an earlier run resumes once;
//! from then on its session is one of this run.
//!
//! **Why it is right to execute again** what has no reply after a restart: such a mutation, if it ran at all, either wrote
//! to durable tables, and these did not keep it, since they keep objects together with the reply; or it wrote only to
//! tables in memory, which the restart emptied; or it wrote nothing. In a cluster the effects may have moved to another
//! server: those on durable tables do so after the reply is on the disk here, and a client does not repeat elsewhere what
//! the server that it resumed at refuses as `NotOwned`. Ids are given out once in a cluster, and a proof names its server: one
//! at another server's former address does not resume that one's sessions.
//!
//! A session that ended before the restart (it was idle for a minute, or revoked) is not known as such. A client therefore
//! does not repeat in a resumed session what it has sent first more than some fifty seconds ago.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use cluster::metadata::TenantRow;
use cluster::peer::ClusterSecret;
use wire::limits::PROOF_BYTES;
use wire::{Status, TenantId};

use super::{Control, Refusal};
use crate::limits::{RECOVERED_REPLIES_MS, RESUME_MS};
use crate::session::Session;
use crate::sync::lock;

/// How far a client of an earlier run has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Resumed {
    /// Its session is being opened.
    UnderWay,
    /// It has, or had, a session in this run.
    Done,
}

/// The decision about a client that wants to resume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Claimed {
    /// It is of an earlier run: the caller opens its session, then calls [`Resumption::settle`].
    Open,
    /// Another stream opens its session.
    UnderWay,
    /// If it has a session, then one of this run.
    OfThisRun,
}

/// The clients that may resume their sessions.
#[derive(Debug)]
pub struct Resumption {
    secret: ClusterSecret,
    /// The number of this server in the cluster, or 0.
    server: u32,
    /// Ids below were given out by earlier runs of this server, or by another one.
    first_of_run: u64,
    /// No client of an earlier run is taken in from then on.
    until_us: u64,
    /// Clients of earlier runs that have resumed.
    resumed: Mutex<HashMap<u64, Resumed>>,
}

impl Resumption {
    /// Creates the state at a start: clients below `first_of_run` may resume from now on, for [`RESUME_MS`].
    #[must_use]
    pub fn new(secret: ClusterSecret, server: u32, first_of_run: u64, now_us: u64) -> Self {
        let until_us = now_us + RESUME_MS * 1_000;
        Self { secret, server, first_of_run, until_us, resumed: Mutex::default() }
    }

    /// Returns the proof that this server gave the id to a client of the tenant.
    #[must_use]
    pub fn proof(&self, tenant: TenantId, client_id: u64) -> [u8; PROOF_BYTES] {
        self.secret.session_proof(self.server, tenant, client_id)
    }

    /// Returns whether it is that proof.
    #[must_use]
    pub fn is_proof(&self, tenant: TenantId, client_id: u64, proof: &[u8; PROOF_BYTES]) -> bool {
        self.is_proof_of(self.server, tenant, client_id, proof)
    }

    /// Returns whether it is the proof of another server.
    pub(super) fn is_proof_of(
        &self,
        server: u32,
        tenant: TenantId,
        client_id: u64,
        proof: &[u8; PROOF_BYTES],
    ) -> bool {
        self.secret.is_session_proof(server, tenant, client_id, proof)
    }

    /// Returns the time until which replies of a client that did not resume after all are kept.
    pub(super) fn replies_until_us(&self) -> u64 {
        self.until_us + (RECOVERED_REPLIES_MS - RESUME_MS) * 1_000
    }

    /// Forgets who has resumed, once nobody else may.
    pub(super) fn tidy(&self, now_us: u64) {
        if now_us >= self.until_us {
            *lock(&self.resumed) = HashMap::new();
        }
    }

    fn claim(&self, client_id: u64, now_us: u64) -> Claimed {
        if client_id >= self.first_of_run || now_us >= self.until_us {
            return Claimed::OfThisRun;
        }
        let mut resumed = lock(&self.resumed);
        match resumed.get(&client_id) {
            Some(Resumed::UnderWay) => return Claimed::UnderWay,
            Some(Resumed::Done) => return Claimed::OfThisRun,
            None => {}
        }
        resumed.insert(client_id, Resumed::UnderWay);
        Claimed::Open
    }

    /// Records whether the session of a claimed client opened; if not, the client may try again.
    fn settle(&self, client_id: u64, is_open: bool) {
        let mut resumed = lock(&self.resumed);
        if is_open {
            resumed.insert(client_id, Resumed::Done);
        } else {
            resumed.remove(&client_id);
        }
    }
}

impl Control {
    /// Resumes the session of a client of a tenant; its secret and the client's proof were checked. See the file's head.
    ///
    /// # Errors
    /// `BadToken` if the session has ended, `Retry` while another stream resumes it; else as [`Control::open_session`].
    pub fn resume_session(
        &self,
        checked: TenantRow,
        peer: SocketAddr,
        (client_id, first_unacknowledged): (u64, u64),
    ) -> Result<Arc<Session>, Refusal> {
        match self.resumption.claim(client_id, self.clock.now_us()) {
            Claimed::Open => {
                let until_us = self.resumption.replies_until_us();
                let known = self.completions.look_ahead(client_id, first_unacknowledged, until_us);
                let known = known.map_err(|error| Refusal::new(Status::Unavailable, error.to_string()));
                let opened =
                    known.and_then(|()| self.begin_session(checked, peer, (client_id, first_unacknowledged)));
                self.resumption.settle(client_id, opened.is_ok());
                opened
            }
            Claimed::UnderWay => Err(Status::Retry.into()),
            Claimed::OfThisRun => {
                let sessions = lock(&self.sessions);
                let mut open = sessions.values().map(|open| &open.session);
                let own = |session: &&Arc<Session>| {
                    session.client_id == client_id && session.tenant == checked.id && !session.is_closed()
                };
                let ended = || Refusal::new(Status::BadToken, "the client's session has ended");
                open.find(own).cloned().ok_or_else(ended)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use cluster::peer::ClusterSecret;

    use super::{Claimed, Resumption};
    use crate::limits::RESUME_MS;

    #[test]
    fn clients_of_earlier_runs_resume_once_and_in_time() {
        let resumption = Resumption::new(ClusterSecret([7; 32]), 0, 100, 5);
        assert_eq!(resumption.claim(100, 6), Claimed::OfThisRun);
        assert_eq!(resumption.claim(99, 6), Claimed::Open);
        assert_eq!((resumption.claim(99, 6), resumption.claim(98, 6)), (Claimed::UnderWay, Claimed::Open));
        resumption.settle(99, false);
        assert_eq!(resumption.claim(99, 7), Claimed::Open);
        resumption.settle(99, true);
        assert_eq!(
            (resumption.claim(99, 7), resumption.claim(98, 7)),
            (Claimed::OfThisRun, Claimed::UnderWay)
        );
        let late_us = 5 + RESUME_MS * 1_000;
        resumption.tidy(late_us - 1);
        assert_eq!(resumption.claim(98, late_us - 1), Claimed::UnderWay);
        resumption.tidy(late_us);
        assert_eq!(
            (resumption.claim(98, late_us), resumption.claim(97, late_us)),
            (Claimed::OfThisRun, Claimed::OfThisRun)
        );
    }
}
