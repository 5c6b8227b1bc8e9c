//! Sends a log to its backups, cut by cut, and knows when enough of them have it.
//!
//! ```text
//!   log thread:   digest, parts of a cut ──► send ──► own disk ──► is_settled? ──► stable
//!                                              │          ▲   ▲
//!   link to each backup:          messages ◄───┘          │   └──── events: joined, lost; records of the metadata
//!                                 answers ────────────────┘
//! ```
//! `cluster/src/replication.rs` decides who gets what; here are the bytes. The log's thread itself writes to the links and reads
//! from them, since a thread between would cost each write two more wake-ups. One cut is under way at a time, and with it at most
//! two digests, and one piece of a copy: so what a link keeps is bounded. What a backup lacks is copied in such
//! pieces, each when the one before is acknowledged: what is settled from the own disk, and behind it what is under way.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};

use cluster::replication::message::{FromBackup, HeldItem, ToBackup, begin_append};
use cluster::replication::{Backup, BackupId, Item, ReplicasRecord, Replication};
use disk::{DiskError, Fragment};
use net::Duplex;

use crate::limits::REPLICA_PIECE_BYTES;

/// A message to a backup. Several get the same one.
pub type ReplicaMessage = Arc<Vec<u8>>;

/// The stream to a backup has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkEnded;

/// A stream to a backup. Neither call waits for it.
pub trait ReplicaLink: Send {
    /// Sends a message, or keeps it until the backup takes it.
    ///
    /// # Errors
    /// [`LinkEnded`]
    fn send(&mut self, message: &[u8]) -> Result<(), LinkEnded>;

    /// Returns the next answer, if one has come.
    ///
    /// # Errors
    /// [`LinkEnded`]
    fn receive(&mut self) -> Result<Option<FromBackup>, LinkEnded>;

    /// Returns what a thread sleeps over until something comes, if it is a socket.
    fn socket(&self) -> Option<&Duplex>;
}

/// What happens to the backups of a log.
pub enum ReplicaEvent {
    /// One can be reached, and has these items of the log.
    Joined {
        /// The backup.
        backup: Backup,
        /// What it has.
        held: Vec<HeldItem>,
        /// The stream to it; an earlier one has ended.
        link: Box<dyn ReplicaLink>,
    },
    /// One does not come, or not with what it had.
    Lost(BackupId),
    /// The metadata has this record, after an attempt to replace it.
    Recorded(ReplicasRecord),
}

/// A part of a cut, for a segment.
#[derive(Clone, Copy, Debug)]
pub struct SentPart<'a> {
    /// The number of the segment.
    pub sequence: u32,
    /// See [`disk::Trailer::class`].
    pub class: u8,
    /// Where the bytes begin in the segment.
    pub at: u32,
    /// The bytes.
    pub bytes: &'a [u8],
}

/// The log that a sender is about, for copies of what it has.
pub trait SentLog {
    /// Returns whether all of an item that is written is in this replica.
    fn is_whole(&self, held: &HeldItem) -> bool;

    /// Returns a segment's class, and its bytes below the last settled cut; `None` if it is gone.
    fn segment(&self, sequence: u32) -> Option<(u8, u32)>;

    /// Reads bytes of a segment.
    ///
    /// # Errors
    /// If the disk does not read, or they are damaged.
    fn read(&mut self, sequence: u32, at: u32, bytes: u32) -> Result<Vec<u8>, DiskError>;
}

/// A copy that is being sent.
struct Copying {
    to: BackupId,
    sequence: u32,
    /// Bytes that were sent.
    at: u32,
    /// The ticket of the last piece: the next one waits for it.
    ticket: Option<u64>,
    is_whole: bool,
}

/// What is written, until it is sent.
#[derive(Default)]
struct Unsent {
    items: Vec<Item>,
    messages: Vec<Vec<ReplicaMessage>>,
}

impl Unsent {
    fn push(&mut self, item: Item, messages: Vec<ReplicaMessage>) {
        self.items.push(item);
        self.messages.push(messages);
    }
}

/// The replicas of a log at other servers.
pub struct ReplicaSender {
    machine: Replication,
    events: Receiver<ReplicaEvent>,
    /// Records that the metadata is to have.
    records: Sender<ReplicasRecord>,
    links: BTreeMap<BackupId, Box<dyn ReplicaLink>>,
    /// Backups whose link has ended, until that is taken in.
    ended: BTreeSet<BackupId>,
    unsent: Unsent,
    /// What was sent last, in case that a backup has no room for it.
    sent: BTreeMap<Item, Vec<ReplicaMessage>>,
    /// What backups have that is of the past, or may be, until it can be forgotten.
    stale: Vec<(BackupId, Item)>,
    copying: Option<Copying>,
    /// The latest digest: its number, and its messages.
    digest: (u32, Vec<ReplicaMessage>),
    /// The latest cut that wrote anything, and the latest of these that is settled: those who know nothing of later cuts, which
    /// wrote nothing, find as much.
    before: u64,
    settled: u64,
    clock_ms: u64,
}

impl ReplicaSender {
    /// Creates the sender of a log, `settled` being its latest cut.
    #[must_use]
    pub fn new(
        machine: Replication,
        events: Receiver<ReplicaEvent>,
        records: Sender<ReplicasRecord>,
        settled: u64,
    ) -> Self {
        let (links, ended, unsent, sent, stale, digest) = Default::default();
        let (before, copying, clock_ms) = (settled, None, 0);
        Self {
            machine,
            events,
            records,
            links,
            ended,
            unsent,
            sent,
            stale,
            copying,
            digest,
            before,
            settled,
            clock_ms,
        }
    }

    /// Takes in a digest, which goes out with the next [`ReplicaSender::send`].
    pub fn add_digest(&mut self, number: u32, bytes: &[u8], clock_ms: u64) {
        self.clock_ms = clock_ms;
        let fragment = Fragment {
            cut: number.into(),
            settled: self.settled,
            clock_ms,
            digest: number,
            end: bytes.len() as u32,
            ..Fragment::default()
        };
        self.digest = (number, messages(Item::Digest, 0, fragment, bytes));
        self.unsent.push(Item::Digest, self.digest.1.clone());
    }

    /// Takes in the parts of a cut, which go out with the next [`ReplicaSender::send`].
    pub fn add_cut(&mut self, (cut, clock_ms): (u64, u64), parts: &[SentPart<'_>]) {
        for part in parts {
            let end = part.at + part.bytes.len() as u32;
            let fragment = Fragment {
                cut,
                before: self.before,
                settled: self.settled,
                clock_ms,
                writes: parts.len() as u32,
                digest: self.digest.0,
                at: part.at,
                end,
            };
            let item = Item::Segment(part.sequence);
            self.unsent.push(item, messages(item, part.class, fragment, part.bytes));
        }
        if !parts.is_empty() {
            (self.before, self.clock_ms) = (cut, clock_ms);
        }
    }

    /// Sends what was taken in.
    pub fn send(&mut self) {
        let Unsent { items, messages } = std::mem::take(&mut self.unsent);
        if items.is_empty() {
            return;
        }
        for sending in self.machine.write(&items) {
            for index in sending.items {
                self.send_all(sending.to, &messages[index]);
            }
            self.flush(sending.to, sending.ticket);
        }
        // The earlier digest is whole at its backups, or the later one will do.
        self.sent.extend(items.into_iter().zip(messages));
    }

    fn send_to(&mut self, to: BackupId, message: &[u8]) {
        if let Some(link) = self.links.get_mut(&to)
            && link.send(message) == Err(LinkEnded)
        {
            self.ended.insert(to);
        }
    }

    fn send_all(&mut self, to: BackupId, messages: &[ReplicaMessage]) {
        messages.iter().for_each(|message| self.send_to(to, message));
    }

    /// Sends what is under way of an item.
    fn send_again(&mut self, to: BackupId, item: Item) {
        let messages = self.sent.get(&item).cloned().unwrap_or_default();
        self.send_all(to, &messages);
    }

    fn flush(&mut self, to: BackupId, ticket: u64) {
        self.send_to(to, &ToBackup::Flush { ticket }.encode());
    }

    fn forget(&mut self, to: BackupId, item: Item) {
        self.send_to(to, &ToBackup::Forget { item }.encode());
    }

    /// Takes in what has happened; returns whether all that was sent is at as many backups as the record says.
    pub fn is_settled(&mut self, log: &dyn SentLog) -> bool {
        self.receive();
        while let Ok(event) = self.events.try_recv() {
            match event {
                ReplicaEvent::Joined { backup, held, link } => self.join(backup, &held, link, log),
                ReplicaEvent::Lost(id) => self.lost(id),
                ReplicaEvent::Recorded(record) => self.machine.recorded(record),
            }
        }
        if let Some(record) = self.machine.to_commit() {
            // Without it nothing is settled any more: the server is stopping.
            let _ = self.records.send(record);
        }
        self.machine.is_settled()
    }

    /// Takes in what backups answer, and whose links have ended.
    fn receive(&mut self) {
        let ids: Vec<BackupId> = self.links.keys().copied().collect();
        for id in ids {
            while let Some(link) = self.links.get_mut(&id) {
                match link.receive() {
                    Ok(Some(answer)) => self.answered(id, answer),
                    Ok(None) => break,
                    Err(LinkEnded) => {
                        self.ended.insert(id);
                        break;
                    }
                }
            }
        }
        std::mem::take(&mut self.ended).into_iter().for_each(|id| self.lost(id));
    }

    /// Returns how many backups are connected, and how many have, at least, all that was acknowledged.
    #[must_use]
    pub fn backups(&self) -> (usize, usize) {
        (self.links.len(), self.machine.record().replicas)
    }

    /// Returns the sockets of the links.
    pub fn sockets(&self) -> impl Iterator<Item = &Duplex> {
        self.links.values().filter_map(|link| link.socket())
    }

    fn join(&mut self, backup: Backup, held: &[HeldItem], link: Box<dyn ReplicaLink>, log: &dyn SentLog) {
        let id = backup.id;
        if self.links.contains_key(&id) {
            self.lost(id);
        }
        // Of an item the one that was begun last: only that can be kept alone.
        let mut latest: BTreeMap<Item, &HeldItem> = BTreeMap::new();
        let mut stale: BTreeSet<Item> = BTreeSet::new();
        for held in held {
            if latest.insert(held.item, held).is_some() {
                stale.insert(held.item);
            }
        }
        let is_whole = |held: &HeldItem| held.item != Item::Digest && log.is_whole(held);
        let (whole, other): (Vec<_>, Vec<_>) = latest.into_iter().partition(|(_, held)| is_whole(held));
        if !self.machine.joined(backup, whole.into_iter().map(|(item, _)| item)) {
            return;
        }
        self.links.insert(id, link);
        stale.extend(other.into_iter().map(|(item, _)| item));
        self.stale.extend(stale.into_iter().map(|item| (id, item)));
        if !self.machine.record().backups.contains(&id) {
            self.forget_stale(|stale| *stale == id);
        }
    }

    fn lost(&mut self, id: BackupId) {
        self.machine.lost(id);
        self.links.remove(&id);
        self.stale.retain(|(at, _)| *at != id);
        self.copying.take_if(|copying| copying.to == id);
    }

    fn answered(&mut self, id: BackupId, answer: FromBackup) {
        match answer {
            FromBackup::Stable { ticket } => self.machine.acked(id, ticket),
            FromBackup::HasRoom => self.machine.has_room(id),
            FromBackup::Full { item } => {
                let is_copy =
                    |copying: &mut Copying| (copying.to, Item::Segment(copying.sequence)) == (id, item);
                self.copying.take_if(is_copy);
                // What it has of it is of no use any more.
                self.stale.push((id, item));
                if let Some((other, ticket)) = self.machine.refused(id, item) {
                    self.send_again(other, item);
                    self.flush(other, ticket);
                }
            }
            // Only at the beginning of a stream.
            FromBackup::Held { .. } => {}
        }
    }

    /// Notes that what was sent is settled, and stable on the own disk.
    pub fn note_settled(&mut self) {
        self.settled = self.before;
        self.sent.clear();
        self.forget_stale(|_| true);
    }

    /// Lets these backups forget what the log has no more, or has there in another replica.
    fn forget_stale(&mut self, of: impl Fn(&BackupId) -> bool) {
        let mut left = Vec::new();
        for (id, item) in std::mem::take(&mut self.stale) {
            if of(&id) && self.machine.has_whole_replica(id, item) {
                self.send_to(id, &ToBackup::ForgetEarlier { item }.encode());
            } else if of(&id) && !self.machine.has_replica(id, item) {
                self.forget(id, item);
            } else {
                left.push((id, item));
            }
        }
        self.stale = left;
    }

    /// Lets backups forget segments that the latest settled digest does not name.
    pub fn free(&mut self, sequences: &[u32]) {
        let items: Vec<Item> = sequences.iter().map(|sequence| Item::Segment(*sequence)).collect();
        for (id, items) in self.machine.free(&items) {
            items.into_iter().for_each(|item| self.forget(id, item));
        }
        self.copying.take_if(|copying| sequences.contains(&copying.sequence));
    }

    /// Sends a piece of what a backup lacks, if one does and it has acknowledged the piece before.
    ///
    /// # Errors
    /// [`DiskError`]: the item will not be copied.
    pub fn copy(&mut self, log: &mut dyn SentLog) -> Result<(), DiskError> {
        let is_under_way = |copying: &Copying| {
            copying.ticket.is_some_and(|ticket| !self.machine.has_acked(copying.to, ticket))
        };
        if self.copying.as_ref().is_some_and(is_under_way) {
            return Ok(());
        }
        let goes_on = self.copying.take().filter(|copying| !copying.is_whole);
        let Some(Copying { to, sequence, at, .. }) = goes_on.or_else(|| self.begin_copy()) else {
            return Ok(());
        };
        let Some((class, end)) = log.segment(sequence) else { return Ok(()) };
        let bytes = (end - at).min(REPLICA_PIECE_BYTES as u32);
        if bytes > 0 {
            let content = log.read(sequence, at, bytes).inspect_err(|_| self.machine.cannot_copy())?;
            let fragment = Fragment {
                cut: self.settled,
                before: self.settled,
                settled: self.settled,
                clock_ms: self.clock_ms,
                writes: 0,
                digest: self.digest.0,
                at,
                end,
            };
            let sent = messages(Item::Segment(sequence), class, fragment, &content);
            self.send_all(to, &sent);
        }
        let is_whole = at + bytes == end;
        let ticket = if is_whole { self.machine.copied() } else { self.machine.piece_sent() };
        if is_whole && ticket.is_some() {
            self.send_again(to, Item::Segment(sequence));
        }
        if let Some(ticket) = ticket {
            self.flush(to, ticket);
            self.copying = Some(Copying { to, sequence, at: at + bytes, ticket: Some(ticket), is_whole });
        }
        Ok(())
    }

    /// Begins with the next copy; one of a digest is sent at once.
    fn begin_copy(&mut self) -> Option<Copying> {
        let (to, item) = self.machine.to_copy()?;
        let Item::Segment(sequence) = item else {
            self.send_all(to, &self.digest.1.clone());
            if let Some(ticket) = self.machine.copied() {
                self.flush(to, ticket);
            }
            return None;
        };
        Some(Copying { to, sequence, at: 0, ticket: None, is_whole: false })
    }
}

/// Returns the messages with these bytes, which begin where the fragment does.
fn messages(item: Item, class: u8, fragment: Fragment, bytes: &[u8]) -> Vec<ReplicaMessage> {
    let mut at = fragment.at;
    let pieces = bytes.chunks(REPLICA_PIECE_BYTES).map(|piece| {
        let mut record = begin_append(item, class, disk::FRAGMENT_HEADER_BYTES + piece.len());
        let _ = Fragment { at, ..fragment }.encode(piece, 0, &mut record);
        at += piece.len() as u32;
        Arc::new(record)
    });
    pieces.collect()
}
