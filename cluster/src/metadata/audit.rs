//! Records of the audit log: acts by number, an index of them by tenant, and their counts.
//!
//! Acts are appended and read, never changed. Two bounds remove the oldest: one on all acts, one on those of a tenant,
//! so that a tenant with many acts cannot displace those of others.

use std::slice;

use control::{Actor, AuditEntry};
use serde::{Deserialize, Serialize};
use wire::TenantId;

use super::encoding::{damaged, decode, padded, padded_long};
use super::{Metadata, MetadataError, MetadataTransaction, next};
use crate::limits::{AUDIT_ENTRIES_MAX, AUDIT_ENTRIES_PER_TENANT_MAX};
use crate::records::{KeySpan, Query, RecordsError};

const ACTS: &str = "audit/acts/";
const ACTS_OF: &str = "audit/tenants/";
const HELD: &str = "counts/audit/all";
const HELD_OF: &str = "counts/audit/tenants/";

#[derive(Serialize, Deserialize)]
struct AuditValue {
    /// 0 for an act that belongs to no tenant.
    tenant: u32,
    at_ms: u64,
    actor: Actor,
    act: String,
    /// A number of `wire::Status`.
    outcome: u8,
}

/// An index entry; its key is its only content.
#[derive(Serialize, Deserialize)]
struct Mark {}

#[derive(Default, Serialize, Deserialize)]
struct AuditCount {
    held: u64,
}

/// An act as stored.
pub(super) struct AuditRow {
    pub(super) tenant: u32,
    pub(super) entry: AuditEntry,
}

impl AuditRow {
    fn of(key: &str, value: AuditValue) -> Result<Self, RecordsError> {
        let sequence = sequence_of(key)?;
        let AuditValue { tenant, at_ms, actor, act, outcome } = value;
        Ok(Self { tenant, entry: AuditEntry { sequence, at_ms, actor, act, outcome } })
    }

    pub(super) fn store(&self, transaction: &mut MetadataTransaction<'_>) -> Result<(), RecordsError> {
        let AuditEntry { sequence, at_ms, actor, act, outcome } = self.entry.clone();
        let value = AuditValue { tenant: self.tenant, at_ms, actor, act, outcome };
        transaction.put(&key_of(sequence), &value)?;
        if self.tenant != 0 {
            transaction.put(&key_of_tenant(self.tenant, sequence), &Mark {})?;
        }
        Ok(())
    }
}

fn key_of(sequence: u64) -> String {
    format!("{ACTS}{}", padded_long(sequence))
}

fn prefix_of(tenant: u32) -> String {
    format!("{ACTS_OF}{}/", padded(tenant))
}

fn key_of_tenant(tenant: u32, sequence: u64) -> String {
    format!("{}{}", prefix_of(tenant), padded_long(sequence))
}

fn held_key(tenant: u32) -> String {
    format!("{HELD_OF}{}", padded(tenant))
}

fn sequence_of(key: &str) -> Result<u64, RecordsError> {
    let number = key.rsplit('/').next().and_then(|number| number.parse().ok());
    number.ok_or_else(|| damaged(key))
}

/// Updates the counts of all acts and of a tenant's acts; returns both.
pub(super) fn count(
    transaction: &mut MetadataTransaction<'_>,
    tenant: u32,
    by: impl Fn(u64) -> u64,
) -> Result<(u64, u64), RecordsError> {
    let all = by(transaction.get::<AuditCount>(HELD)?.unwrap_or_default().held);
    transaction.put(HELD, &AuditCount { held: all })?;
    if tenant == 0 {
        return Ok((all, 0));
    }
    let key = held_key(tenant);
    let own = by(transaction.get::<AuditCount>(&key)?.unwrap_or_default().held);
    match own {
        0 => transaction.delete(&key),
        held => transaction.put(&key, &AuditCount { held })?,
    }
    Ok((all, own))
}

fn remove(transaction: &mut MetadataTransaction<'_>, sequence: u64) -> Result<(), RecordsError> {
    let key = key_of(sequence);
    if let Some(AuditValue { tenant, .. }) = transaction.get(&key)? {
        count(transaction, tenant, |held| held.saturating_sub(1))?;
        transaction.delete(&key_of_tenant(tenant, sequence));
    }
    transaction.delete(&key);
    Ok(())
}

impl Metadata {
    /// Appends an act of a tenant or of none, and returns its number.
    ///
    /// # Errors
    /// That it cannot be stored.
    pub fn audit_append(
        &self,
        tenant: Option<TenantId>,
        at_ms: u64,
        actor: Actor,
        act: String,
        outcome: u8,
    ) -> Result<u64, MetadataError> {
        let tenant = tenant.map_or(0, |tenant| tenant.0);
        let entry = AuditEntry { sequence: 0, at_ms, actor, act, outcome };
        self.write(|transaction| {
            let sequence = next(transaction, "audit", 1)?;
            let (mut all, own) = count(transaction, tenant, |held| held + 1)?;
            AuditRow { tenant, entry: AuditEntry { sequence, ..entry.clone() } }.store(transaction)?;
            if own > AUDIT_ENTRIES_PER_TENANT_MAX
                && let Some(oldest) = transaction.first_before(KeySpan::prefix(&prefix_of(tenant)))?
            {
                remove(transaction, sequence_of(&oldest)?)?;
                all -= 1;
            }
            if all > AUDIT_ENTRIES_MAX
                && let Some(oldest) = transaction.first_before(KeySpan::prefix(ACTS))?
            {
                remove(transaction, sequence_of(&oldest)?)?;
            }
            Ok(sequence)
        })
    }

    /// Returns acts of a tenant, or with `None` of all, oldest first: the oldest `count` after number `after`, or the
    /// newest `count` if `after` is 0.
    ///
    /// # Errors
    /// When the metadata cannot be read.
    pub fn audit_read(
        &self,
        tenant: Option<TenantId>,
        after: u64,
        count: usize,
    ) -> Result<Vec<AuditEntry>, MetadataError> {
        let prefix = tenant.map_or_else(|| ACTS.to_owned(), |TenantId(tenant)| prefix_of(tenant));
        let behind = format!("{prefix}{}", padded_long(after.saturating_add(1)));
        let span = KeySpan { from: behind, ..KeySpan::prefix(&prefix) };
        let query = Query { span, limit: count, from_last: after == 0 };
        self.read(|transaction| {
            let mut found = transaction.glance(slice::from_ref(&query))?;
            let mut records = found.pop().unwrap_or_default();
            if query.from_last {
                records.reverse();
            }
            if tenant.is_some() {
                let sequences = records.iter().map(|record| sequence_of(&record.key));
                let keys: Vec<String> =
                    sequences.map(|sequence| sequence.map(key_of)).collect::<Result<_, _>>()?;
                let queries: Vec<Query> = keys.iter().map(|key| Query::all(KeySpan::one(key))).collect();
                records = transaction.glance(&queries)?.into_iter().flatten().collect();
            }
            let entry = |key: &str, value: &[u8]| Ok(AuditRow::of(key, decode(key, value)?)?.entry);
            records.iter().map(|record| entry(&record.key, &record.value)).collect()
        })
    }
}

#[cfg(test)]
mod tests {
    use control::Actor;
    use redb::Builder;
    use redb::backends::InMemoryBackend;
    use wire::TenantId;

    use crate::limits::AUDIT_ENTRIES_PER_TENANT_MAX;
    use crate::metadata::Metadata;

    fn metadata() -> Metadata {
        Metadata::open_with(Box::new(|| Builder::new().create_with_backend(InMemoryBackend::new())))
            .expect("memory")
    }

    #[test]
    fn acts_are_read_in_order_and_tenants_see_their_own() {
        let metadata = metadata();
        let (ann, bob) = (Some(TenantId(1)), Some(TenantId(2)));
        for (number, tenant) in [ann, bob, None, ann].into_iter().enumerate() {
            let act = format!("act {number}");
            let sequence = metadata.audit_append(tenant, 5, Actor::Administrator, act, 0).expect("room");
            assert_eq!(sequence, number as u64 + 1);
        }
        let read = |tenant, after, count| -> Vec<u64> {
            let entries = metadata.audit_read(tenant, after, count).expect("rows");
            entries.iter().map(|entry| entry.sequence).collect()
        };
        assert_eq!(read(None, 0, 10), [1, 2, 3, 4]);
        assert_eq!(read(None, 0, 2), [3, 4]);
        assert_eq!(read(None, 1, 2), [2, 3]);
        assert_eq!(read(ann, 0, 10), [1, 4]);
        assert_eq!(read(ann, 1, 10), [4]);
        assert_eq!(read(bob, 2, 10), [0; 0]);
    }

    #[test]
    fn a_tenant_pushes_out_only_its_own() {
        let metadata = metadata();
        let append = |tenant, act: &str| {
            let act = act.to_owned();
            metadata.audit_append(Some(TenantId(tenant)), 5, Actor::Server, act, 0).expect("room")
        };
        let first = append(1, "bystander");
        for _ in 0..AUDIT_ENTRIES_PER_TENANT_MAX + 10 {
            append(2, "noise");
        }
        let entries = metadata.audit_read(None, 0, usize::MAX).expect("rows");
        assert_eq!(entries.len() as u64, AUDIT_ENTRIES_PER_TENANT_MAX + 1);
        assert_eq!((entries[0].sequence, entries[0].act.as_str()), (first, "bystander"));
        assert_eq!(entries[1].sequence, first + 11);
    }
}
