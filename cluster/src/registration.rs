//! The registration of a server: a record under a lease, renewed while the server runs.
//!
//! It is held until a time on this server's own clock, whatever happens to the network: after that other servers may
//! declare this one gone. A lost lease is replaced by a new one.

use std::time::Duration;

use super::metadata::{Metadata, MetadataError, ServerRow};
use super::records::{HeldLease, RecordsError};
use crate::limits::REGISTRATION_TTL_MS;

/// The registration of one server.
#[derive(Debug)]
pub struct Registration {
    row: ServerRow,
    held: Option<HeldLease>,
}

/// The result of renewing a registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// It is a new registration.
    Anew,
    /// It continues.
    On,
}

impl Registration {
    /// Creates the state of a server that is not registered yet.
    #[must_use]
    pub fn new(row: ServerRow) -> Self {
        Self { row, held: None }
    }

    /// Registers the server with its current view, or renews the registration; says so as soon as the lease is renewed, since what
    /// follows may take as long as that is held.
    ///
    /// # Errors
    /// `AlreadyExists` when a later start of it is registered, as with a copy of its data directory; `NotFound` when others take
    /// this start for ended; or that the metadata does not answer.
    pub fn keep(
        &mut self,
        metadata: &Metadata,
        view: u64,
        renewed: impl FnOnce(HeldLease),
    ) -> Result<Kept, MetadataError> {
        let records = metadata.records();
        self.row.view = view;
        if let Some(held) = self.held {
            match records.lease_keep(held.lease) {
                Ok(kept) => {
                    self.held = Some(kept);
                    renewed(kept);
                    let renewed = metadata.server_renew(&self.row, kept.lease);
                    // Another start has taken it over, or this one is taken for ended.
                    if matches!(renewed, Err(MetadataError::AlreadyExists | MetadataError::NotFound)) {
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

    /// Returns the lease, with the time until which no other server can declare this one gone.
    #[must_use]
    pub fn held(&self) -> Option<HeldLease> {
        self.held
    }

    /// Ends the registration.
    ///
    /// # Errors
    /// That it could not: then it expires.
    pub fn end(&mut self, metadata: &Metadata) -> Result<(), MetadataError> {
        match self.held.take() {
            Some(held) => Ok(metadata.records().lease_revoke(held.lease)?),
            None => Ok(()),
        }
    }
}

/// Ends an unused lease; if that fails, the lease expires.
fn end(metadata: &Metadata, held: HeldLease) {
    let _ = metadata.records().lease_revoke(held.lease);
}
