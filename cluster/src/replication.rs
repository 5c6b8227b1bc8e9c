//! Replicas of a server's log at other servers, its backups: who has what, and when a write may be acknowledged.
//!
//! ```text
//!   write ──► to all holders of each segment ──► each has acknowledged it ──► the record is true ──► settled
//!                  └ one is lost ──► a record without it ──► what it had is copied to others ──► a record of more replicas
//! ```
//! The record in the metadata says which backups count, and how many of these have, at least, each thing that was ever
//! acknowledged. So the log can be recovered from all of them but one fewer than that number, and whoever does so need not
//! know what lies where. What another backup has may be of the past, and is not looked at. A backup is lost only when the
//! record no longer counts it: a server that is cut off from the metadata cannot leave one out, and acknowledges nothing.
//!
//! A backup stores what it receives in the order of sending. What it is given to store has a ticket, and an acknowledgement
//! is for all up to its ticket: first that it has received it, in its memory, and later, of what is to be settled, that it is stable.
//! Its file has a random number: one that returns without its file is another backup.
//!
//! RAMCloud's masters choose backups segment by segment as here, but let whoever recovers decide by digests in the segments
//! whether the log is complete (TOCS'15 §7.4). One record for each loss is simpler and covers segments of any kind.

mod copies;
pub mod fetch;
pub mod message;
mod receipts;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use self::receipts::Unreceived;

/// Backups that are drawn for a choice: five leave the fullest with a tenth more than the mean (RAMCloud, TOCS'15 §7.1).
const DRAWS: usize = 5;

/// A part of the log that has replicas of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Item {
    /// The newest digest.
    Digest,
    /// The segment with this number.
    Segment(u32),
}

/// A backup's name: its server, and the random number of its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BackupId {
    /// The number of its server.
    pub server: u32,
    /// The number of its file.
    pub file: u64,
}

/// A backup that can be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backup {
    /// Its name.
    pub id: BackupId,
    /// Its machine: no two replicas of an item are on one.
    pub host: String,
    /// The speed of its disk in MB/s, at least 1.
    pub speed: u32,
}

/// What the metadata says of a log's replicas.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplicasRecord {
    /// The backups that count.
    pub backups: BTreeSet<BackupId>,
    /// How many of them have each thing that was acknowledged, at least.
    pub replicas: usize,
}

/// A ticket for each of some backups.
type Tickets = BTreeMap<BackupId, u64>;

/// Items to be sent to a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sending {
    /// To whom.
    pub to: BackupId,
    /// What its acknowledgement will name.
    pub ticket: u64,
    /// The items, by their places in what was written.
    pub items: Vec<usize>,
}

/// A connected backup.
#[derive(Debug)]
struct Link {
    backup: Backup,
    /// The latest tickets that were sent, received, and acknowledged as stable.
    sent: u64,
    received: u64,
    acked: u64,
    /// Copies whose end was sent, with their tickets.
    copied: VecDeque<(u64, Item)>,
    is_full: bool,
    /// Replicas that it has or is to have.
    held: usize,
}

impl Link {
    fn ticket(&mut self) -> u64 {
        self.sent += 1;
        self.sent
    }
}

/// A replica.
#[derive(Clone, Copy, Debug)]
struct Replica {
    at: BackupId,
    /// The ticket whose acknowledgement makes it one; `None` while it is being copied.
    since: Option<u64>,
}

/// The replicas of an item.
#[derive(Debug, Default)]
struct Replicas {
    all: Vec<Replica>,
    /// Those that count, unless the item is fresh.
    counting: usize,
}

/// The replicas of one server's log.
#[derive(Debug)]
pub struct Replication {
    /// The host of the server itself.
    host: String,
    wanted: usize,
    record: ReplicasRecord,
    committing: Option<ReplicasRecord>,
    /// Backups that were lost and that a record may count.
    lost: BTreeSet<BackupId>,
    links: BTreeMap<BackupId, Link>,
    items: BTreeMap<Item, Replicas>,
    /// Items that exist since a write that is not settled, and whether that has begun.
    fresh: BTreeMap<Item, bool>,
    /// The number of other items with so many replicas that count.
    items_by_replicas: Vec<usize>,
    /// The latest tickets of what was written and is not settled.
    written: Tickets,
    /// Those that are awaited for what is being settled.
    awaited: Tickets,
    /// Those whose receipt is awaited, of writes in their order.
    unreceived: VecDeque<Unreceived>,
    copying: Option<(BackupId, Item)>,
    /// Items that cannot be copied.
    unreadable: BTreeSet<Item>,
    /// Whether an item may lack a replica that somebody could have.
    may_copy: bool,
    /// See [`Replication::let_promise`].
    may_promise: bool,
    random: fastrand::Rng,
}

impl Replication {
    /// Creates the state of a server on this host, of whose log these items exist, and `wanted` replicas are to exist. Chooses
    /// from this seed.
    #[must_use]
    pub fn new(
        (host, wanted): (String, usize),
        record: ReplicasRecord,
        items: impl IntoIterator<Item = Item>,
        seed: u64,
    ) -> Self {
        let items: BTreeMap<_, _> = items.into_iter().map(|item| (item, Replicas::default())).collect();
        Self {
            host,
            wanted,
            record,
            committing: None,
            lost: BTreeSet::new(),
            links: BTreeMap::new(),
            fresh: BTreeMap::new(),
            items_by_replicas: vec![items.len()],
            items,
            written: Tickets::new(),
            awaited: Tickets::new(),
            unreceived: VecDeque::new(),
            copying: None,
            unreadable: BTreeSet::new(),
            may_copy: true,
            may_promise: true,
            random: fastrand::Rng::with_seed(seed),
        }
    }

    /// Takes in a backup that has everything of the items `holds`. Of others it is to have forgotten what it has; or, if the
    /// record counts it, to keep it until the next write is settled, since that may be what the record promises. Returns
    /// false if it was lost and the record may still count it: then it is to come again later.
    pub fn joined(&mut self, backup: Backup, holds: impl IntoIterator<Item = Item>) -> bool {
        let id = backup.id;
        if self.lost.contains(&id) {
            return false;
        }
        let (copied, is_full) = (VecDeque::new(), false);
        self.links.insert(id, Link { backup, sent: 0, received: 0, acked: 0, copied, is_full, held: 0 });
        for item in holds {
            if self.items.contains_key(&item) {
                self.hold(item, Replica { at: id, since: Some(0) });
                self.recount(item);
            }
        }
        self.may_copy = true;
        true
    }

    /// Notes that a backup cannot be reached, or lost what it had.
    pub fn lost(&mut self, id: BackupId) {
        self.links.remove(&id);
        self.of_written(|tickets| _ = tickets.remove(&id));
        self.copying.take_if(|(to, _)| *to == id);
        let records = [Some(&self.record), self.committing.as_ref()];
        if records.into_iter().flatten().any(|record| record.backups.contains(&id)) {
            self.lost.insert(id);
        }
        let had = |replicas: &Replicas| replicas.all.iter().any(|replica| replica.at == id);
        let had: Vec<Item> =
            self.items.iter().filter(|(_, replicas)| had(replicas)).map(|(item, _)| *item).collect();
        for item in had {
            self.items.entry(item).or_default().all.retain(|replica| replica.at != id);
            self.recount(item);
        }
        self.may_copy = true;
    }

    /// Changes the tickets of all that was written and is awaited.
    fn of_written(&mut self, change: impl Fn(&mut Tickets)) {
        let unreceived = self.unreceived.iter_mut().map(|cut| &mut cut.tickets);
        [&mut self.written, &mut self.awaited].into_iter().chain(unreceived).for_each(change);
    }

    /// Writes items, which exist from now on. Returns to whom each is to be sent, in this order. Until [`Replication::settle`] nobody
    /// makes them stable.
    pub fn write(&mut self, items: &[Item]) -> Vec<Sending> {
        let mut sendings: BTreeMap<BackupId, Vec<usize>> = BTreeMap::new();
        for (index, item) in items.iter().enumerate() {
            if !self.items.contains_key(item) {
                self.open(*item);
            }
            let sent = self.items[item].all.iter().filter(|replica| replica.since.is_some());
            sent.for_each(|replica| sendings.entry(replica.at).or_default().push(index));
        }
        let ticketed = sendings.into_iter().map(|(to, items)| {
            let ticket = self.links.get_mut(&to).expect("holders are connected").ticket();
            self.written.insert(to, ticket);
            Sending { to, ticket, items }
        });
        ticketed.collect()
    }

    fn open(&mut self, item: Item) {
        self.items.insert(item, Replicas::default());
        self.fresh.insert(item, false);
        while self.items[&item].all.len() < self.wanted
            && let Some(id) = self.choose(item)
        {
            let since = Some(self.links[&id].sent + 1);
            self.hold(item, Replica { at: id, since });
        }
        self.may_copy |= self.items[&item].all.len() < self.wanted;
    }

    /// Forgets items, which no start needs any more; returns who has which.
    pub fn free(&mut self, items: &[Item]) -> BTreeMap<BackupId, Vec<Item>> {
        let mut having: BTreeMap<BackupId, Vec<Item>> = BTreeMap::new();
        for item in items {
            let Some(replicas) = self.items.remove(item) else { continue };
            if self.fresh.remove(item).is_none() {
                self.items_by_replicas[replicas.counting] -= 1;
            }
            for replica in replicas.all {
                self.links.get_mut(&replica.at).expect("holders are connected").held -= 1;
                having.entry(replica.at).or_default().push(*item);
            }
            self.copying.take_if(|(_, copied)| copied == item);
        }
        having
    }

    /// Begins to settle all that was written so far; returns whom to ask to make all stable up to which ticket. What was begun
    /// before is settled with it.
    pub fn settle(&mut self) -> Vec<(BackupId, u64)> {
        self.fresh.values_mut().for_each(|is_settling| *is_settling = true);
        self.awaited.clone_from(&self.written);
        self.awaited.iter().map(|(id, ticket)| (*id, *ticket)).collect()
    }

    /// Notes that a backup has made stable all up to this ticket.
    pub fn acked(&mut self, id: BackupId, ticket: u64) {
        let Some(link) = self.links.get_mut(&id) else { return };
        link.acked = link.acked.max(ticket.min(link.sent));
        link.received = link.received.max(link.acked);
        let acked = link.acked;
        while let Some((_, item)) =
            self.links.get_mut(&id).and_then(|link| link.copied.pop_front_if(|(ticket, _)| *ticket <= acked))
        {
            self.recount(item);
            // The digest may have waited for it.
            self.may_copy = true;
        }
    }

    /// Notes that a backup had no room for an item, of which it has nothing. If the item was just written for the first time,
    /// returns another one that is to get it, with the ticket; else it is copied again.
    pub fn refused(&mut self, id: BackupId, item: Item) -> Option<(BackupId, u64)> {
        let link = self.links.get_mut(&id)?;
        link.is_full = true;
        let replicas = &mut self.items.get_mut(&item)?.all;
        let before = replicas.len();
        replicas.retain(|replica| replica.at != id);
        link.held -= before - replicas.len();
        self.recount(item);
        self.may_copy = true;
        self.copying.take_if(|copying| *copying == (id, item));
        if !self.fresh.contains_key(&item) {
            return None;
        }
        let other = self.choose(item)?;
        let ticket = self.links.get_mut(&other)?.ticket();
        self.hold(item, Replica { at: other, since: Some(ticket) });
        self.of_written(|tickets| _ = tickets.insert(other, ticket));
        Some((other, ticket))
    }

    /// Notes that a backup has room again.
    pub fn has_room(&mut self, id: BackupId) {
        if let Some(link) = self.links.get_mut(&id) {
            self.may_copy |= std::mem::take(&mut link.is_full);
        }
    }

    /// Lets a record promise replicas behind one that promises none, or not: only while nothing is acknowledged that was not sent.
    pub fn let_promise(&mut self, may_promise: bool) {
        self.may_promise = may_promise;
    }

    /// Returns the record that is to replace the present one, if any; then [`Replication::recorded`] is to follow. It promises
    /// fewer replicas only if backups were lost, by as many, or if no more can be made.
    pub fn to_commit(&mut self) -> Option<ReplicasRecord> {
        if self.committing.is_some() {
            return None;
        }
        self.keep_fresh();
        let is_awaited = |id: &BackupId| !self.links.contains_key(id) && !self.lost.contains(id);
        let is_copied = self.links.values().any(|link| !link.copied.is_empty());
        let is_under_way = self.record.backups.iter().any(is_awaited)
            || self.copying.is_some()
            || is_copied
            || self.may_copy;
        let kept = self.record.backups.difference(&self.lost).copied();
        let backups: BTreeSet<BackupId> = kept.chain(self.links.keys().copied()).collect();
        let fresh = self.fresh.keys().map(|item| self.items[item].all.len()).min();
        let hosts = self.links.values().map(|link| &link.backup.host).filter(|host| **host != self.host);
        let possible = hosts.collect::<BTreeSet<_>>().len().min(self.wanted);
        let replicas = self.lowest().min(fresh.unwrap_or(usize::MAX)).min(possible);
        let replicas = if self.may_promise || self.record.replicas > 0 { replicas } else { 0 };
        // The others have what was acknowledged as often, whatever is known of it.
        let certain = self.record.replicas.saturating_sub(self.lost.len());
        // What some have received of a fresh item may be acknowledged already.
        let may_lack = replicas > certain && replicas > self.having_received(self.fresh.keys());
        if may_lack || replicas < certain && is_under_way {
            return None;
        }
        let record = ReplicasRecord { backups, replicas };
        self.committing = (record != self.record).then_some(record);
        self.committing.clone()
    }

    /// Notes what the metadata has, after an attempt to replace it.
    pub fn recorded(&mut self, record: ReplicasRecord) {
        self.committing = None;
        self.record = record;
        self.lost.retain(|id| self.record.backups.contains(id));
        let all: Vec<Item> = self.items.keys().copied().collect();
        all.into_iter().for_each(|item| self.recount(item));
        self.may_copy = true;
    }

    /// Returns whether all is settled that [`Replication::settle`] began with.
    pub fn is_settled(&mut self) -> bool {
        self.keep_fresh();
        let is_settled = self.is_acked() && self.lowest() >= self.promised();
        if is_settled {
            let awaited = std::mem::take(&mut self.awaited);
            self.written.retain(|id, ticket| awaited.get(id).is_none_or(|settled| settled < ticket));
        }
        is_settled
    }

    /// Returns how many replicas the records promise: either one may be in force.
    #[must_use]
    pub fn promised(&self) -> usize {
        self.committing.iter().map(|record| record.replicas).fold(self.record.replicas, usize::max)
    }

    /// Returns whether a backup has a replica of an item, or is getting one.
    #[must_use]
    pub fn has_replica(&self, id: BackupId, item: Item) -> bool {
        self.items.get(&item).is_some_and(|replicas| replicas.all.iter().any(|replica| replica.at == id))
    }

    /// Returns whether a backup has all of an item that was written, and has acknowledged it.
    #[must_use]
    pub fn has_whole_replica(&self, id: BackupId, item: Item) -> bool {
        let Some(replicas) = self.items.get(&item) else { return false };
        replicas.all.iter().any(|replica| replica.at == id && self.is_there(replica))
    }

    /// Returns whether a backup has acknowledged all that makes it a replica.
    fn is_there(&self, replica: &Replica) -> bool {
        replica.since.is_some_and(|since| self.links[&replica.at].acked >= since)
    }

    /// Returns the record that is in force.
    #[must_use]
    pub fn record(&self) -> &ReplicasRecord {
        &self.record
    }

    /// Returns whether all that is to be settled is acknowledged as stable.
    fn is_acked(&self) -> bool {
        self.awaited.iter().all(|(id, ticket)| self.links[id].acked >= *ticket)
    }

    /// Counts items as all others once what is being settled is acknowledged.
    fn keep_fresh(&mut self) {
        if !self.is_acked() {
            return;
        }
        let kept: Vec<Item> =
            self.fresh.extract_if(.., |_, is_settling| *is_settling).map(|(item, _)| item).collect();
        for item in kept {
            self.count(0, 1);
            self.items.get_mut(&item).expect("it exists").counting = 0;
            self.recount(item);
        }
    }

    /// Returns the fewest replicas that count of any item but fresh ones.
    fn lowest(&self) -> usize {
        self.items_by_replicas.iter().position(|items| *items > 0).unwrap_or(usize::MAX)
    }

    fn count(&mut self, replicas: usize, items: usize) {
        if self.items_by_replicas.len() <= replicas {
            self.items_by_replicas.resize(replicas + 1, 0);
        }
        self.items_by_replicas[replicas] += items;
    }

    /// Updates how many replicas of an item count.
    fn recount(&mut self, item: Item) {
        let Some(replicas) = self.items.get(&item).filter(|_| !self.fresh.contains_key(&item)) else {
            return;
        };
        let counts = |replica: &&Replica| self.is_there(replica) && self.record.backups.contains(&replica.at);
        let (before, counting) = (replicas.counting, replicas.all.iter().filter(counts).count());
        self.items_by_replicas[before] -= 1;
        self.count(counting, 1);
        self.items.get_mut(&item).expect("it exists").counting = counting;
    }

    fn hold(&mut self, item: Item, replica: Replica) {
        self.links.get_mut(&replica.at).expect("it is connected").held += 1;
        self.items.entry(item).or_default().all.push(replica);
    }

    /// Chooses who is to have another replica of an item: of a few drawn, the one that would soonest read its share of the
    /// log.
    fn choose(&mut self, item: Item) -> Option<BackupId> {
        let host_of = |id: &BackupId| &self.links[id].backup.host;
        let hosts: Vec<&String> = self.items[&item].all.iter().map(|replica| host_of(&replica.at)).collect();
        let suits = |link: &&Link| {
            let Backup { id, host, .. } = &link.backup;
            !link.is_full && *host != self.host && !hosts.contains(&host) && self.record.backups.contains(id)
        };
        let suitable: Vec<&Link> = self.links.values().filter(suits).collect();
        let random = &mut self.random;
        let drawn = (0..DRAWS).filter_map(|_| random.choice(&suitable));
        let reads_for = |link: &&&Link| (link.held + 1) as u64 * 1_000_000 / u64::from(link.backup.speed);
        drawn.min_by_key(reads_for).map(|link| link.backup.id)
    }
}
