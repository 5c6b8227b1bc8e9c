//! The numbers of all requests: one space for frames, streams, opening and administration.
//!
//! Numbers are never reused. Data requests are 1 to 31 and travel in frames or in streams; opening is 32 to 39 and
//! administration 64, both only in streams.

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

/// Writes several objects as one, if what was read is unchanged.
pub const COMMIT: u8 = 15;

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
/// Opens a session again that its client may have lost with the server.
pub const RESUME: u8 = 37;
/// Asks how far the start of a server is; answered by one that serves nothing yet, too.
pub const STATE: u8 = 38;
/// Asks for the replies that the log of another server, which is gone, has for a client.
pub const REPLIES: u8 = 39;

/// An administrative request, whose body names it: see the crate `control`.
pub const ADMINISTER: u8 = 64;
