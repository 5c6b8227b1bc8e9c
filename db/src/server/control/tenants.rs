//! Lookup of tenants: in the metadata, or as last seen if a cluster's metadata does not answer.

use std::collections::BTreeMap;
use std::time::Duration;

use cluster::metadata::{MetadataError, TenantRow};
use cluster::moment::Moment;
use cluster::records::RecordsError;
use wire::TenantId;

use super::Control;
use crate::limits::ETCD_OPENING_MS;

/// The result of a tenant lookup.
#[derive(Debug)]
pub struct KnownTenant {
    /// The tenant, if it exists.
    pub row: Option<TenantRow>,
    /// The reason why the result is only the last known state; a tenant missing from it may exist by now.
    pub doubt: Option<MetadataError>,
}

impl Control {
    /// Returns the tenant of a name, to open a session. If the metadata does not answer, or does not answer soon and
    /// the last known state `fits`, returns that state. A state that does not fit may have changed since; and the time
    /// that this takes does not reveal whether the tenant exists.
    ///
    /// # Errors
    /// If the metadata cannot be read and no last known state may replace it.
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

    /// Returns the metadata's answer, or the last known state if it is unavailable.
    fn known(
        &self,
        name: &str,
        found: Result<Option<TenantRow>, MetadataError>,
    ) -> Result<KnownTenant, MetadataError> {
        match found {
            Ok(row) => Ok(KnownTenant { row, doubt: None }),
            Err(error @ MetadataError::Records(RecordsError::Unavailable(_))) => {
                match self.lease_cache.tenant(name, Moment::now()) {
                    Some(row) => Ok(KnownTenant { row, doubt: Some(error) }),
                    None => Err(error),
                }
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the names of all tenants; in a cluster as this server last saw them, so that they can be shown without
    /// the metadata.
    ///
    /// # Errors
    /// If the metadata of a server outside a cluster cannot be read.
    pub fn tenant_names(&self) -> Result<BTreeMap<TenantId, String>, MetadataError> {
        if self.metadata.records().is_shared() {
            return Ok(self.lease_cache.names());
        }
        Ok(self.metadata.tenants()?.into_iter().map(|row| (row.id, row.name)).collect())
    }
}
