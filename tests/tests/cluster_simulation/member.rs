//! What a server of the simulated cluster has to do with the records: a way to them that may be cut off, its registration, whom
//! it takes for gone, and its turn as the coordinator. All real but the way.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cluster::coordinator::steps;
use cluster::metadata::{Metadata, MetadataError, ServerRow, ServerRun, Snapshot};
use cluster::moment::Moment;
use cluster::presence::Presence;
use cluster::records::{
    Committed, Condition, HeldLease, LeaseId, Query, Reading, RecordChange, Records, RecordsError, Revision,
    Watch,
};
use cluster::registration::Registration;

use crate::memory_records::MemoryRecords;

/// Records that the world has too: it lets them fail for all, and for one.
#[derive(Clone)]
pub struct Way {
    records: Arc<MemoryRecords>,
    is_cut: Arc<AtomicBool>,
}

impl Way {
    pub fn to(records: &Arc<MemoryRecords>) -> Way {
        Way { records: Arc::clone(records), is_cut: Arc::default() }
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
        self.open()?.commit(conditions, changes)
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
    own: ServerRun,
    way: Way,
    registration: Registration,
}

impl Member {
    pub fn new(records: &Arc<MemoryRecords>, row: ServerRow, own: ServerRun) -> Member {
        let way = Way::to(records);
        let metadata = Metadata::over(Box::new(way.clone())).expect("records of this format");
        let registration = Registration::new(row);
        Member { metadata, presence: Presence::default(), own, way, registration }
    }

    /// The records do not answer this server, or do again.
    pub fn cut_off(&self, is_cut: bool) {
        self.way.is_cut.store(is_cut, Ordering::Relaxed);
    }

    pub fn is_cut_off(&self) -> bool {
        self.way.is_cut.load(Ordering::Relaxed)
    }

    /// Stays registered. Whether it could.
    pub fn keep(&mut self, view: u64) -> bool {
        self.registration.keep(&self.metadata, view).is_ok()
    }

    /// The lease, when it is held.
    pub fn lease(&self, now: Moment) -> Option<LeaseId> {
        self.registration.held().filter(|held| now < held.until).map(|held| held.lease)
    }

    /// Looks who is there, and takes the steps that are due if it is for this server to do, which it says; counts them.
    pub fn coordinate(
        &mut self,
        (now, moment): (Instant, Moment),
        wall_ms: u64,
        taken: &mut u64,
    ) -> Result<bool, MetadataError> {
        let seen = self.metadata.members().and_then(|members| Ok((members, self.metadata.servers()?)));
        let (members, registered) = seen.inspect_err(|_| self.presence.lose_sight())?;
        let runs: Vec<ServerRun> = members.iter().map(|row| row.run).collect();
        self.presence.see(&runs, &registered.iter().map(|row| row.id).collect(), now);
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
