//! Rows of the audit log: acts by number, and an index of them by tenant.
//!
//! Rows are appended and read, never changed. Two bounds let the oldest go: one on all rows, one on those of a
//! tenant, so that nobody can push the acts of others out by many of his own.

use redb::{ReadableTable, ReadableTableMetadata, TableDefinition, WriteTransaction};
use wire::{Actor, AuditEntry, Body};

use super::{Metadata, MetadataError, next};
use crate::limits::{AUDIT_ENTRIES_MAX, AUDIT_ENTRIES_PER_TENANT_MAX};
use crate::tenant::TenantId;

/// Tenant or 0, and the act as it travels.
type Row = (u32, &'static [u8]);

const ACTS: TableDefinition<'_, u64, Row> = TableDefinition::new("audit");
const ACTS_OF: TableDefinition<'_, (u32, u64), ()> = TableDefinition::new("audit_of_tenant");

pub(super) fn create(transaction: &WriteTransaction) -> Result<(), MetadataError> {
    transaction.open_table(ACTS)?;
    transaction.open_table(ACTS_OF)?;
    Ok(())
}

impl Metadata {
    /// Appends an act of a tenant, or of nobody's, and gives its number.
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
        self.write(|transaction| {
            let sequence = next(transaction, "audit", 1)?;
            let (mut acts, mut acts_of) = (transaction.open_table(ACTS)?, transaction.open_table(ACTS_OF)?);
            let tenant = tenant.map_or(0, |tenant| tenant.0);
            let entry = AuditEntry { sequence, at_ms, actor, act, outcome };
            acts.insert(sequence, (tenant, entry.encode().as_slice()))?;
            acts_of.insert((tenant, sequence), ())?;
            if tenant != 0 {
                let mut own = acts_of.range((tenant, 0)..=(tenant, u64::MAX))?;
                let oldest = own.next().transpose()?.map(|(key, _)| key.value().1);
                let surplus = own.count() as u64 >= AUDIT_ENTRIES_PER_TENANT_MAX;
                if let Some(oldest) = oldest.filter(|_| surplus) {
                    acts_of.remove((tenant, oldest))?;
                    acts.remove(oldest)?;
                }
            }
            if acts.len()? > AUDIT_ENTRIES_MAX
                && let Some((sequence, row)) = acts.pop_first()?
            {
                acts_of.remove((row.value().0, sequence.value()))?;
            }
            Ok(sequence)
        })
    }

    /// Acts of a tenant, or with `None` of all: the oldest `count` behind number `after`, or, when that is 0,
    /// the newest `count`; oldest first.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn audit_read(
        &self,
        tenant: Option<TenantId>,
        after: u64,
        count: usize,
    ) -> Result<Vec<AuditEntry>, MetadataError> {
        self.read(|transaction| {
            let (acts, acts_of) = (transaction.open_table(ACTS)?, transaction.open_table(ACTS_OF)?);
            let first = after.saturating_add(1);
            let sequences = match tenant {
                Some(TenantId(tenant)) => {
                    let own = acts_of.range((tenant, first)..=(tenant, u64::MAX))?;
                    chosen(own.map(|entry| Ok(entry?.0.value().1)), after == 0, count)?
                }
                None => {
                    let all = acts.range(first..)?;
                    chosen(all.map(|entry| Ok(entry?.0.value())), after == 0, count)?
                }
            };
            let mut entries = Vec::with_capacity(sequences.len());
            for sequence in sequences {
                if let Some(row) = acts.get(sequence)? {
                    let entry = AuditEntry::decode(row.value().1);
                    entries.push(entry.map_err(|status| MetadataError::Storage(status.to_string()))?);
                }
            }
            Ok(entries)
        })
    }
}

/// The first or the last `count` numbers, in order.
fn chosen(
    mut sequences: impl DoubleEndedIterator<Item = Result<u64, redb::StorageError>>,
    newest: bool,
    count: usize,
) -> Result<Vec<u64>, redb::StorageError> {
    if !newest {
        return sequences.by_ref().take(count).collect();
    }
    let mut chosen = sequences.rev().take(count).collect::<Result<Vec<_>, _>>()?;
    chosen.reverse();
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use redb::Builder;
    use redb::backends::InMemoryBackend;
    use wire::Actor;

    use crate::cluster::metadata::Metadata;
    use crate::limits::AUDIT_ENTRIES_PER_TENANT_MAX;
    use crate::tenant::TenantId;

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
