//! Where records are kept in a test, and what opens them: several at once, as several servers do, where that is allowed.

use std::sync::Arc;
use std::time::Duration;

use cluster::metadata::Metadata;
use cluster::moment::Moment;
use cluster::records::{Committed, Embedded, Query, RecordChange, Records, RecordsError, Revision};
use tempfile::TempDir;

use super::etcd_process::EtcdProcess;
use super::memory_records::MemoryRecords;

pub enum Place {
    /// One server alone has it open: both clients are the same.
    File {
        file: Arc<Embedded>,
        _directory: TempDir,
    },
    Etcd(Box<EtcdProcess>),
    Memory(Arc<MemoryRecords>),
}

impl Place {
    pub fn file() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let file = Embedded::open(&directory.path().join("records.redb"), |version, _| {
            Err(RecordsError::UnknownFormat(version))
        });
        Self::File { file: Arc::new(file.expect("a fresh file")), _directory: directory }
    }

    pub fn etcd() -> Self {
        Self::Etcd(Box::new(EtcdProcess::start()))
    }

    pub fn memory() -> Self {
        Self::Memory(Arc::new(MemoryRecords::new(Box::new(Moment::now))))
    }

    /// What one server has.
    pub fn client(&self) -> Arc<dyn Records> {
        match self {
            Self::File { file, .. } => Arc::clone(file) as Arc<dyn Records>,
            Self::Etcd(etcd) => Arc::new(etcd.client()),
            Self::Memory(records) => Arc::clone(records) as Arc<dyn Records>,
        }
    }

    /// A lease that a test waits for the end of. Before that it is kept once, which takes long enough over an etcd on a
    /// machine that others use.
    pub fn short_lease(&self) -> Duration {
        Duration::from_secs(if matches!(self, Self::Etcd(_)) { 8 } else { 3 })
    }

    pub fn metadata(&self) -> Metadata {
        Metadata::over(Box::new(self.client())).expect("records of this format")
    }
}

/// Commits without conditions.
pub fn write(records: &dyn Records, changes: &[RecordChange]) -> Revision {
    match records.commit(&[], changes).expect("records answer") {
        Committed::At(revision) => revision,
        Committed::Conflict => panic!("there is no condition"),
    }
}

/// The keys and values of a query.
pub fn pairs(records: &dyn Records, query: Query) -> Vec<(String, String)> {
    let reading = records.read(&[query], None).expect("records answer");
    let pair = |record: &cluster::records::Record| {
        (record.key.clone(), String::from_utf8(record.value.clone()).expect("text"))
    };
    reading.found[0].iter().map(pair).collect()
}
