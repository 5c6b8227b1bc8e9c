//! Completion records of the log: which are still needed, and the replies that a start found for clients to come back.
//!
//! ```text
//!   write ── completion record beside the object ──► log ── start ──► recovered ── the client resumes ──► its ring
//!                                                     │
//!                                    the cleaner asks ┴ is_needed: not acknowledged, and the client may come back
//! ```
//! While the log is replayed, the replies of a client that resumes are looked for ahead. A client that has gone without a word
//! keeps its replies until its lease ends. Leases begin anew with a start, so they
//! stand still while the server is down.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};

use store::{CompletionReply, FoundCompletion, NumberHash, RequestId};
use wire::{LoggedReply, Status};

use super::Session;
use crate::durability::log_reader::LogError;
use crate::sync::lock;

/// What is known of a client.
#[derive(Debug)]
enum Client {
    /// It has a session.
    Here(Weak<Session>),
    /// It had one before the start, and may come back until this time, in microseconds.
    Gone { replies: Vec<LoggedReply>, until_us: u64 },
}

/// Finds the replies that the log has for a client from a sequence on, before it is replayed.
pub type LookAhead = dyn Fn(u64, u64) -> Result<Vec<LoggedReply>, LogError> + Send + Sync;

/// The clients whose completion records may be needed, by their numbers.
#[derive(Default)]
pub struct Completions {
    clients: RwLock<HashMap<u64, Client, NumberHash>>,
    look_ahead: Mutex<Option<Arc<LookAhead>>>,
}

impl Completions {
    /// Takes in a reply that a start found; the client may come back until this time.
    pub fn recovered(&self, client_id: u64, reply: LoggedReply, until_us: u64) {
        let mut clients = self.clients.write().unwrap_or_else(PoisonError::into_inner);
        let gone = || Client::Gone { replies: Vec::new(), until_us };
        if let Client::Gone { replies, .. } = clients.entry(client_id).or_insert_with(gone)
            && !replies.iter().any(|known| known.sequence == reply.sequence)
        {
            replies.push(reply);
        }
    }

    /// Sets how replies are found while the log is replayed; `None` once all are known.
    pub fn set_look_ahead(&self, look_ahead: Option<Arc<LookAhead>>) {
        *lock(&self.look_ahead) = look_ahead;
    }

    /// Takes in the replies of a client that resumes, if the log is still replayed.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub fn look_ahead(
        &self,
        client_id: u64,
        first_unacknowledged: u64,
        until_us: u64,
    ) -> Result<(), LogError> {
        // Kept before it is used: whatever it does not find any more was taken in by then.
        let look_ahead = lock(&self.look_ahead).clone();
        if let Some(look_ahead) = look_ahead {
            let replies = look_ahead(client_id, first_unacknowledged)?;
            replies.into_iter().for_each(|reply| self.recovered(client_id, reply, until_us));
        }
        Ok(())
    }

    /// Notes that a client has a session. Returns the replies that wait for it, in no order.
    pub fn opened(&self, session: &Arc<Session>) -> Vec<LoggedReply> {
        let mut clients = self.clients.write().unwrap_or_else(PoisonError::into_inner);
        match clients.insert(session.client_id, Client::Here(Arc::downgrade(session))) {
            Some(Client::Gone { replies, .. }) => replies,
            Some(Client::Here(_)) | None => Vec::new(),
        }
    }

    /// Notes that a session of [`Completions::opened`] did not open after all; its replies wait again until this time.
    pub fn not_opened(&self, client_id: u64, replies: Vec<LoggedReply>, until_us: u64) {
        let mut clients = self.clients.write().unwrap_or_else(PoisonError::into_inner);
        clients.insert(client_id, Client::Gone { replies, until_us });
    }

    /// Returns whether a completion record must be kept. For the cleaner: never waits.
    #[must_use]
    pub fn is_needed(&self, client_id: u64, sequence: u64) -> bool {
        let Ok(clients) = self.clients.try_read() else { return true };
        match clients.get(&client_id) {
            Some(Client::Here(session)) => session
                .upgrade()
                .is_some_and(|session| !session.is_closed() && session.ring.acknowledged() <= sequence),
            Some(Client::Gone { .. }) => true,
            None => false,
        }
    }

    /// Forgets clients whose session has ended, and those that did not come back in time.
    pub fn tidy(&self, now_us: u64) {
        let mut clients = self.clients.write().unwrap_or_else(PoisonError::into_inner);
        clients.retain(|_, client| match client {
            Client::Here(session) => session.upgrade().is_some_and(|session| !session.is_closed()),
            Client::Gone { until_us, .. } => now_us < *until_us,
        });
    }
}

/// Returns the client of a completion record, and its reply as the ring stores it.
#[must_use]
pub fn reply_of(found: FoundCompletion) -> (u64, LoggedReply) {
    let RequestId { client, sequence } = found.request;
    let (status, body) = match found.reply {
        CompletionReply::Version(version) => (Status::Ok, version.to_le_bytes().into()),
        CompletionReply::Number(version, number) => {
            (Status::Ok, [version.to_le_bytes(), number].concat().into_boxed_slice())
        }
        CompletionReply::Bytes(bytes) => match bytes.split_first() {
            Some((status, body)) => (Status::from_u8(*status).unwrap_or(Status::Internal), body.into()),
            None => (Status::ReplyForgotten, Box::default()),
        },
    };
    (client, LoggedReply { sequence, status, body })
}

impl fmt::Debug for Completions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Completions").field("clients", &self.clients).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use wire::{LoggedReply, Status, TenantId};

    use super::Completions;
    use crate::session::Session;
    use crate::tenant::account::Account;

    #[test]
    fn replies_wait_for_their_client_and_records_until_they_are_acknowledged() {
        let completions = Completions::default();
        let reply = |sequence| LoggedReply { sequence, status: Status::Ok, body: Box::from([1]) };
        completions.recovered(7, reply(3), 100);
        completions.recovered(7, reply(2), 100);
        completions.recovered(8, reply(1), 50);
        completions.tidy(60);
        assert!(completions.is_needed(7, 3) && !completions.is_needed(8, 1));
        let session = Arc::new(Session::new(1, 7, Arc::new(Account::new(TenantId(1))), 0));
        assert_eq!(completions.opened(&session), [reply(3), reply(2)]);
        completions.not_opened(7, vec![reply(3), reply(2)], 100);
        assert_eq!(completions.opened(&session), [reply(3), reply(2)]);
        assert!(completions.is_needed(7, 2));
        session.ring.acknowledge(3);
        assert!(!completions.is_needed(7, 2) && completions.is_needed(7, 3));
        completions.tidy(1_000);
        assert!(completions.is_needed(7, 3));
        session.close();
        completions.tidy(1_000);
        assert!(!completions.is_needed(7, 3));
    }
}
