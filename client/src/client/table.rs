//! Tables, statistics, limits, sessions and audit log of the tenant.

use control::{
    AdminRequest, AuditEntry, Durability, SessionEntry, Statistic, TableEntry, TableId, TableOptions,
    TableStatistics, TenantLimitEntry,
};
use wire::Status;

use super::Client;
use crate::Error;

impl Client {
    /// Creates a table; returns its id.
    ///
    /// # Errors
    /// `AlreadyExists`, another refusal, or no reply.
    pub fn table_create(&mut self, name: &str) -> Result<u32, Error> {
        self.table_create_with(name, TableOptions::default())
    }

    /// Creates an ordered table, whose keys can be scanned in order. Returns its id.
    ///
    /// # Errors
    /// As [`Client::table_create`].
    pub fn table_create_ordered(&mut self, name: &str) -> Result<u32, Error> {
        self.table_create_with(name, TableOptions { ordered: true, ..TableOptions::default() })
    }

    /// Creates a table with options; returns its id. For instance, a cache evicts the least used objects beyond
    /// `cache_bytes`. An evicted object is absent as if it had been deleted. In a cluster a table has one tablet, a tagged
    /// one 64.
    ///
    /// # Errors
    /// As [`Client::table_create`]; `OutOfRange` for a cache below 4,096 bytes or beyond the server's memory,
    /// `OverQuota` for one beyond the tenant's `memory_bytes`; `OutOfRange` for a cache, and `Unavailable` on a server
    /// without a disk, with another durability than memory.
    pub fn table_create_with(&mut self, name: &str, options: TableOptions) -> Result<u32, Error> {
        let request = AdminRequest::TableCreate { name, options };
        self.session.administer::<TableId>(&request).map(|table| table.id)
    }

    /// Creates a table of several tablets of equal width; returns its id. Each goes to the server that owns fewest.
    ///
    /// # Errors
    /// As [`Client::table_create_with`]; `Unavailable` for more than one tablet if the server is not in a cluster.
    pub fn table_create_spread(
        &mut self,
        name: &str,
        options: TableOptions,
        tablets: u16,
    ) -> Result<u32, Error> {
        let request = AdminRequest::TableCreateSpread { name, options, tablets };
        self.session.administer::<TableId>(&request).map(|table| table.id)
    }

    /// Changes the durability of a table; all objects of this server have it when this returns, and later writes. Other servers
    /// of a cluster take it on some moments later: [`crate::Owners::table_alter`] waits for them. From or to memory all
    /// objects are rewritten while the table is in use: a gigabyte takes seconds, and
    /// [`TableStatistics::rewritten_bytes`] tells how far it is.
    ///
    /// # Errors
    /// `OutOfRange` for a cache; `Unavailable` on a server without a disk, from or to memory in a cluster, or while it is
    /// under way already; `StorageFull`, `OutOfMemory` or `StorageFailed` if there is no room, and the table is as before;
    /// `UnknownTable`, another refusal, or no reply: then the server may go on with it.
    pub fn table_alter(&mut self, name: &str, durability: Durability) -> Result<(), Error> {
        self.session.administer(&AdminRequest::TableAlter { name, durability })
    }

    /// Looks up a table, or a granted one as `owner/table`. Returns its id.
    ///
    /// # Errors
    /// `UnknownTable`, another refusal, or no reply.
    pub fn table_open(&mut self, name: &str) -> Result<u32, Error> {
        self.session.administer::<TableId>(&AdminRequest::TableOpen { name }).map(|table| table.id)
    }

    /// Looks up a table, or creates it; returns its id.
    ///
    /// # Errors
    /// A refusal, or no reply.
    pub fn table_open_or_create(&mut self, name: &str) -> Result<u32, Error> {
        self.table_open_or_create_with(name, TableOptions::default())
    }

    /// Looks up a table, or creates it with options, which an existing one need not have; returns its id.
    ///
    /// # Errors
    /// A refusal, or no reply.
    pub fn table_open_or_create_with(&mut self, name: &str, options: TableOptions) -> Result<u32, Error> {
        match self.table_open(name) {
            Err(Error::Refused { status: Status::UnknownTable, .. }) => {}
            opened => return opened,
        }
        match self.table_create_with(name, options) {
            // Another client created it first.
            Err(Error::Refused { status: Status::AlreadyExists, .. }) => self.table_open(name),
            created => created,
        }
    }

    /// Drops a table with its objects.
    ///
    /// # Errors
    /// `UnknownTable`, another refusal, or no reply.
    pub fn table_drop(&mut self, name: &str) -> Result<(), Error> {
        self.session.administer(&AdminRequest::TableDrop { name })
    }

    /// Lists the tables with the connected server's part of each; see [`Client::table_list_counted`].
    ///
    /// # Errors
    /// A refusal, or no reply.
    pub fn table_list(&mut self) -> Result<Vec<TableEntry>, Error> {
        self.session.administer(&AdminRequest::TableList)
    }

    /// Counts the connected server's part of a table; see [`Client::table_stat_counted`].
    ///
    /// # Errors
    /// `UnknownTable`, another refusal, or no reply.
    pub fn table_stat(&mut self, name: &str) -> Result<TableStatistics, Error> {
        self.session.administer(&AdminRequest::TableStat { name })
    }

    /// Reads the counters that the tenant may see.
    ///
    /// # Errors
    /// A refusal, or no reply.
    pub fn statistics(&mut self) -> Result<Vec<Statistic>, Error> {
        self.session.administer(&AdminRequest::Statistics { tenant: None })
    }

    /// Reads the limits of the tenant.
    ///
    /// # Errors
    /// A refusal, or no reply.
    pub fn limits(&mut self) -> Result<Vec<TenantLimitEntry>, Error> {
        self.session.administer(&AdminRequest::TenantLimits { name: None })
    }

    /// Lists the tenant's open sessions.
    ///
    /// # Errors
    /// A refusal, or no reply.
    pub fn session_list(&mut self) -> Result<Vec<SessionEntry>, Error> {
        self.session.administer(&AdminRequest::SessionList)
    }

    /// Ends a session of the tenant.
    ///
    /// # Errors
    /// A refusal, or no reply.
    pub fn session_revoke(&mut self, client_id: u64) -> Result<(), Error> {
        self.session.administer(&AdminRequest::SessionRevoke { client_id })
    }

    /// Reads the tenant's audit log, oldest entry first. Returns the oldest entries after entry `after`, at most
    /// `count`; with `after` 0 the newest.
    ///
    /// # Errors
    /// A refusal, or no reply.
    pub fn audit(&mut self, after: u64, count: u32) -> Result<Vec<AuditEntry>, Error> {
        self.session.administer(&AdminRequest::AuditRead { after, count })
    }
}
