//! Everything that a server serves by, as of one commit, and the watch that says when there is more to it.

use super::{
    ExtensionRow, GrantRow, LimitRow, Metadata, MetadataError, TableRow, TenantRow, extensions, grants,
    limits, tables, tenants,
};
use crate::cluster::records::{Revision, Watch};

/// What all its keys begin with.
const CATALOG: &str = "catalog/";

/// See the file's head.
#[derive(Clone, Debug)]
pub struct Catalog {
    /// The commit.
    pub revision: Revision,
    /// All tenants.
    pub tenants: Vec<TenantRow>,
    /// The limits that somebody has set.
    pub limits: Vec<LimitRow>,
    /// All tables.
    pub tables: Vec<TableRow>,
    /// All extensions.
    pub extensions: Vec<ExtensionRow>,
    /// All grants.
    pub grants: Vec<GrantRow>,
}

impl Metadata {
    /// All of it now.
    ///
    /// # Errors
    /// When the metadata cannot be read.
    pub fn catalog(&self) -> Result<Catalog, MetadataError> {
        self.read(|transaction| {
            let tenants = tenants::all(transaction)?;
            let (limits, tables) = (limits::all(transaction)?, tables::all(transaction)?);
            let (extensions, grants) = (extensions::all(transaction)?, grants::all(transaction)?);
            let revision = transaction.revision();
            Ok(Catalog { revision, tenants, limits, tables, extensions, grants })
        })
    }

    /// The changes of it behind a commit.
    ///
    /// # Errors
    /// When the metadata cannot be watched.
    pub fn catalog_watch(&self, after: Revision) -> Result<Watch, MetadataError> {
        Ok(self.records().watch(CATALOG, after)?)
    }
}
