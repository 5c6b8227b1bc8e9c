//! A commit that a client asks for: it read objects and scanned ranges before, one by one, and wants its writes applied as one if
//! all of that is unchanged. The rule is that of the commit at the end of an invocation ([`super::transaction`]).

use std::ops::{ControlFlow, Deref};

use arrayvec::ArrayVec;
use store::{CommitError, NEVER_MS, NotOrdered, RangeCheck, ReadCheck, Table, Write};
use wire::limits::COMMIT_READS_MAX;
use wire::{Changes, CommitItem, CommitRange, CommitRead, CommitWrite, Status, TenantId};

use super::WorkerEnvironment;
use super::write::{WriteOutcome, refused};
use crate::limits::{RETRY_ARRIVING_US, RETRY_EXPIRED_US, RETRY_UNHEARD_US};
use crate::tablet::TableEntry;

/// Reads and writes up to which a commit without ranges allocates nothing.
const ITEMS_ON_STACK: usize = 32;

/// How much one commit of a tenant may read and write.
#[derive(Clone, Copy, Debug)]
pub struct CommitLimits {
    /// Objects read.
    pub reads: u64,
    /// Objects written.
    pub writes: usize,
    /// Bytes of their keys and values.
    pub write_bytes: usize,
}

/// Commits what a client of this tenant asks for, on the disk if it asks for that. `Ok` has the version of all written objects;
/// `Conflict` the number of the first read that has changed, those of ranges behind those of objects, as a u32. `NotLocal` if this
/// server owns the first key and not all others.
#[must_use]
pub fn commit(
    environment: &WorkerEnvironment<'_>,
    (tenant, limits, for_disk): (TenantId, CommitLimits, bool),
    changes: &Changes<'_>,
) -> WriteOutcome {
    let [reads, ranges, writes] = changes.counts();
    if reads as u64 > limits.reads || writes > limits.writes {
        return limit_exceeded();
    }
    let of = (tenant, limits, for_disk);
    let done = if ranges == 0 && reads.max(writes) <= ITEMS_ON_STACK {
        let reads = ArrayVec::<ReadCheck<'_>, ITEMS_ON_STACK>::new();
        let writes = ArrayVec::<Write<'_>, ITEMS_ON_STACK>::new();
        Lists { reads, ranges: Vec::new(), writes, spread: Vec::new(), absent: 0 }.commit(
            environment,
            of,
            changes,
        )
    } else {
        let (reads, writes) = (Vec::with_capacity(reads), Vec::with_capacity(writes));
        Lists { reads, ranges: Vec::new(), writes, spread: Vec::new(), absent: 0 }.commit(
            environment,
            of,
            changes,
        )
    };
    match done {
        Ok(version) => WriteOutcome::version(Status::Ok, version),
        Err(outcome) => outcome,
    }
}

/// Returns the keys of which the commit has to know more than is here.
#[must_use]
pub fn lacking<'t>(
    environment: &WorkerEnvironment<'t>,
    tenant: TenantId,
    changes: &Changes<'_>,
) -> Vec<(&'t Table, u64)> {
    let lacks = |(table, key, must_know): (u32, &[u8], bool)| {
        let (entry, hash) = (environment.tables.get(tenant, table)?, store::hash(key));
        let part = entry.parts.find(key, hash)?;
        let must_know = must_know || part.is_replaying();
        (must_know && !environment.pin.knows(part, hash, key)).then_some((part, hash))
    };
    let of = |item| match item {
        CommitItem::Read(CommitRead { table, key, .. }) => lacks((table, key, true)),
        CommitItem::Write(CommitWrite { table, key, value, .. }) => lacks((table, key, value.is_none())),
        CommitItem::Range(_) => None,
    };
    changes.items().filter_map(of).collect()
}

/// What the store checks and changes.
struct Lists<'t, R, W> {
    /// Those that the client names, in its order.
    reads: R,
    ranges: Vec<RangeCheck<'t>>,
    writes: W,
    /// Ranges with keys that the client does not name: the number of each, and its reads, with their numbers for the client.
    spread: Vec<(usize, Vec<NamedRead<'t>>)>,
    /// How many reads the client does not name.
    absent: usize,
}

/// A read, and its number for the client, if it names it.
type NamedRead<'t> = (ReadCheck<'t>, Option<usize>);

impl<'t, R, W> Lists<'t, R, W>
where
    R: Deref<Target = [ReadCheck<'t>]> + Extend<ReadCheck<'t>>,
    W: Deref<Target = [Write<'t>]> + Extend<Write<'t>>,
{
    fn commit(
        mut self,
        environment: &WorkerEnvironment<'t>,
        (tenant, limits, for_disk): (TenantId, CommitLimits, bool),
        changes: &Changes<'t>,
    ) -> Result<u64, WriteOutcome> {
        let (mut write_bytes, [named, ..]) = (0, changes.counts());
        for item in changes.items() {
            match item {
                CommitItem::Read(read) => self.reads.extend([check_of(environment, tenant, read)?]),
                CommitItem::Range(range) => {
                    let check = range_of(environment, tenant, range)?;
                    self.add_range(environment, named, check)?;
                }
                CommitItem::Write(write) => {
                    write_bytes += write.key.len() + write.value.map_or(0, <[u8]>::len);
                    self.writes.extend([write_of(environment, tenant, write, for_disk)?]);
                }
            }
        }
        if write_bytes > limits.write_bytes {
            return Err(limit_exceeded());
        }
        let spread = self.spread_out(named);
        let (reads, names) =
            spread.as_ref().map_or((&self.reads[..], None), |(reads, names)| (&reads[..], Some(names)));
        let lacks = |part: &Table, hash, key| !environment.pin.knows(part, hash, key);
        let must_know = |write: &&Write<'_>| write.value.is_none() || write.table.is_replaying();
        if reads.iter().any(|read| lacks(read.table, read.hash, read.key))
            || self.writes.iter().filter(must_know).any(|write| lacks(write.table, write.hash, write.key))
        {
            return Err(WriteOutcome::LACKS);
        }
        let committed = environment.pin.commit_ranges(reads, &self.ranges, &self.writes);
        // Whatever comes of it shows something of them.
        let shown =
            self.reads.iter().map(|read| read.table).chain(self.ranges.iter().map(|range| range.table));
        let mut before = None;
        for part in shown.filter(|part| before.replace(part.id()) != Some(part.id())) {
            environment.pin.note_shown(part);
        }
        committed.map_err(|error| match error {
            CommitError::Conflict { read } if read < reads.len() => {
                conflict(names.map_or(read, |names| names[read]))
            }
            CommitError::Conflict { read } => conflict(named + read - reads.len()),
            CommitError::TooManyOperations => limit_exceeded(),
            CommitError::Write(error) => refused(error),
        })
    }

    /// Adds a range, of which the client names the reads that its scan met. Keys without an object, which have expired or are being
    /// removed, are still among those of the table: each is a read of its absence then. What the client names is checked in any case,
    /// also where its key has left the table.
    fn add_range(
        &mut self,
        environment: &WorkerEnvironment<'t>,
        named: usize,
        check: RangeCheck<'t>,
    ) -> Result<(), WriteOutcome> {
        let (own, mut at) = (check.reads.clone(), check.reads.start);
        let comes_before = |left: &[u8], right: &[u8]| (left < right) != check.range.reverse && left != right;
        let (mut met, mut changed, mut is_whole) = (Vec::new(), false, true);
        let reads = &self.reads;
        let scanned = environment.pin.scan(check.table, check.range, own.len() + 1, |key, hash, object| {
            if check.until.is_some_and(|until| comes_before(until, key)) {
                return ControlFlow::Break(());
            }
            while at < own.end && comes_before(reads[at].key, key) {
                met.push((reads[at], Some(at)));
                at += 1;
            }
            let name = (at < own.end && reads[at].key == key).then_some(at);
            at += usize::from(name.is_some());
            changed = name.is_none() && object.is_some();
            is_whole &= name.is_some();
            let version = name.map_or(0, |at| reads[at].version);
            met.push((ReadCheck { table: check.table, hash, key, version }, name));
            if changed || met.len() > COMMIT_READS_MAX {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        scanned.map_err(|NotOrdered| WriteOutcome::bare(Status::NotOrdered))?;
        let number = named + self.ranges.len();
        if changed {
            return Err(conflict(number));
        }
        if !is_whole {
            self.absent += met.iter().filter(|(_, name)| name.is_none()).count();
            if named + self.absent > COMMIT_READS_MAX {
                // Background work removes what has expired; the client cannot name less.
                return Err(WriteOutcome::retry(RETRY_EXPIRED_US));
            }
            met.extend((at..own.end).map(|at| (reads[at], Some(at))));
            self.spread.push((self.ranges.len(), met));
        }
        self.ranges.push(check);
        Ok(())
    }

    /// Returns all reads with those of ranges that the client does not name, and the number of each for the client; `None` if it names
    /// all. Ranges then refer to these.
    fn spread_out(&mut self, named: usize) -> Option<(Vec<ReadCheck<'t>>, Vec<usize>)> {
        if self.spread.is_empty() {
            return None;
        }
        let own = |at: usize| (self.reads[at], at);
        let (mut all, mut at) = (Vec::new(), 0);
        for (number, check) in self.ranges.iter_mut().enumerate() {
            all.extend((at..check.reads.start).map(own));
            let (first, spread) = (all.len(), self.spread.iter().find(|(of, _)| *of == number));
            match spread {
                Some((_, met)) => {
                    all.extend(met.iter().map(|(read, name)| (*read, name.unwrap_or(named + number))));
                }
                None => all.extend(check.reads.clone().map(own)),
            }
            at = check.reads.end.max(at);
            check.reads = first..all.len();
        }
        all.extend((at..self.reads.len()).map(own));
        Some(all.into_iter().unzip())
    }
}

/// Beyond the tenant's limits of reads and writes of an invocation, or of the bytes of these.
fn limit_exceeded() -> WriteOutcome {
    WriteOutcome::bare(Status::LimitExceeded)
}

/// This read, or range behind them, has changed.
fn conflict(number: usize) -> WriteOutcome {
    WriteOutcome { status: Status::Conflict, bytes: 4, words: [number as u64, 0] }
}

fn entry_of<'t>(
    environment: &WorkerEnvironment<'t>,
    tenant: TenantId,
    table: u32,
) -> Result<&'t TableEntry, WriteOutcome> {
    let may_come = || environment.remote.is_some() && environment.tables.may_come(tenant, table);
    match environment.tables.get(tenant, table) {
        Some(entry) => Ok(entry),
        None if may_come() => Err(WriteOutcome::retry(RETRY_UNHEARD_US)),
        None => Err(WriteOutcome::bare(Status::UnknownTable)),
    }
}

/// Returns the part of a key.
fn part_of<'t>(entry: &'t TableEntry, key: &[u8], hash: u64) -> Result<&'t Table, WriteOutcome> {
    entry.parts.find(key, hash).ok_or_else(|| WriteOutcome::bare(Status::NotLocal))
}

fn check_of<'t>(
    environment: &WorkerEnvironment<'t>,
    tenant: TenantId,
    CommitRead { table, key, version }: CommitRead<'t>,
) -> Result<ReadCheck<'t>, WriteOutcome> {
    let hash = store::hash(key);
    let part = part_of(entry_of(environment, tenant, table)?, key, hash)?;
    Ok(ReadCheck { table: part, hash, key, version })
}

fn range_of<'t>(
    environment: &WorkerEnvironment<'t>,
    tenant: TenantId,
    CommitRange { table, range, until, reads }: CommitRange<'t>,
) -> Result<RangeCheck<'t>, WriteOutcome> {
    let entry = entry_of(environment, tenant, table)?;
    let part = entry.parts.part_of(range.prefix).ok_or_else(|| WriteOutcome::bare(Status::NotLocal))?;
    if !part.is_complete() {
        return Err(WriteOutcome::retry(RETRY_ARRIVING_US));
    }
    let wire::KeyRange { from, to, prefix, reverse, .. } = range;
    let range = store::KeyRange { from, to, prefix, after: None, reverse };
    Ok(RangeCheck { table: part, range, until, reads: reads.start.into()..reads.end.into() })
}

fn write_of<'t>(
    environment: &WorkerEnvironment<'t>,
    tenant: TenantId,
    CommitWrite { table, key, value, ttl_ms }: CommitWrite<'t>,
    for_disk: bool,
) -> Result<Write<'t>, WriteOutcome> {
    let (entry, hash) = (entry_of(environment, tenant, table)?, store::hash(key));
    if !entry.writable {
        return Err(WriteOutcome::bare(Status::NotPermitted));
    }
    let part = part_of(entry, key, hash)?;
    if for_disk && !part.is_promised() {
        return Err(WriteOutcome::bare(Status::NotDurable));
    }
    // The sum fits: the edge has refused times beyond `TTL_MS_MAX`.
    let until = |ttl_ms| environment.core.store().now_ms().saturating_add(ttl_ms);
    Ok(Write { table: part, hash, key, value, expires_ms: ttl_ms.map_or(NEVER_MS, until) })
}
