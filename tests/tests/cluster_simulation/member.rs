//! What a server of the simulated cluster has to do with the records: a way to them that may be cut off, its registration, whom
//! it takes for gone, and its turn as the coordinator. All real but the way.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cluster::coordinator::steps;
use cluster::metadata::{MemberRow, Metadata, MetadataError, ServerRow, ServerRun, Snapshot};
use cluster::moment::Moment;
use cluster::presence::Presence;
use cluster::records::{
    Committed, Condition, HeldLease, LeaseId, Query, Reading, RecordChange, Records, RecordsError, Revision,
    Watch,
};
use cluster::registration::Registration;

use crate::memory_records::MemoryRecords;

/// Of so many commits the answer to one is lost.
const COMMITS_PER_LOST_ANSWER: u64 = 19;

/// Records that the world has too: it lets them fail for all, and for one.
#[derive(Clone)]
pub struct Way {
    records: Arc<MemoryRecords>,
    is_cut: Arc<AtomicBool>,
    /// The number of the next commit, if the answers to some are lost.
    commits: Option<Arc<AtomicU64>>,
}

impl Way {
    fn to(records: &Arc<MemoryRecords>, commits: Option<u64>) -> Way {
        let commits = commits.map(|commits| Arc::new(AtomicU64::new(commits)));
        Way { records: Arc::clone(records), is_cut: Arc::default(), commits }
    }

    fn open(&self) -> Result<&MemoryRecords, RecordsError> {
        if self.is_cut.load(Ordering::Relaxed) {
            return Err(RecordsError::Unavailable("there is no way".to_owned()));
        }
        Ok(&self.records)
    }
}

impl Records for Way {
    fn is_shared(&self) -> bool {
        true
    }
    fn read(&self, queries: &[Query], at: Option<Revision>) -> Result<Reading, RecordsError> {
        self.open()?.read(queries, at)
    }
    fn commit(&self, conditions: &[Condition], changes: &[RecordChange]) -> Result<Committed, RecordsError> {
        let committed = self.open()?.commit(conditions, changes)?;
        let number = self.commits.as_ref().map_or(1, |commits| commits.fetch_add(1, Ordering::Relaxed));
        if number.is_multiple_of(COMMITS_PER_LOST_ANSWER) {
            return Err(RecordsError::Uncertain("the answer was lost".to_owned()));
        }
        Ok(committed)
    }
    fn watch(&self, prefix: &str, after: Revision) -> Result<Watch, RecordsError> {
        self.open()?.watch(prefix, after)
    }
    fn lease_grant(&self, ttl: Duration) -> Result<HeldLease, RecordsError> {
        self.open()?.lease_grant(ttl)
    }
    fn lease_keep(&self, lease: LeaseId) -> Result<HeldLease, RecordsError> {
        self.open()?.lease_keep(lease)
    }
    fn lease_revoke(&self, lease: LeaseId) -> Result<(), RecordsError> {
        self.open()?.lease_revoke(lease)
    }
}

/// See the file's head.
pub struct Member {
    pub metadata: Metadata,
    pub presence: Presence,
    /// The servers that were not gone at the last look.
    pub others: BTreeSet<u32>,
    own: ServerRun,
    way: Way,
    registration: Registration,
}

impl Member {
    /// The member of this start. To one with replicas the answers to some commits are lost.
    pub fn new(records: &Arc<MemoryRecords>, row: ServerRow, own: ServerRun) -> Member {
        let commits = u64::from(own.start) % COMMITS_PER_LOST_ANSWER;
        let way = Way::to(records, row.backup_host.as_ref().map(|_| commits));
        let metadata = Metadata::over(Box::new(way.clone())).expect("records of this format");
        let registration = Registration::new(row);
        Member { metadata, presence: Presence::default(), others: BTreeSet::new(), own, way, registration }
    }

    /// The records do not answer this server, or do again.
    pub fn cut_off(&self, is_cut: bool) {
        self.way.is_cut.store(is_cut, Ordering::Relaxed);
    }

    pub fn is_cut_off(&self) -> bool {
        self.way.is_cut.load(Ordering::Relaxed)
    }

    /// Another way to the metadata.
    pub fn another(&self) -> Result<Metadata, MetadataError> {
        Metadata::over(Box::new(self.way.clone()))
    }

    /// Stays registered.
    pub fn keep(&mut self, view: u64) -> Result<(), MetadataError> {
        self.registration.keep(&self.metadata, view, |_| ()).map(drop)
    }

    /// The lease that was held last.
    pub fn held(&self) -> Option<HeldLease> {
        self.registration.held()
    }

    /// The lease, when it is held.
    pub fn lease(&self, now: Moment) -> Option<LeaseId> {
        self.held().filter(|held| now < held.until).map(|held| held.lease)
    }

    /// Looks who is there, and takes the steps that are due if it is for this server to do, which it says; counts them.
    pub fn coordinate(
        &mut self,
        (now, moment): (Instant, Moment),
        wall_ms: u64,
        taken: &mut u64,
    ) -> Result<bool, MetadataError> {
        let seen = self.metadata.members().and_then(|members| Ok((members, self.metadata.servers()?)));
        let (members, registered) = seen.inspect_err(|_| self.presence.lose_sight(now))?;
        let runs: Vec<ServerRun> = members.iter().map(|row| row.run).collect();
        let has_ended = |row: &&MemberRow| row.ended == row.run.start;
        self.presence.note_ended(members.iter().filter(has_ended).map(|row| row.run).collect());
        let registered: BTreeSet<u32> = registered.iter().map(|row| row.id).collect();
        self.presence.see(&runs, &registered, now);
        let is_gone = |server: &u32| {
            runs.iter().find(|run| run.server == *server).is_none_or(|run| self.presence.is_gone(*run, now))
        };
        self.others.retain(|server| !is_gone(server));
        self.others.extend(registered);
        let Some(lease) = self.lease(moment) else { return Ok(false) };
        let elected = self.metadata.coordinator_elect(self.own.server, lease)?;
        if elected.server != self.own.server {
            return Ok(false);
        }
        let snapshot = Snapshot { there: self.presence.there(now), ..self.metadata.snapshot()? };
        for step in steps(&snapshot) {
            self.metadata.coordinate(elected.term, &step, wall_ms)?;
            *taken += 1;
        }
        Ok(true)
    }
}
