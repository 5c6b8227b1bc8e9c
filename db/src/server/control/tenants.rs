//! Tenants as the control plane looks them up: in the metadata, and in a cluster whose metadata does not answer as this
//! server last saw them.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Control;
use crate::clock::Moment;
use crate::cluster::metadata::{MetadataError, TenantRow};
use crate::cluster::records::RecordsError;
use crate::limits::ETCD_OPENING_MS;
use crate::tenant::TenantId;

/// What is known of a tenant.
#[derive(Debug)]
pub struct KnownTenant {
    /// The tenant, if there is one.
    pub row: Option<TenantRow>,
    /// Why this is no more than what was seen last: who is not in it may well be a tenant by now.
    pub doubt: Option<MetadataError>,
}

impl Control {
    /// The tenant of a name, to open a session of; as it was last seen when the metadata does not answer, or not soon and
    /// what was seen `fits`. What does not fit may have changed since, and whether there is such a tenant is told to nobody
    /// by the time that this takes.
    ///
    /// # Errors
    /// When the metadata cannot be read and nothing may take its place.
    pub fn tenant_named(
        &self,
        name: &str,
        fits: impl FnOnce(Option<&TenantRow>) -> bool,
    ) -> Result<KnownTenant, MetadataError> {
        let patience = Duration::from_millis(ETCD_OPENING_MS);
        match self.known(name, self.metadata.tenant_find_within(name, patience)) {
            Ok(known) if known.doubt.is_none() || fits(known.row.as_ref()) => Ok(known),
            _ => self.known(name, self.metadata.tenant_find(name)),
        }
    }

    /// What is known of a tenant by what the metadata says of it, if it says something.
    fn known(
        &self,
        name: &str,
        found: Result<Option<TenantRow>, MetadataError>,
    ) -> Result<KnownTenant, MetadataError> {
        match found {
            Ok(row) => Ok(KnownTenant { row, doubt: None }),
            Err(error @ MetadataError::Records(RecordsError::Unavailable(_))) => {
                match self.interim.tenant(name, Moment::now()) {
                    Some(row) => Ok(KnownTenant { row, doubt: Some(error) }),
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
