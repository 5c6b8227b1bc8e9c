//! Replies that logs of other servers have for their clients, at a server that has recovered such a log.
//!
//! Whoever recovers a log reads all of it up to the cut that is decided, so it knows all replies that the log has. A request that is
//! not among them has done nothing that lasts, so its client may send it to whoever owns its key by then. That holds until the log is
//! written again: from then on its server answers the clients.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Mutex;

use cluster::metadata::ReplicasRow;
use store::FoundCompletions;
use wire::limits::{PROOF_BYTES, STREAM_BODY_BYTES_MAX};
use wire::{LoggedReply, Status, TenantId};

use super::{Control, Refusal};
use crate::limits::RECOVERED_REPLIES_MS;
use crate::session::completions::reply_of;
use crate::sync::lock;

/// A recovered log.
struct RecoveredLog {
    log: u64,
    start: u64,
    completions: FoundCompletions,
    until_us: u64,
}

/// The recovered logs, by their servers.
#[derive(Default)]
pub struct RecoveredReplies(Mutex<BTreeMap<u32, RecoveredLog>>);

impl RecoveredReplies {
    /// Keeps the completion records of a log that was recovered as this record says.
    pub fn add(
        &self,
        ReplicasRow { server, log, start, .. }: &ReplicasRow,
        completions: FoundCompletions,
        now_us: u64,
    ) {
        let until_us = now_us + RECOVERED_REPLIES_MS * 1_000;
        let recovered = RecoveredLog { log: *log, start: *start, completions, until_us };
        lock(&self.0).insert(*server, recovered);
    }

    /// Forgets logs whose clients have had time to ask.
    pub(super) fn tidy(&self, now_us: u64) {
        lock(&self.0).retain(|_, recovered| now_us < recovered.until_us);
    }
}

impl fmt::Debug for RecoveredReplies {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(lock(&self.0).keys()).finish()
    }
}

impl Control {
    /// Returns the replies from a sequence on that a recovered log has for the client that gives this proof of its server. Those
    /// for which an answer has no room are without their bodies, as [`Status::ReplyForgotten`].
    ///
    /// # Errors
    /// `Unavailable` if there is no such log here, or it may be written again.
    pub fn recovered_replies_of(
        &self,
        tenant: TenantId,
        (client_id, first_unacknowledged): (u64, u64),
        proof: &[u8; PROOF_BYTES],
    ) -> Result<Vec<LoggedReply>, Refusal> {
        let unknown =
            || Refusal::new(Status::Unavailable, "this server has not recovered the client's server");
        let known: Vec<(u32, u64, u64)> =
            lock(&self.recovered_replies.0).iter().map(|(&server, it)| (server, it.log, it.start)).collect();
        let is_proof =
            |(server, _, _): &(u32, u64, u64)| self.resumption.is_proof_of(*server, tenant, client_id, proof);
        let (server, log, start) = known.into_iter().find(is_proof).ok_or_else(unknown)?;
        let replicas = self.metadata.replicas()?;
        let is_written = |row: &ReplicasRow| row.server == server && row.log == log && row.start != start;
        let logs = lock(&self.recovered_replies.0);
        let recovered = logs.get(&server).filter(|it| (it.log, it.start) == (log, start));
        let recovered = recovered.filter(|_| !replicas.iter().any(is_written)).ok_or_else(unknown)?;
        let mut room = STREAM_BODY_BYTES_MAX / 2;
        let found = recovered.completions.of(client_id).iter();
        let unanswered = found.filter(|found| found.request.sequence >= first_unacknowledged);
        let mut replies: Vec<LoggedReply> = unanswered.cloned().map(|found| reply_of(found).1).collect();
        // The cleaner may have copied some of them.
        replies.sort_by_key(|reply| reply.sequence);
        replies.dedup_by_key(|reply| reply.sequence);
        for reply in &mut replies {
            if reply.body.len() > room {
                (reply.status, reply.body) = (Status::ReplyForgotten, Box::default());
            }
            room = room.saturating_sub(reply.body.len());
        }
        Ok(replies)
    }
}
