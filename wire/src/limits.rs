//! Every limit of the protocol, with its unit and its reason.
//!
//! A server may promise less when a session opens ([`crate::SessionLimits`]); no peer may send more. The relations
//! between the limits are asserted at compile time.

/// First two bytes of every frame and of every opening record: "SP", read as a little-endian number.
pub const MAGIC: u16 = 0x5053;
/// The version of frames, and the oldest version of openings.
pub const PROTOCOL_VERSION: u8 = 1;
/// The newest version of openings: from 2 on a session has a proof, by which its client resumes it.
pub const OPENING_VERSION: u8 = 2;
/// The suite of an unencrypted frame; the only one known.
pub const SUITE_CLEAR: u8 = 0;

/// Bytes of a frame header.
pub const FRAME_HEADER_BYTES: usize = 16;
/// Bytes of a group header.
pub const GROUP_HEADER_BYTES: usize = 24;
/// Bytes of a message header.
pub const MESSAGE_HEADER_BYTES: usize = 8;
/// Flag of a request: its reply may come in parts.
pub const TAKES_PARTS: u8 = 1;
/// Flag of a request: see [`crate::RequestDurability::Written`].
pub const ASKS_WRITTEN: u8 = 2;
/// Flag of a request: see [`crate::RequestDurability::Synced`].
pub const ASKS_SYNCED: u8 = 4;
/// Flag of an invocation: its client can run the function itself, so it may be answered with [`crate::Status::PushedBack`].
pub const MAY_PUSH_BACK: u8 = 8;
/// Longest body of [`crate::Status::PushedBack`]: it fits a frame.
pub const PUSHED_BACK_BYTES_MAX: usize = 1_024;
/// Flag of a reply: it is a part.
pub const IS_PART: u8 = 1;
/// Longest reply that comes in parts. A socket buffer takes several of this size, and repeating the whole after a
/// lost frame is acceptable.
pub const REPLY_PARTS_BYTES_MAX: usize = 40 << 10;
/// Maximum parts of a reply.
pub const REPLY_PARTS_MAX: usize = 64;
/// Bytes of a page of a listing that fits [`REPLY_PARTS_BYTES_MAX`], unless its last object is large.
pub const LISTING_IN_PARTS_BYTES: usize = 24 << 10;
/// Bytes of the header of a stream record.
pub const RECORD_HEADER_BYTES: usize = 32;

/// Largest frame over IPv4 on an Ethernet of 1,500 bytes: 1,500 less 20 (IP) less 8 (UDP).
pub const FRAME_BYTES_MAX: usize = 1_472;
/// Largest frame over IPv6 on an Ethernet of 1,500 bytes.
pub const FRAME_BYTES_MAX_V6: usize = 1_452;
/// Largest frame anywhere: the maximum UDP payload over IPv4.
pub const FRAME_BYTES_LIMIT: usize = 65_507;

/// Largest key; its length travels in 16 bits.
pub const KEY_BYTES_MAX: usize = 65_535;
/// Largest value: 1 MiB, so that one copy stays under 100 us.
pub const VALUE_BYTES_MAX: usize = 1 << 20;
/// Largest arguments of an invocation.
pub const ARGUMENTS_BYTES_MAX: usize = 1 << 20;
/// Largest reply of an invocation or a multi-get.
pub const REPLY_BYTES_MAX: usize = 1 << 20;
/// Maximum keys of one multi-get, so that one request stays a bounded piece of work.
pub const MULTI_GET_KEYS_MAX: usize = 1_024;

/// Maximum objects that one commit names as read: as many as a function may read that writes.
pub const COMMIT_READS_MAX: usize = 3_072;
/// Maximum ranges that one commit names as scanned. Each is walked past the reads that it names and the commit's own writes: ranges
/// times writes are at most [`COMMIT_WRITES_MAX`].
pub const COMMIT_RANGES_MAX: usize = 16;
/// Maximum writes of one commit: as many as those of a function.
pub const COMMIT_WRITES_MAX: usize = 1_024;

/// Longest time to live of an object, in milliseconds: 139 years, so that no sum with a time of day overflows.
pub const TTL_MS_MAX: u64 = 1 << 42;
/// Maximum objects of one reply of an enumeration, so that one request stays a bounded piece of work.
pub const ENUMERATE_OBJECTS_MAX: usize = 512;
/// Bytes of keys and values after which a reply of an enumeration ends: one step of 10 us copies them.
pub const ENUMERATE_BYTES_MAX: usize = 64 << 10;
/// Longest cursor in bytes; the server defines its content.
pub const CURSOR_BYTES_MAX: usize = 64;

/// Bytes that bind the cursor of a scan to its table and range.
pub const SCAN_SEAL_BYTES: usize = 8;

/// Longest cursor of a scan: the seal of its table and range, and a key.
pub const SCAN_CURSOR_BYTES_MAX: usize = SCAN_SEAL_BYTES + KEY_BYTES_MAX;

/// Maximum tablets of one table: their map stays below the limit of a reply in parts.
pub const TABLETS_PER_TABLE_MAX: usize = 1_024;
/// Maximum servers of a cluster.
pub const SERVERS_MAX: usize = 256;

/// Bytes that identify one boot of a machine.
pub const MACHINE_BYTES: usize = 16;

/// Largest body of a stream record, except an installation: the largest put fits with its key.
pub const STREAM_BODY_BYTES_MAX: usize = 2 << 20;
/// Largest body of an installation, all source files together.
pub const INSTALL_BODY_BYTES_MAX: usize = 16 << 20;
/// Maximum files of an installed package.
pub const PACKAGE_FILES_MAX: usize = 256;
/// Longest path of a file in a package, in bytes.
pub const PATH_BYTES_MAX: usize = 255;
/// Longest name of a tenant, a table or an extension, in bytes.
pub const NAME_BYTES_MAX: usize = 64;
/// Maximum limits of a tenant that one request changes: more than exist.
pub const LIMIT_CHANGES_MAX: usize = 64;
/// Longest name of another tenant's table or extension: two names and a slash.
pub const QUALIFIED_NAME_BYTES_MAX: usize = 2 * NAME_BYTES_MAX + 1;
/// Time after which a server ends a session without a stream and without frames, in milliseconds. A client relies on it:
/// what it sent less long ago has not been forgotten with the session.
pub const SESSION_IDLE_MS: u64 = 60_000;

/// Longest secret on the wire, in bytes.
pub const SECRET_BYTES_MAX: usize = 256;
/// Bytes of the challenge that one server sends to another.
pub const NONCE_BYTES: usize = 32;
/// Bytes of the proof that answers a challenge, and of a session's proof.
pub const PROOF_BYTES: usize = 32;
/// Maximum outstanding requests of a session. Far below 2^31, so the low half of a sequence determines the whole.
pub const CREDITS_MAX: u16 = 32_768;

const _: () = assert!(REPLY_PARTS_BYTES_MAX <= REPLY_PARTS_MAX * (FRAME_BYTES_MAX_V6 / 2));
const _: () = assert!(LISTING_IN_PARTS_BYTES + 24 * ENUMERATE_OBJECTS_MAX <= REPLY_PARTS_BYTES_MAX);
const _: () = assert!(FRAME_BYTES_MAX_V6 < FRAME_BYTES_MAX && FRAME_BYTES_MAX < FRAME_BYTES_LIMIT);
const _: () = assert!(FRAME_BYTES_LIMIT <= u16::MAX as usize);
const _: () = assert!(KEY_BYTES_MAX <= u16::MAX as usize);
const _: () = assert!(STREAM_BODY_BYTES_MAX >= VALUE_BYTES_MAX + KEY_BYTES_MAX + 64);
const _: () = assert!(STREAM_BODY_BYTES_MAX >= ARGUMENTS_BYTES_MAX + KEY_BYTES_MAX + 64);
const _: () = assert!(STREAM_BODY_BYTES_MAX >= REPLY_BYTES_MAX + 64);
const _: () = assert!(INSTALL_BODY_BYTES_MAX <= u32::MAX as usize);
const _: () = assert!(MULTI_GET_KEYS_MAX <= u16::MAX as usize);
const _: () = assert!(COMMIT_READS_MAX <= u16::MAX as usize && COMMIT_WRITES_MAX <= COMMIT_READS_MAX);
const _: () = assert!(ENUMERATE_OBJECTS_MAX <= u16::MAX as usize);
const _: () = assert!(ENUMERATE_BYTES_MAX + VALUE_BYTES_MAX + KEY_BYTES_MAX < STREAM_BODY_BYTES_MAX);
const _: () = assert!(CURSOR_BYTES_MAX <= u8::MAX as usize);
