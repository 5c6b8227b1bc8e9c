//! The numbers of all requests: one space for frames, streams, opening and administration.
//!
//! Numbers are never reused. Data requests are 1 to 31 and travel in frames or in streams; opening is 32 to 39 and
//! administration 64 to 127, both only in streams.

/// Gets an empty reply.
pub const PING: u8 = 1;
/// Reads one object.
pub const GET: u8 = 2;
/// Writes one object.
pub const PUT: u8 = 3;
/// Deletes one object.
pub const DELETE: u8 = 4;
/// Adds to the number that an object holds.
pub const INCREMENT: u8 = 5;
/// Reads several objects of one table.
pub const MULTI_GET: u8 = 6;
/// Calls a function of an extension.
pub const INVOKE: u8 = 7;
/// Writes one object with a time to live.
pub const PUT_FOR: u8 = 8;
/// Adds to the floating point number that an object holds.
pub const INCREMENT_FLOAT: u8 = 9;
/// Lists objects of a table.
pub const ENUMERATE: u8 = 10;
/// Checks objects of a table against their checksums.
pub const VERIFY: u8 = 11;
/// Reads objects of an ordered table in the order of their keys.
pub const SCAN: u8 = 12;
/// Reads the tablet map of a table.
pub const TABLETS: u8 = 13;
/// Reads one object without waiting, for clients that read both servers of a migration.
pub const GET_NOW: u8 = 14;

/// Returns whether the request changes nothing, so that it may execute twice. An invocation may write.
#[inline]
pub const fn is_read(opcode: u8) -> bool {
    matches!(opcode, PING | GET | MULTI_GET | ENUMERATE | VERIFY | SCAN | TABLETS | GET_NOW)
}

/// Opens a session of a tenant.
pub const OPEN_SESSION: u8 = 32;
/// Adds a stream to an open session.
pub const ATTACH: u8 = 33;
/// Opens a stream of the administrator.
pub const OPEN_ADMIN: u8 = 34;
/// Opens a stream of another server of the cluster.
pub const OPEN_PEER: u8 = 35;
/// The second record of a peer stream: the proof that follows the challenge.
pub const PROVE_PEER: u8 = 36;

/// Creates a tenant. Administrator only.
pub const TENANT_CREATE: u8 = 64;
/// Lists the tenants. Administrator only.
pub const TENANT_LIST: u8 = 65;
/// Drops a tenant with all its data. Administrator only.
pub const TENANT_DROP: u8 = 66;
/// Reads the limits of a tenant.
pub const TENANT_LIMITS: u8 = 67;
/// Changes limits of a tenant. Administrator only.
pub const TENANT_LIMITS_SET: u8 = 68;
/// Gives a tenant a new secret. Administrator only.
pub const TENANT_ROTATE: u8 = 69;
/// Creates a table.
pub const TABLE_CREATE: u8 = 72;
/// Lists the tables.
pub const TABLE_LIST: u8 = 73;
/// Drops a table with its objects.
pub const TABLE_DROP: u8 = 74;
/// Reads the statistics of a table.
pub const TABLE_STAT: u8 = 75;
/// Finds the id of a table.
pub const TABLE_OPEN: u8 = 76;
/// Creates a table of several tablets.
pub const TABLE_CREATE_SPREAD: u8 = 77;
/// Compiles and installs an extension from source.
pub const EXTENSION_INSTALL: u8 = 80;
/// Lists the extensions.
pub const EXTENSION_LIST: u8 = 81;
/// Describes an extension.
pub const EXTENSION_DESCRIBE: u8 = 82;
/// Removes an extension, or one version of it.
pub const EXTENSION_REMOVE: u8 = 83;
/// Finds the ids that an invocation needs.
pub const EXTENSION_RESOLVE: u8 = 84;
/// Makes an earlier version current, or ends a canary.
pub const EXTENSION_ROLLBACK: u8 = 85;
/// Makes a version current and keeps it across installations, or ends that.
pub const EXTENSION_PIN: u8 = 86;
/// Makes the canary current.
pub const EXTENSION_PROMOTE: u8 = 87;
/// Reads the log of an extension.
pub const EXTENSION_LOGS: u8 = 88;
/// Traces invocations of an extension for a while, and reads the traces.
pub const EXTENSION_TRACES: u8 = 89;
/// Ends the tracing at once.
pub const EXTENSION_TRACES_END: u8 = 90;
/// Reads the counters of the server.
pub const STATISTICS: u8 = 96;
/// Lists the open sessions.
pub const SESSION_LIST: u8 = 97;
/// Ends a session.
pub const SESSION_REVOKE: u8 = 98;
/// Reads the audit log.
pub const AUDIT_READ: u8 = 99;
/// Grants another tenant a right on a table or an extension.
pub const GRANT_CREATE: u8 = 104;
/// Lists the grants of the tenant and to it.
pub const GRANT_LIST: u8 = 105;
/// Revokes a grant.
pub const GRANT_REVOKE: u8 = 106;
/// Lists the servers of the cluster.
pub const SERVER_LIST: u8 = 112;
/// Lists the tablets of all tables.
pub const TABLET_LIST: u8 = 113;
/// Splits a tablet into two.
pub const TABLET_SPLIT: u8 = 114;
/// Merges two tablets into one.
pub const TABLET_MERGE: u8 = 115;
/// Lists the migrations that have not ended, or are not cleared away.
pub const MIGRATION_LIST: u8 = 116;
/// Starts to move hashes of a table to another server.
pub const MIGRATION_BEGIN: u8 = 117;
/// Requests that a migration is undone.
pub const MIGRATION_ABORT: u8 = 118;
/// Reads the present and former servers of the cluster, and its plans.
pub const CLUSTER_STATUS: u8 = 119;
/// Starts to move all tablets of a server to others.
pub const CLUSTER_DRAIN: u8 = 120;
/// Starts to move tablets until all servers own an equal share.
pub const CLUSTER_BALANCE: u8 = 121;
/// Stops a plan.
pub const CLUSTER_STOP: u8 = 122;
/// Gives the tablets of a lost server to others, empty.
pub const CLUSTER_ADOPT: u8 = 123;
/// Reads the progress of the server's migrations.
pub const MIGRATION_PROGRESS: u8 = 124;
