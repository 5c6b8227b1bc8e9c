//! The registration of a server: a record under a lease, kept for as long as the server runs.
//!
//! It is held until a moment of this server's own clock, whatever happens to the network: from then on other servers
//! may believe that this one is gone. A lease that was lost is followed by another one.

use std::time::Duration;

use super::metadata::{Metadata, MetadataError, ServerRow};
use super::records::{HeldLease, RecordsError};
use crate::limits::REGISTRATION_TTL_MS;

/// See the file's head.
#[derive(Debug)]
pub struct Registration {
    row: ServerRow,
    held: Option<HeldLease>,
}

/// What keeping a registration came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// It is another one than before.
    Anew,
    /// It goes on.
    On,
}

impl Registration {
    /// Of a server that is not registered yet.
    #[must_use]
    pub fn new(row: ServerRow) -> Self {
        Self { row, held: None }
    }

    /// Registers the server under this view of its, or keeps it registered.
    ///
    /// # Errors
    /// `AlreadyExists` when a later start of it is registered, as with a copy of its data directory; or that the metadata
    /// does not answer.
    pub fn keep(&mut self, metadata: &Metadata, view: u64) -> Result<Kept, MetadataError> {
        let records = metadata.records();
        self.row.view = view;
        if let Some(held) = self.held {
            match records.lease_keep(held.lease) {
                Ok(kept) => {
                    self.held = Some(kept);
                    let renewed = metadata.server_renew(&self.row, kept.lease);
                    if renewed == Err(MetadataError::AlreadyExists) {
                        self.held = None;
                        end(metadata, kept);
                    }
                    return renewed.map(|()| Kept::On);
                }
                Err(RecordsError::LeaseGone) => self.held = None,
                Err(error) => return Err(error.into()),
            }
        }
        let held = records.lease_grant(Duration::from_millis(REGISTRATION_TTL_MS))?;
        if let Err(error) = metadata.server_register(&self.row, held.lease) {
            end(metadata, held);
            return Err(error);
        }
        self.held = Some(held);
        Ok(Kept::Anew)
    }

    /// The lease, and until when nobody can believe that this server is gone.
    #[must_use]
    pub fn held(&self) -> Option<HeldLease> {
        self.held
    }

    /// Takes the registration back.
    ///
    /// # Errors
    /// That it could not: then it ends by itself.
    pub fn end(&mut self, metadata: &Metadata) -> Result<(), MetadataError> {
        match self.held.take() {
            Some(held) => Ok(metadata.records().lease_revoke(held.lease)?),
            None => Ok(()),
        }
    }
}

/// Ends a lease of which nothing is wanted; what cannot be ended ends by itself.
fn end(metadata: &Metadata, held: HeldLease) {
    let _ = metadata.records().lease_revoke(held.lease);
}
