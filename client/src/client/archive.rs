//! Archives: reading the tenant's own, and storing objects of one.

use control::{AdminRequest, ArchiveBegun, ArchivePiece, Restored};

use super::Client;
use crate::Error;
use crate::archive::{self, ArchivedSource};

impl Client {
    /// Begins an archive of the tenant as of one cut of the log, and ends an earlier one of that tenant.
    ///
    /// # Errors
    /// `Unavailable` without a disk, `LimitExceeded` if the server reads as many as it may, `NotPermitted`, another
    /// refusal, or no reply.
    pub fn archive_begin(&mut self) -> Result<ArchiveBegun, Error> {
        self.session.administer(&AdminRequest::ArchiveBegin { tenant: None })
    }

    /// Reads a piece of an archive, all keys from piece 0 on or all objects: [`crate::archived_keys`],
    /// [`crate::archived_objects`].
    ///
    /// # Errors
    /// `NotFound` if the archive has ended, `StorageFull` if the server's disk needed the room, `StorageFailed` if its
    /// log cannot be read, another refusal, or no reply.
    pub fn archive_read(&mut self, id: u64, piece: u32, keys_only: bool) -> Result<ArchivePiece, Error> {
        self.session.administer(&AdminRequest::ArchiveRead { id, keys_only, piece, check: false })
    }

    /// Reads a piece of keys to check the log on the server's disk: what is damaged is left out and counted, and the hash of
    /// a record is that of its key ([`crate::key_hash`]).
    ///
    /// # Errors
    /// As [`Client::archive_read`].
    pub fn archive_check(&mut self, id: u64, piece: u32) -> Result<ArchivePiece, Error> {
        self.session.administer(&AdminRequest::ArchiveRead { id, keys_only: true, piece, check: true })
    }

    /// Reads the source of a version of an extension: paths and bytes.
    ///
    /// # Errors
    /// `NotFound` if it was removed since, another refusal, or no reply.
    pub fn archive_source(
        &mut self,
        id: u64,
        extension: &str,
        version: u32,
    ) -> Result<ArchivedSource, Error> {
        archive::source(|request| self.session.administer(request), (id, extension, version))
    }

    /// Ends an archive.
    ///
    /// # Errors
    /// `NotFound` if it has ended, another refusal, or no reply.
    pub fn archive_end(&mut self, id: u64) -> Result<(), Error> {
        self.session.administer(&AdminRequest::ArchiveEnd { id })
    }

    /// Stores objects of an archive in a table, with their versions and expiry. Entries lie one after the other, at most
    /// 16 MiB in all. What the table has in a version as new is left, and the request can be repeated.
    ///
    /// # Errors
    /// `Malformed` if an entry is damaged or is none, `Overflow` for a version above 2^53, what refuses a put, another
    /// refusal, or no reply. Objects before the refused one are stored.
    pub fn archive_restore(&mut self, table: &str, objects: &[u8]) -> Result<Restored, Error> {
        self.session.administer(&AdminRequest::ArchiveRestore { table, objects })
    }
}
