//! A grant in the control plane: its record, with the names of the two tenants.

use std::sync::Arc;

use cluster::metadata::GrantRow;
use control::{Right, Subject};
use wire::TenantId;

use crate::tablet::TableEntry;

/// A grant in force.
#[derive(Clone, Debug)]
pub struct Grant {
    /// The stored record.
    pub row: GrantRow,
    /// Name of the owner.
    pub owner: String,
    /// Name of the tenant that may use it.
    pub to: String,
}

impl Grant {
    /// Returns the other tenant's name for it.
    #[must_use]
    pub fn called(&self) -> String {
        format!("{}/{}", self.owner, self.row.name)
    }

    /// Returns the other tenant's entry of the granted table.
    #[must_use]
    pub fn entry_of(&self, table: &TableEntry) -> TableEntry {
        TableEntry {
            id: self.row.id,
            tenant: self.row.to,
            name: self.called().into(),
            writable: self.row.right == Right::Write,
            durability: table.durability,
            owner: Arc::clone(&table.owner),
            parts: table.parts.clone(),
            map: table.map.clone(),
        }
    }

    /// Returns true if it grants this subject of this owner.
    #[must_use]
    pub fn is(&self, owner: TenantId, subject: Subject, name: &str) -> bool {
        self.row.owner == owner && self.row.right.subject() == subject && self.row.name == name
    }
}
