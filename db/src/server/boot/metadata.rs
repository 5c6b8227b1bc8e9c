//! Opens the metadata where the configuration says that it is.

use super::BootError;
use crate::cluster::metadata::{Metadata, MetadataError};
use crate::cluster::records::Etcd;
use crate::config::{Config, MetadataPlace};

pub(super) fn open(config: &Config) -> Result<Metadata, BootError> {
    let opened = match &config.metadata {
        MetadataPlace::File => Metadata::open(&config.data_directory.join("metadata.redb")),
        MetadataPlace::Etcd(address) => {
            Etcd::open(address).map_err(MetadataError::from).and_then(|etcd| Metadata::over(Box::new(etcd)))
        }
    };
    opened.map_err(|error| BootError::new("cannot open the metadata", error))
}
