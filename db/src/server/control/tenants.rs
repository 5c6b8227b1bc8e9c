//! Tenants as the control plane looks them up: in the metadata, and in a cluster whose metadata does not answer as this
//! server last saw them.

use std::collections::BTreeMap;

use super::Control;
use crate::clock::Moment;
use crate::cluster::metadata::{MetadataError, TenantRow};
use crate::cluster::records::RecordsError;
use crate::tenant::TenantId;

/// What is known of a tenant.
#[derive(Debug)]
pub struct Known {
    /// The tenant, if there is one.
    pub row: Option<TenantRow>,
    /// Why this is no more than what was seen last: who is not in it may well be a tenant by now.
    pub doubt: Option<MetadataError>,
}

impl Control {
    /// The tenant of a name, to open a session of; as it was last seen when the metadata does not answer.
    ///
    /// # Errors
    /// When the metadata cannot be read and nothing may take its place.
    pub fn tenant_named(&self, name: &str) -> Result<Known, MetadataError> {
        match self.metadata.tenant_find(name) {
            Ok(row) => Ok(Known { row, doubt: None }),
            Err(error @ MetadataError::Records(RecordsError::Unavailable(_))) => {
                match self.interim.tenant(name, Moment::now()) {
                    Some(row) => Ok(Known { row, doubt: Some(error) }),
                    None => Err(error),
                }
            }
            Err(error) => Err(error),
        }
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
