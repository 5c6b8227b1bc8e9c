//! Sends a log to its backups, cut by cut, and knows when enough of them have it.
//!
//! ```text
//!   log thread:   parts of a cut ──► send ──► take_received ──► received
//!                 digest, parts of a cut ──► send, settle ──► own disk ──► is_settled? ──► stable
//!                                              │          ▲   ▲
//!   link to each backup:          messages ◄───┘          │   └──── events: joined, lost; records of the metadata
//!                                 answers ────────────────┘
//! ```
//! `cluster/src/replication.rs` decides who gets what; here are the bytes. The log's thread itself writes to the links and reads
//! from them, since a thread between would cost each write two more wake-ups. One cut is settled at a time, with at most two digests;
//! cuts that are only to be received may be sent meanwhile, up to a bound of their number and bytes. With one piece of a copy, that
//! is what a link keeps. What a backup lacks is copied in such pieces, each when the one before is acknowledged: what is settled
//! from the own disk, and behind it what is under way.

mod copying;
mod link;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};

use cluster::replication::message::{FromBackup, HeldItem, ToBackup, begin_append};
use cluster::replication::{Backup, BackupId, Item, ReplicasRecord, Replication};
use disk::{DiskError, Fragment};
use net::Duplex;

pub use self::link::{LinkEnded, ReplicaLink};

use self::copying::Copying;
use crate::limits::{REPLICA_PIECE_BYTES, UNRECEIVED_CUTS_MAX, UNSETTLED_BYTES_MAX};

/// Cuts of the disk that are settled before a record promises replicas behind one that promises none. The first one may be behind
/// an answer that did not wait, since its request had begun before.
const CUTS_BEFORE_PROMISE: u32 = 2;

/// A message to a backup. Several get the same one.
pub type ReplicaMessage = Arc<Vec<u8>>;

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
    /// What was sent and is not settled, each with the number of its sending, in case that a backup has no room for it.
    sent: BTreeMap<Item, Vec<(u64, ReplicaMessage)>>,
    /// Bytes of it, that are not being settled.
    ahead_bytes: usize,
    /// Cuts that were settled since receipts are awaited, as far as they are counted.
    cuts_awaiting: u32,
    /// The number of the last sending, and of the last one that is being settled.
    sending: u64,
    settling: u64,
    /// What backups have that is of the past, or may be, until it can be forgotten.
    stale: Vec<(BackupId, Item)>,
    copying: Option<Copying>,
    /// The latest digest: its number, and its messages.
    digest: (u32, Vec<ReplicaMessage>),
    /// The latest cut that wrote anything, and the latest of these that is settled: those who know nothing of later cuts, which
    /// wrote nothing, find as much.
    before: u64,
    /// The same of what is being settled.
    before_settling: u64,
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
        let (before, before_settling, copying, clock_ms) = (settled, settled, None, 0);
        let (ahead_bytes, cuts_awaiting, sending, settling) = (0, 0, 0, 0);
        Self {
            machine,
            events,
            records,
            links,
            ended,
            unsent,
            sent,
            ahead_bytes,
            cuts_awaiting,
            sending,
            settling,
            stale,
            copying,
            digest,
            before,
            before_settling,
            settled,
            clock_ms,
        }
    }

    /// Takes in a digest, which goes out with the next [`ReplicaSender::settle`].
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

    /// Takes in the parts of a cut, which go out with the next [`ReplicaSender::send`] or
    /// [`ReplicaSender::settle`].
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

    /// Sends what was taken in, up to this cut, which is to be received.
    pub fn send(&mut self, cut: u64) {
        for (to, ticket) in self.send_unsent() {
            self.send_to(to, &ToBackup::Receive { ticket }.encode());
        }
        self.flush_links();
        self.machine.await_receipt(cut);
    }

    /// Sends what links have kept.
    pub fn flush_links(&mut self) {
        for (id, link) in &mut self.links {
            if link.flush() == Err(LinkEnded) {
                self.ended.insert(*id);
            }
        }
    }

    /// Sends what was taken in, up to this cut if it is one, and settles all that was sent so far.
    pub fn settle(&mut self, cut: Option<u64>) {
        self.send_unsent();
        if let Some(cut) = cut {
            self.machine.await_receipt(cut);
        }
        for (to, ticket) in self.machine.settle() {
            self.flush(to, ticket);
        }
        self.flush_links();
        (self.settling, self.before_settling, self.ahead_bytes) = (self.sending, self.before, 0);
    }

    /// Returns to whom something was sent, with the tickets.
    fn send_unsent(&mut self) -> Vec<(BackupId, u64)> {
        let Unsent { items, messages } = std::mem::take(&mut self.unsent);
        self.sending += 1;
        let mut tickets = Vec::new();
        for sending in self.machine.write(&items) {
            for index in sending.items {
                self.send_all(sending.to, &messages[index]);
            }
            tickets.push((sending.to, sending.ticket));
        }
        for (item, messages) in items.into_iter().zip(messages) {
            self.ahead_bytes += messages.iter().map(|message| message.len()).sum::<usize>();
            let sent = self.sent.entry(item).or_default();
            if item == Item::Digest {
                // The earlier one is whole at its backups, or this one will do.
                sent.clear();
            }
            sent.extend(messages.into_iter().map(|message| (self.sending, message)));
        }
        tickets
    }

    /// Returns whether another cut may be sent before backups have received more.
    #[must_use]
    pub fn may_send(&self) -> bool {
        self.machine.unreceived() < UNRECEIVED_CUTS_MAX
    }

    /// Returns whether so much is sent and not being settled that nothing more may be.
    #[must_use]
    pub fn is_far_ahead(&self) -> bool {
        self.ahead_bytes >= UNSETTLED_BYTES_MAX
    }

    /// Returns the number of the last cut with anything that was sent.
    #[must_use]
    pub fn last_sent(&self) -> u64 {
        self.before
    }

    /// Returns whether whatever is acknowledged waits until backups have received it: as long as there are any, before a record
    /// promises it.
    #[must_use]
    pub fn awaits_receipts(&self) -> bool {
        self.machine.promised() > 0 || !self.links.is_empty()
    }

    /// Returns whether cuts of the disk are to come soon, so that a record can promise replicas.
    #[must_use]
    pub fn needs_cuts(&self) -> bool {
        !self.links.is_empty() && self.cuts_awaiting < CUTS_BEFORE_PROMISE
    }

    /// Returns the latest cut that enough backups have received, if it was not returned before.
    pub fn take_received(&mut self) -> Option<u64> {
        self.machine.take_received()
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
        let sent = self.sent.get(&item).into_iter().flatten();
        let messages: Vec<_> = sent.map(|(_, message)| Arc::clone(message)).collect();
        self.send_all(to, &messages);
    }

    fn flush(&mut self, to: BackupId, ticket: u64) {
        self.send_to(to, &ToBackup::Flush { ticket }.encode());
    }

    fn forget(&mut self, to: BackupId, item: Item) {
        self.send_to(to, &ToBackup::Forget { item }.encode());
    }

    /// Takes in what has happened.
    pub fn look(&mut self, log: &dyn SentLog) {
        self.receive();
        if !self.awaits_receipts() {
            self.cuts_awaiting = 0;
        }
        self.machine.let_promise(self.cuts_awaiting >= CUTS_BEFORE_PROMISE);
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
    }

    /// Returns whether all that is being settled is at as many backups as the record says.
    pub fn is_settled(&mut self) -> bool {
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
            FromBackup::Received { ticket } => self.machine.received(id, ticket),
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
                    // It may be acknowledged, or soon, and not be on the own disk.
                    self.send_to(other, &ToBackup::Receive { ticket }.encode());
                    self.flush(other, ticket);
                }
            }
            // Only at the beginning of a stream.
            FromBackup::Held { .. } => {}
        }
    }

    /// Notes that what was being settled is so, and stable on the own disk.
    pub fn note_settled(&mut self) {
        self.cuts_awaiting += u32::from(self.awaits_receipts() && self.cuts_awaiting < CUTS_BEFORE_PROMISE);
        self.settled = self.before_settling;
        for messages in self.sent.values_mut() {
            messages.retain(|(sending, _)| *sending > self.settling);
        }
        self.sent.retain(|_, messages| !messages.is_empty());
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
