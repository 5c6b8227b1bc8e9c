//! Every limit of the protocol, with its unit and its reason.
//!
//! A server may promise less when a session opens ([`crate::SessionLimits`]); nobody may send more. The
//! relations between the limits are asserted when the crate is compiled.

/// First two bytes of every frame and of every opening record: "SP", read as a little-endian number.
pub const MAGIC: u16 = 0x5053;
/// The protocol version of this crate, in each frame and negotiated when a stream opens.
pub const PROTOCOL_VERSION: u8 = 1;
/// The suite of a frame in clear; the only one known.
pub const SUITE_CLEAR: u8 = 0;

/// Bytes of a frame header.
pub const FRAME_HEADER_BYTES: usize = 16;
/// Bytes of a group header.
pub const GROUP_HEADER_BYTES: usize = 24;
/// Bytes of a message header.
pub const MESSAGE_HEADER_BYTES: usize = 8;
/// Flag of a request: its answer may come in parts.
pub const TAKES_PARTS: u8 = 1;
/// Flag of a reply: it is a part of one.
pub const IS_PART: u8 = 1;
/// Longest answer that comes in parts: what a socket buffer takes several of, and what is worth sending again as a whole
/// where a frame gets lost.
pub const REPLY_PARTS_BYTES_MAX: usize = 40 << 10;
/// Most parts of an answer.
pub const REPLY_PARTS_MAX: usize = 64;
/// Bytes of a page of a listing that fits [`REPLY_PARTS_BYTES_MAX`], unless its last object is a large one.
pub const LISTING_IN_PARTS_BYTES: usize = 24 << 10;
/// Bytes of the header of a stream record.
pub const RECORD_HEADER_BYTES: usize = 32;

/// Largest frame over IPv4 on an Ethernet of 1,500 bytes: 1,500 less 20 (IP) less 8 (UDP).
pub const FRAME_BYTES_MAX: usize = 1_472;
/// Largest frame over IPv6 on an Ethernet of 1,500 bytes.
pub const FRAME_BYTES_MAX_V6: usize = 1_452;
/// Largest frame anywhere: what a UDP datagram over IPv4 can carry.
pub const FRAME_BYTES_LIMIT: usize = 65_507;

/// Largest key; its length travels in 16 bits.
pub const KEY_BYTES_MAX: usize = 65_535;
/// Largest value: 1 MiB, so that one copy stays under 100 us.
pub const VALUE_BYTES_MAX: usize = 1 << 20;
/// Largest arguments of an invocation.
pub const ARGUMENTS_BYTES_MAX: usize = 1 << 20;
/// Largest reply of an invocation or a multi-get.
pub const REPLY_BYTES_MAX: usize = 1 << 20;
/// Most keys of one multi-get, so that one request stays a bounded piece of work.
pub const MULTI_GET_KEYS_MAX: usize = 1_024;

/// Longest time for which an object may be put, in milliseconds: 139 years, so that no sum with a time of day overflows.
pub const TTL_MS_MAX: u64 = 1 << 42;
/// Most objects of one answer of an enumeration, so that one request stays a bounded piece of work.
pub const ENUMERATE_OBJECTS_MAX: usize = 512;
/// Most bytes of keys and values after which an answer of an enumeration ends: one step of 10 us copies them.
pub const ENUMERATE_BYTES_MAX: usize = 64 << 10;
/// Longest cursor in bytes; what is in it is the server's.
pub const CURSOR_BYTES_MAX: usize = 64;

/// What binds the cursor of a scan to its table and range.
pub const SCAN_SEAL_BYTES: usize = 8;

/// Longest cursor of a scan: the seal of its table and range, and a key.
pub const SCAN_CURSOR_BYTES_MAX: usize = SCAN_SEAL_BYTES + KEY_BYTES_MAX;

/// Most tablets of one table: their map stays below what an answer in parts may have.
pub const TABLETS_PER_TABLE_MAX: usize = 1_024;
/// Most servers of a cluster.
pub const SERVERS_MAX: usize = 256;

/// Bytes that name a machine in one of its starts.
pub const MACHINE_BYTES: usize = 16;

/// Largest body of a stream record, an installation apart: the largest put fits with its key.
pub const STREAM_BODY_BYTES_MAX: usize = 2 << 20;
/// Largest body of an installation, all source files together.
pub const INSTALL_BODY_BYTES_MAX: usize = 16 << 20;
/// Most files of an installed package.
pub const PACKAGE_FILES_MAX: usize = 256;
/// Longest path of a file in a package, in bytes.
pub const PATH_BYTES_MAX: usize = 255;
/// Longest name of a tenant, a table or an extension, in bytes.
pub const NAME_BYTES_MAX: usize = 64;
/// Most limits of a tenant that one request changes: more than there are.
pub const LIMIT_CHANGES_MAX: usize = 64;
/// Longest name of something of another tenant: two names and a slash.
pub const QUALIFIED_NAME_BYTES_MAX: usize = 2 * NAME_BYTES_MAX + 1;
/// Longest secret on the wire, in bytes.
pub const SECRET_BYTES_MAX: usize = 256;
/// Bytes that one server draws for another one to prove itself over.
pub const NONCE_BYTES: usize = 32;
/// Bytes of such a proof.
pub const PROOF_BYTES: usize = 32;
/// Most outstanding requests of a session. Far below 2^31, so the low half of a sequence finds the whole.
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
const _: () = assert!(ENUMERATE_OBJECTS_MAX <= u16::MAX as usize);
const _: () = assert!(ENUMERATE_BYTES_MAX + VALUE_BYTES_MAX + KEY_BYTES_MAX < STREAM_BODY_BYTES_MAX);
const _: () = assert!(CURSOR_BYTES_MAX <= u8::MAX as usize);
