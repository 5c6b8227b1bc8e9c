//! A worker's catalog: sessions by token, tables and extensions by number.
//!
//! Every worker has its own [`WorkerCatalog`] and changes it between two batches, so lookups take no lock and a
//! batch's borrows stay valid while it runs.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use store::NumberHash;
use wire::TenantId;

use super::change::Change;
use crate::extension::ActiveVersions;
use crate::limits::ENDED_SESSIONS_REMEMBERED;
use crate::ops::remote::RemoteReads;
use crate::session::Session;
use crate::tablet::{Newest, Tables};

/// Sessions, tables and extensions of one worker.
#[derive(Default)]
pub struct WorkerCatalog {
    /// Tables of all tenants.
    pub tables: Tables,
    sessions: HashMap<u64, Arc<Session>, NumberHash>,
    extensions: HashMap<u32, ActiveVersions, NumberHash>,
    newest_extensions: Newest,
    ended: Ended,
    view: u64,
    remote: Option<Arc<RemoteReads>>,
}

impl WorkerCatalog {
    /// Creates an empty catalog under this view.
    #[must_use]
    pub fn under(view: u64) -> Self {
        Self { view, ..Self::default() }
    }

    /// Sets the queue of remote reads, if the server is in a cluster.
    #[must_use]
    pub fn reading(self, remote: Option<Arc<RemoteReads>>) -> Self {
        Self { remote, ..self }
    }

    /// Returns the queue of reads at other servers.
    #[inline]
    #[must_use]
    pub fn remote(&self) -> Option<&RemoteReads> {
        self.remote.as_deref()
    }

    /// Returns the worker's view.
    #[inline]
    #[must_use]
    pub fn view(&self) -> u64 {
        self.view
    }

    /// Returns the session of a token.
    #[inline]
    #[must_use]
    pub fn session(&self, token: u64) -> Option<&Arc<Session>> {
        self.sessions.get(&token)
    }

    /// Returns true if the token's session has ended.
    #[must_use]
    pub fn has_ended(&self, token: u64) -> bool {
        self.ended.has(token)
    }

    /// Returns the versions of an extension of any tenant.
    #[inline]
    #[must_use]
    pub fn extension(&self, id: u32) -> Option<&ActiveVersions> {
        self.extensions.get(&id)
    }

    /// Returns true if this server of a cluster may not have heard of the tenant's extension `id` yet, or not have
    /// built it.
    #[must_use]
    pub fn may_come(&self, tenant: TenantId, id: u32) -> bool {
        self.remote.is_some() && self.newest_extensions.may_come(tenant, id)
    }

    /// Applies a change by the control plane. Changes that concern pending requests, requests or the stop do not
    /// affect the catalog.
    pub fn apply(&mut self, change: Change) {
        match change {
            Change::SessionOpened(session) => {
                self.sessions.insert(session.token, session);
            }
            Change::SessionClosed(token) => {
                self.sessions.remove(&token);
                self.ended.note(token);
            }
            Change::TableCreated(entry) => self.tables.insert(entry),
            Change::Cut(cut) => {
                // A table that was dropped meanwhile stays dropped.
                for entry in &cut.tables {
                    if self.tables.get(entry.tenant, entry.id).is_some() {
                        self.tables.insert(Arc::clone(entry));
                    }
                }
                self.view = cut.view;
                cut.pass();
            }
            Change::TableDropped(id) => {
                self.tables.remove(id);
            }
            Change::ExtensionSettled(active) => {
                self.newest_extensions.note(active.tenant, active.id);
                // Each worker has its own copy, so that a lookup follows one pointer less.
                self.extensions.insert(active.id, ActiveVersions::clone(&active));
            }
            Change::ExtensionRemoved(id) => {
                self.extensions.remove(&id);
            }
            Change::TenantDropped(tenant) => {
                for (token, _) in self.sessions.extract_if(|_, session| session.tenant == tenant) {
                    self.ended.note(token);
                }
                self.extensions.retain(|_, active| active.tenant != tenant);
                self.newest_extensions.forget(tenant);
                self.tables.remove_tenant(tenant);
            }
            Change::Wake(_)
            | Change::Answers(_)
            | Change::Reads(_)
            | Change::Restore(_)
            | Change::Record(_)
            | Change::Request(_)
            | Change::Stop => {}
        }
    }
}

/// The tokens of the latest ended sessions, which distinguish late requests from guesses.
///
/// Copies of requests that were under way when their session was revoked, or a stream that wants to attach to it, are
/// distinguished from invented tokens. Nothing is served for them. Each worker has its own set, and control threads
/// share one; callers first find that there is no such session.
#[derive(Debug, Default)]
pub struct Ended {
    tokens: HashSet<u64, NumberHash>,
    /// The tokens in the order in which their sessions ended.
    order: VecDeque<u64>,
}

impl Ended {
    /// Records that the session of this token has ended.
    pub fn note(&mut self, token: u64) {
        if !self.tokens.insert(token) {
            return;
        }
        self.order.push_back(token);
        if self.order.len() > ENDED_SESSIONS_REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.tokens.remove(&oldest);
        }
    }

    /// Returns true if the token's session has ended.
    #[must_use]
    pub fn has(&self, token: u64) -> bool {
        self.tokens.contains(&token)
    }
}

#[cfg(test)]
mod tests {
    use super::Ended;
    use crate::limits::ENDED_SESSIONS_REMEMBERED;

    #[test]
    fn the_latest_ends_are_remembered_and_no_more() {
        let mut ended = Ended::default();
        let most = ENDED_SESSIONS_REMEMBERED as u64;
        for token in (0..most + 10).chain([most + 9]) {
            ended.note(token);
        }
        assert!(!ended.has(9) && ended.has(10) && ended.has(most + 9) && !ended.has(most + 10));
        assert_eq!(
            (ended.tokens.len(), ended.order.len()),
            (ENDED_SESSIONS_REMEMBERED, ENDED_SESSIONS_REMEMBERED)
        );
    }
}
