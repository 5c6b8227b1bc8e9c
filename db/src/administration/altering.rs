//! Changes of a table's durability. Between written and synced a record changes. To or from memory objects move, too:
//!
//! ```text
//!   to the disk:  new number ── writes go to the log ── replies of before recorded ── all objects rewritten
//!                 ── a cut with all of it stable ── record: the table is in the log under this number ── promised, answered
//!   to memory:    record: the table is in memory, nothing is promised ── writes go to memory ── objects rewritten
//! ```
//! Until its record says that it is in the log, a table is in memory for everybody: a crash loses it, and what the log has
//! under the new number is nobody's. If the way there ends early, the table turns back to memory, as it was. The thread of
//! the request follows the way to its end, also if the client has gone.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use control::Durability;
use store::{AwaitedCuts, RequestId, RewritingProgress, Table, WriteError};
use wire::{Status, TenantId};

use super::missing::{if_missing, unknown_table};
use super::tables::{admit_durability, budget_of};
use crate::control_plane::{Control, Refusal};
use crate::durability::log_thread::{LogHandle, NotStable};
use crate::limits::{
    ALTER_LOOK_MS, ALTER_PATIENCE_MS, COMPLETION_REPLY_BYTES_MAX, REPLIES_PER_RECORDING, RESTORE_PATIENCE_MS,
};
use crate::sync::lock;
use crate::sync::oneshot::oneshot;
use crate::tablet::TableEntry;
use crate::view::change::{Change, ChangeSender, EarlierReplies};

/// A table on its way; one thread at a time follows it.
struct Altering<'c> {
    control: &'c Control,
    tenant: TenantId,
    entry: Arc<TableEntry>,
    part: Arc<Table>,
}

impl Drop for Altering<'_> {
    fn drop(&mut self) {
        lock(&self.control.parts_made.altering).remove(&self.entry.id);
    }
}

/// Changes the durability of a table; writes after the answer have it, and all that was written before.
pub(super) fn alter(
    control: &Control,
    tenant: TenantId,
    name: &str,
    durability: Durability,
) -> Result<Vec<u8>, Refusal> {
    let changing = lock(&control.changing);
    let entry = control.table(tenant, name).ok_or_else(|| unknown_table(name))?;
    admit_durability(control, budget_of(&entry.parts).is_some(), durability)?;
    let is_on_disk = durability.is_on_disk();
    let moves = |part: &Arc<Table>| {
        let moves = entry.durability.is_on_disk() != is_on_disk || part.is_durable() != is_on_disk;
        (control.lease_cache.run().is_none() && moves).then(|| Arc::clone(part))
    };
    let Some(part) = entry.parts.held().first().and_then(moves) else {
        let altered = control.metadata.table_alter(tenant, name, durability);
        altered.map_err(if_missing(|| unknown_table(name)))?;
        control.set_durability(entry.id, durability)?;
        drop(changing);
        return await_earlier(control, name, durability).map(|()| Vec::new());
    };
    if part.is_replaying() {
        let text = format!(
            "the objects of `{name}` are still read from the log: repeat this when `splinter server wait --replayed` has \
             ended"
        );
        return Err(Refusal::new(Status::Unavailable, text));
    }
    if !lock(&control.parts_made.altering).insert(entry.id) {
        let text = format!(
            "`{name}` is on its way between memory and the disk already: repeat this when `splinter table list` shows no \
             rewritten bytes of it"
        );
        return Err(Refusal::new(Status::Unavailable, text));
    }
    let altering = Altering { control, tenant, entry, part };
    drop(changing);
    match (&control.log, is_on_disk) {
        (Some(log), true) => altering.to_disk(log, durability)?,
        (log, _) => altering.to_memory(log.as_ref())?,
    }
    Ok(Vec::new())
}

/// Waits until the disk has all that was written before.
fn await_stable(control: &Control, log: &LogHandle) -> Result<(), NotStable> {
    let patience = Duration::from_millis(RESTORE_PATIENCE_MS);
    let cuts = AwaitedCuts { received: 0, stable: control.store.unstable_cut() };
    log.await_cuts(&control.store, cuts, patience)
}

/// Waits for what was answered before a table, which is on the disk, promised this.
fn await_earlier(control: &Control, name: &str, durability: Durability) -> Result<(), Refusal> {
    let Some(log) = control.log.as_ref().filter(|_| durability == Durability::Synced) else { return Ok(()) };
    await_stable(control, log).map_err(|error| {
        let (status, why) = match error {
            NotStable::Failed => (Status::StorageFailed, "the disk has failed"),
            NotStable::Late => (Status::StorageFull, "the disk has no room, or takes long"),
        };
        let text = format!(
            "{why}: `{name}` is synced from now on, but what was written before may not be on the disk yet; repeat this to wait"
        );
        Refusal::new(status, text)
    })
}

impl Altering<'_> {
    fn to_disk(&self, log: &LogHandle, durability: Durability) -> Result<(), Refusal> {
        let Altering { control, entry, .. } = self;
        self.check_room(log)?;
        let number = control.metadata.table_number()?;
        control.turn(entry.id, Some(number))?;
        if let Err(refusal) = self.come_to_disk(log) {
            // A table that was dropped meanwhile needs it no more; of another one the objects follow in the background.
            let _ = control.turn(entry.id, None);
            return Err(refusal);
        }
        {
            let _changing = lock(&control.changing);
            let moved =
                control.metadata.table_move(self.tenant, (&entry.name, entry.id), durability, Some(number));
            // After another failure nobody knows what the record says, and what the table does now is right for both.
            moved.map_err(if_missing(|| unknown_table(&entry.name)))?;
            control.set_durability(entry.id, durability)?;
        }
        // Writes since the wait above were answered at once.
        await_earlier(control, &entry.name, durability)
    }

    /// Waits until the disk has all objects, and the replies to the requests that wrote them.
    fn come_to_disk(&self, log: &LogHandle) -> Result<(), Refusal> {
        self.record_replies()?;
        self.follow(Some(log))?;
        await_stable(self.control, log).map_err(|error| match error {
            NotStable::Failed => self.refusal(WriteError::StorageFailed),
            NotStable::Late => self.refusal(WriteError::StorageFull),
        })
    }

    fn to_memory(&self, log: Option<&LogHandle>) -> Result<(), Refusal> {
        let Altering { control, entry, .. } = self;
        {
            let _changing = lock(&control.changing);
            let memory = Durability::Memory;
            let moved = control.metadata.table_move(self.tenant, (&entry.name, entry.id), memory, None);
            moved.map_err(if_missing(|| unknown_table(&entry.name)))?;
            control.set_durability(entry.id, memory)?;
        }
        control.turn(entry.id, None)?;
        // It is in memory already; what lacks room follows in the background.
        let _ = self.follow(log);
        Ok(())
    }

    /// Refuses a table for which the log has no room even when all is cleaned.
    fn check_room(&self, log: &LogHandle) -> Result<(), Refusal> {
        let tables = lock(&self.control.tables);
        let parts = tables.values().flat_map(|entry| entry.parts.held());
        let live: u64 = parts.filter(|part| part.is_durable()).map(|part| part.bytes()).sum();
        let (own, limit) = (self.part.bytes(), log.figures.limit_bytes());
        // Cleaning keeps an eighth free.
        if live + own <= limit - limit / 8 {
            return Ok(());
        }
        let text = format!(
            "the disk has no room for the {own} bytes of `{}`: durable tables have {live} bytes, and --disk admits {limit}; \
             the table stays in memory",
            self.entry.name
        );
        Err(Refusal::new(Status::StorageFull, text))
    }

    /// Waits until all objects are where writes go.
    fn follow(&self, log: Option<&LogHandle>) -> Result<(), Refusal> {
        let (mut last_hash, mut moved) = (0, Instant::now());
        let mut workers = self.control.workers.iter().cycle();
        while let Some(RewritingProgress { hash, refusal }) = self.part.rewriting() {
            if self.part.is_retired() {
                return Err(unknown_table(&self.entry.name));
            }
            if self.control.streams.are_over() {
                return Err(Refusal::new(Status::Unavailable, "the server stops"));
            }
            if hash != last_hash || refusal.is_none() {
                (last_hash, moved) = (hash, Instant::now());
            }
            let patience = if refusal == Some(WriteError::StorageFailed) { 0 } else { ALTER_PATIENCE_MS };
            if let Some(error) = refusal.filter(|_| moved.elapsed() >= Duration::from_millis(patience)) {
                return Err(self.refusal(error));
            }
            // A step waits for the disk when it is far ahead of it, and an idle worker sleeps then.
            if let Some(log) = log {
                log.waker.wake();
            }
            workers.next().into_iter().for_each(ChangeSender::wake);
            thread::sleep(Duration::from_millis(ALTER_LOOK_MS));
        }
        Ok(())
    }

    /// Records the replies that the tenant's clients, and those with a grant, may ask for again.
    fn record_replies(&self) -> Result<(), Refusal> {
        let granted: BTreeSet<TenantId> = {
            let grants = lock(&self.control.grants);
            grants.iter().filter(|grant| grant.row.owner == self.tenant).map(|grant| grant.row.to).collect()
        };
        let may_write = |tenant| tenant == self.tenant || granted.contains(&tenant);
        let sessions: Vec<_> = {
            let sessions = lock(&self.control.sessions);
            sessions
                .values()
                .map(|open| &open.session)
                .filter(|open| may_write(open.tenant))
                .cloned()
                .collect()
        };
        let mut replies = Vec::new();
        for session in sessions {
            session.ring.each_reply(|sequence, status, body| {
                let request = RequestId { client: session.client_id, sequence };
                let reply = match body.len() {
                    0..=COMPLETION_REPLY_BYTES_MAX => [&[status as u8], body].concat(),
                    _ => vec![Status::ReplyForgotten as u8],
                };
                replies.push((request, reply));
            });
            while replies.len() >= REPLIES_PER_RECORDING {
                self.record(replies.drain(..REPLIES_PER_RECORDING).collect())?;
            }
        }
        self.record(replies)
    }

    /// Has a worker record replies, again if it is to retry: twice the same does no harm.
    fn record(&self, replies: Vec<(RequestId, Vec<u8>)>) -> Result<(), Refusal> {
        let began = Instant::now();
        loop {
            let (answer, answered) = oneshot();
            let (part, replies) = (Arc::clone(&self.part), replies.clone());
            let change = Change::Record(Arc::new(EarlierReplies { part, replies, answer }));
            let patience = Duration::from_millis(ALTER_PATIENCE_MS);
            let is_sent = self.control.workers.first().is_some_and(|worker| worker.send(change));
            match is_sent.then(|| answered.receive_within(patience)) {
                Some(Ok(Ok(()))) => return Ok(()),
                Some(Ok(Err(WriteError::Retry { .. }))) if began.elapsed() < patience => {}
                Some(Ok(Err(error))) => return Err(self.refusal(error)),
                Some(Err(_)) | None => {
                    return Err(Refusal::new(Status::Unavailable, "a worker of the server does not answer"));
                }
            }
            thread::sleep(Duration::from_millis(ALTER_LOOK_MS));
        }
    }

    /// Returns the refusal of a table that cannot come to the disk for this reason.
    fn refusal(&self, error: WriteError) -> Refusal {
        let (status, why) = match error {
            WriteError::OutOfMemory => {
                (Status::OutOfMemory, "the server's memory has no room to rewrite its objects")
            }
            WriteError::StorageFailed => (Status::StorageFailed, "the disk has failed"),
            WriteError::StorageFull => (Status::StorageFull, "the disk has no room for its objects"),
            _ => (
                Status::Unavailable,
                "the disk or the cleaning of memory does not keep up; repeat this later",
            ),
        };
        Refusal::new(status, format!("{why}: `{}` stays in memory", self.entry.name))
    }
}
