//! Opens the configured metadata, and reads the cluster's data that a server needs.

use std::ops::Range;
use std::sync::Arc;

use cluster::metadata::{Metadata, MetadataError, ServerRun};
use cluster::peer::ClusterSecret;

use super::BootError;
use crate::config::{Config, MetadataPlace};
use crate::etcd::Etcd;
use crate::server::migrations::Migrations;
use crate::server::siblings::SiblingWorkers;
use crate::tablet::PartsMade;

pub(super) fn open(config: &Config) -> Result<Metadata, BootError> {
    let opened = match &config.metadata {
        MetadataPlace::File => Metadata::open(&config.data_directory.join("metadata.redb")),
        MetadataPlace::Etcd(address) => {
            Etcd::open(address).map_err(MetadataError::from).and_then(|etcd| Metadata::over(Box::new(etcd)))
        }
    };
    opened.map_err(|error| BootError::new("cannot open the metadata", error))
}

/// Creates the state of migrations, of which none has begun, for a server in a cluster.
pub(super) fn migrations(
    own: Option<ServerRun>,
    metadata: &Metadata,
    siblings: &Arc<SiblingWorkers>,
    workers: usize,
) -> Result<Option<Migrations>, BootError> {
    let Some(own) = own else { return Ok(None) };
    let secret = metadata
        .cluster_secret()
        .map_err(|error| BootError::new("cannot read the cluster's secret", error))?;
    Ok(Some(Migrations::new(own.server, ClusterSecret(secret), Arc::clone(siblings), workers)))
}

/// Reserves numbers for the first clients, and versions for the parts of tables that this server makes.
pub(super) fn reserve(metadata: &Metadata) -> Result<(Range<u64>, PartsMade), BootError> {
    let failed = |error| BootError::new("cannot write the metadata", error);
    let client_ids = metadata.reserve_client_ids().map_err(failed)?;
    Ok((client_ids, PartsMade::above(metadata.reserve_versions().map_err(failed)?)))
}
