//! Records of the parts that one server has in the log on its disk, in a file of that server.
//!
//! The log names a part by its number, which is never used again: hashes that left a server and return are in a part of
//! another number, so that nothing of the earlier one comes back with them. A part keeps its hashes until others own
//! them; what the log still has of those that left does not count.

use serde::{Deserialize, Serialize};
use wire::TenantId;

use super::encoding::padded;
use super::row::{Row, below, number, tenant};
use super::{Metadata, MetadataError, next_u32};

/// A part in the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartRow {
    /// The number by which the log names it.
    #[serde(skip)]
    pub id: u32,
    /// The tenant of its table.
    #[serde(skip)]
    pub tenant: TenantId,
    /// The number of its table in the cluster.
    pub table: u32,
    /// The first and the last hash that it was made for.
    pub made_for: (u64, u64),
    /// Of those, the ranges that have not left it, in their order.
    pub kept: Vec<(u64, u64)>,
}

impl Row for PartRow {
    const PREFIX: &'static str = "parts/";

    fn key(&self) -> String {
        below(self.tenant) + &padded(self.id)
    }

    fn with_key(self, parts: &[&str]) -> Option<Self> {
        let &[of, id] = parts else { return None };
        Some(Self { id: number(id)?, tenant: tenant(of)?, ..self })
    }
}

impl Metadata {
    /// Records a new part of a table for these hashes, and returns its row.
    ///
    /// # Errors
    /// When it cannot be stored.
    pub fn part_add(
        &self,
        (tenant, table): (TenantId, u32),
        hashes: (u64, u64),
    ) -> Result<PartRow, MetadataError> {
        self.write(|transaction| {
            let id = next_u32(transaction, "part")?;
            let row = PartRow { id, tenant, table, made_for: hashes, kept: vec![hashes] };
            transaction.store(&row)?;
            Ok(row)
        })
    }

    /// Records which hashes parts keep; one that keeps none is forgotten.
    ///
    /// # Errors
    /// When it cannot be stored.
    pub fn parts_keep(&self, rows: &[PartRow]) -> Result<(), MetadataError> {
        self.write(|transaction| {
            for row in rows {
                if row.kept.is_empty() {
                    transaction.remove_row::<PartRow>(&row.key());
                } else {
                    transaction.store(row)?;
                }
            }
            Ok(())
        })
    }

    /// Returns the recorded parts, by tenant and number.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn parts(&self) -> Result<Vec<PartRow>, MetadataError> {
        self.read(|transaction| Ok(transaction.rows("")?))
    }
}
