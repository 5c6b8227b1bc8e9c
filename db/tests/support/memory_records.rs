//! Records in memory, for tests: what a shared store of records does, by a clock and with outages that a test decides.
//!
//! The third implementation of the trait, held by the same suite as the others. Who simulates a cluster moves its clock and
//! lets it fail: not answer at all, or do what it is asked for and lose the answer.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cluster::moment::Moment;
use cluster::records::{
    Committed, Condition, Event, HeldLease, KeySpan, LeaseId, Query, Reading, Record, RecordChange, Records,
    RecordsError, Revision, Watch, WatchSource,
};

/// How it answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    /// As it should.
    #[default]
    None,
    /// Not at all.
    #[allow(dead_code, reason = "the suite of the records lets nothing fail here")]
    Unavailable,
    /// Commits are made, and nobody is told.
    #[allow(dead_code, reason = "the suite of the records lets nothing fail here")]
    Uncertain,
}

struct Row {
    value: Vec<u8>,
    revision: Revision,
    lease: Option<LeaseId>,
}

struct Lease {
    ttl: Duration,
    until: Moment,
}

struct State {
    revision: Revision,
    rows: BTreeMap<String, Row>,
    leases: BTreeMap<LeaseId, Lease>,
    last_lease: i64,
    events: Vec<Event>,
    watchers: Vec<(String, WatchSource)>,
    fault: Fault,
}

/// Tells the time.
pub type Now = Box<dyn Fn() -> Moment + Send + Sync>;

/// See the file's head.
pub struct MemoryRecords {
    state: Mutex<State>,
    now: Now,
}

impl MemoryRecords {
    pub fn new(now: Now) -> Self {
        let state = State {
            revision: Revision(1),
            rows: BTreeMap::new(),
            leases: BTreeMap::new(),
            last_lease: 0,
            events: Vec::new(),
            watchers: Vec::new(),
            fault: Fault::None,
        };
        Self { state: Mutex::new(state), now }
    }

    /// Lets it fail from now on, or answer again.
    #[allow(dead_code, reason = "the suite of the records lets nothing fail here")]
    pub fn fail(&self, fault: Fault) {
        self.lock().fault = fault;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those that answer, without what went with leases that are over.
    fn open(&self) -> Result<MutexGuard<'_, State>, RecordsError> {
        let mut state = self.lock();
        if state.fault == Fault::Unavailable {
            return Err(RecordsError::Unavailable("an outage".to_owned()));
        }
        let now = (self.now)();
        while let Some(lease) = state.leases.iter().find(|(_, lease)| lease.until <= now).map(|it| *it.0) {
            state.end(lease);
        }
        Ok(state)
    }
}

impl State {
    fn end(&mut self, lease: LeaseId) {
        self.leases.remove(&lease);
        let leased = self.rows.iter().filter(|(_, row)| row.lease == Some(lease));
        let deleted: Vec<RecordChange> = leased.map(|(key, _)| RecordChange::Delete(key.clone())).collect();
        if !deleted.is_empty() {
            self.make(&deleted);
        }
    }

    fn in_span(&self, KeySpan { from, to }: &KeySpan) -> impl DoubleEndedIterator<Item = (&String, &Row)> {
        let (from, to) = (Bound::Included(from.clone()), Bound::Excluded(to.clone()));
        self.rows.range((from, to))
    }

    fn holds(&self, condition: &Condition) -> bool {
        match condition {
            Condition::Absent(key) => !self.rows.contains_key(key),
            Condition::Is(key, revision) => self.rows.get(key).is_some_and(|row| row.revision == *revision),
            Condition::NoneNewer(span, revision) => {
                self.in_span(span).all(|(_, row)| row.revision <= *revision)
            }
        }
    }

    fn make(&mut self, changes: &[RecordChange]) {
        self.revision.0 += 1;
        let revision = self.revision;
        let mut made = Vec::new();
        for change in changes {
            match change {
                RecordChange::Put { key, value, lease } => {
                    self.rows.insert(key.clone(), Row { value: value.clone(), revision, lease: *lease });
                    made.push((key.clone(), Some(value.clone())));
                }
                RecordChange::Delete(key) => {
                    made.extend(self.rows.remove(key).map(|_| (key.clone(), None)));
                }
                RecordChange::DeletePrefix(prefix) => {
                    let keys: Vec<String> =
                        self.rows.keys().filter(|key| key.starts_with(prefix)).cloned().collect();
                    for key in keys {
                        self.rows.remove(&key);
                        made.push((key, None));
                    }
                }
            }
        }
        let event = Event { revision, changes: made };
        self.watchers.retain(|(prefix, source)| show(&event, prefix, source));
        self.events.push(event);
    }
}

/// Shows what of an event has such keys. False when nobody looks any more.
fn show(event: &Event, prefix: &str, source: &WatchSource) -> bool {
    let changes: Vec<_> = event.changes.iter().filter(|(key, _)| key.starts_with(prefix)).cloned().collect();
    changes.is_empty() || source.show(Event { revision: event.revision, changes })
}

impl Records for MemoryRecords {
    fn is_shared(&self) -> bool {
        true
    }

    fn read(&self, queries: &[Query], at: Option<Revision>) -> Result<Reading, RecordsError> {
        let state = self.open()?;
        if at.is_some_and(|at| at != state.revision) {
            return Err(RecordsError::Overtaken);
        }
        let record = |(key, row): (&String, &Row)| Record {
            key: key.clone(),
            value: row.value.clone(),
            revision: row.revision,
        };
        let find = |query: &Query| {
            let rows = state.in_span(&query.span).map(record);
            if query.from_last {
                rows.rev().take(query.limit).collect()
            } else {
                rows.take(query.limit).collect()
            }
        };
        Ok(Reading { revision: state.revision, found: queries.iter().map(find).collect() })
    }

    fn commit(&self, conditions: &[Condition], changes: &[RecordChange]) -> Result<Committed, RecordsError> {
        let mut state = self.open()?;
        let mut leases = changes.iter().filter_map(|change| match change {
            RecordChange::Put { lease, .. } => *lease,
            RecordChange::Delete(_) | RecordChange::DeletePrefix(_) => None,
        });
        if !leases.all(|lease| state.leases.contains_key(&lease)) {
            return Err(RecordsError::LeaseGone);
        }
        if !conditions.iter().all(|condition| state.holds(condition)) {
            return Ok(Committed::Conflict);
        }
        state.make(changes);
        match state.fault {
            Fault::Uncertain => Err(RecordsError::Uncertain("the answer was lost".to_owned())),
            _ => Ok(Committed::At(state.revision)),
        }
    }

    fn watch(&self, prefix: &str, after: Revision) -> Result<Watch, RecordsError> {
        let mut state = self.open()?;
        let (source, watch) = Watch::pair();
        let is_shown = state
            .events
            .iter()
            .filter(|event| event.revision > after)
            .all(|event| show(event, prefix, &source));
        if is_shown {
            state.watchers.push((prefix.to_owned(), source));
        }
        Ok(watch)
    }

    fn lease_grant(&self, ttl: Duration) -> Result<HeldLease, RecordsError> {
        let (mut state, until) = (self.open()?, (self.now)() + ttl);
        state.last_lease += 1;
        let lease = LeaseId(state.last_lease);
        state.leases.insert(lease, Lease { ttl, until });
        Ok(HeldLease { lease, until })
    }

    fn lease_keep(&self, lease: LeaseId) -> Result<HeldLease, RecordsError> {
        let (mut state, now) = (self.open()?, (self.now)());
        let held = state.leases.get_mut(&lease).ok_or(RecordsError::LeaseGone)?;
        held.until = now + held.ttl;
        Ok(HeldLease { lease, until: held.until })
    }

    fn lease_revoke(&self, lease: LeaseId) -> Result<(), RecordsError> {
        self.open()?.end(lease);
        Ok(())
    }
}
