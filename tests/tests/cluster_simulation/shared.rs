//! Records that the world and the metadata have, both: the world lets them fail.

use std::sync::Arc;
use std::time::Duration;

use db::cluster::records::{
    Change, Committed, Condition, Held, LeaseId, Query, Reading, Records, RecordsError, Revision, Watch,
};

use crate::memory_records::MemoryRecords;

/// See the file's head.
pub struct Shared(pub Arc<MemoryRecords>);

impl Records for Shared {
    fn is_shared(&self) -> bool {
        true
    }
    fn read(&self, queries: &[Query], at: Option<Revision>) -> Result<Reading, RecordsError> {
        self.0.read(queries, at)
    }
    fn commit(&self, conditions: &[Condition], changes: &[Change]) -> Result<Committed, RecordsError> {
        self.0.commit(conditions, changes)
    }
    fn watch(&self, prefix: &str, after: Revision) -> Result<Watch, RecordsError> {
        self.0.watch(prefix, after)
    }
    fn lease_grant(&self, ttl: Duration) -> Result<Held, RecordsError> {
        self.0.lease_grant(ttl)
    }
    fn lease_keep(&self, lease: LeaseId) -> Result<Held, RecordsError> {
        self.0.lease_keep(lease)
    }
    fn lease_revoke(&self, lease: LeaseId) -> Result<(), RecordsError> {
        self.0.lease_revoke(lease)
    }
}
