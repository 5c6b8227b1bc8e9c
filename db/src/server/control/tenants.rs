//! Tenants as the control plane looks them up: in the metadata, and in a cluster whose metadata does not answer as this
//! server last saw them.

use std::collections::BTreeMap;
use std::time::Instant;

use super::Control;
use crate::cluster::metadata::{MetadataError, TenantRow};
use crate::cluster::records::RecordsError;
use crate::tenant::TenantId;

impl Control {
    /// The tenant of a name, to open a session of; as it was last seen when the metadata does not answer.
    ///
    /// # Errors
    /// When the metadata cannot be read and nothing may take its place.
    pub fn tenant_named(&self, name: &str) -> Result<Option<TenantRow>, MetadataError> {
        let found = self.metadata.tenant_find(name);
        if let Err(MetadataError::Records(RecordsError::Unavailable(_))) = found {
            return self.interim.tenant(name, Instant::now()).map_or(found, Ok);
        }
        found
    }

    /// The names of all tenants; in a cluster as this server last saw them, so that they are shown whatever becomes of
    /// the metadata.
    ///
    /// # Errors
    /// When the metadata of a server that is alone cannot be read.
    pub fn tenant_names(&self) -> Result<BTreeMap<TenantId, String>, MetadataError> {
        if self.metadata.records().is_shared() {
            return Ok(self.interim.names());
        }
        Ok(self.metadata.tenants()?.into_iter().map(|row| (row.id, row.name)).collect())
    }
}
