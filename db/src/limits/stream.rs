//! Limits of streams: how many there are and for whom, what they take of the process, and what moves over them.
//!
//! Where the process may open fewer files or have fewer threads there are fewer streams, see
//! [`crate::config::StreamLimits`]. What records and answers take is shared among tenants, see
//! [`crate::server::streams`].

/// Streams at a time, each served by a control thread. Fewer if the process may open fewer files or have fewer threads.
pub const STREAMS_MAX: usize = 2048;

/// Streams of one tenant, so that no tenant takes all of them. A session does without a stream while it moves
/// nothing large.
pub const TENANT_STREAMS_MAX: usize = 512;

/// Streams that tenants together leave to operators: a few commands at a time.
pub const STREAMS_RESERVE: usize = 16;

/// Streams that were closed to make room and whose threads have not ended yet: they do so at once, unless the
/// machine is busy. Beyond them whoever comes waits.
pub const STREAMS_LEAVING_MAX: usize = 32;

/// How long whoever comes waits for those, in milliseconds.
pub const STREAM_ROOM_MS: u64 = 1_000;

/// Descriptors of a stream: its own, and one to close it by.
pub const DESCRIPTORS_PER_STREAM: usize = 2;

/// Descriptors of a worker: its socket, and what it sleeps in and is woken by, with room.
pub const DESCRIPTORS_PER_CORE: usize = 8;

/// Descriptors of everything else: readers of metrics, metadata, pipes of compilers, libraries being opened.
pub const DESCRIPTORS_BESIDE_STREAMS: usize = 128;

/// Threads of everything but streams and workers: housekeeping, readers of metrics, compilers and their boxes.
pub const THREADS_BESIDE_STREAMS: usize = 64;

/// Stack of a control thread, in bytes. Its record buffers are on the heap.
pub const CONTROL_STACK_BYTES: usize = 512 << 10;

/// A fresh connection that has not opened anything after this long is closed, in milliseconds.
pub const OPENING_TIMEOUT_MS: u64 = 10_000;

/// Bytes of the body of an opening: a name, a secret and their lengths, with room.
pub const OPENING_BYTES_MAX: usize = 1024;

/// How often the thread of a silent stream looks whether its session is over, in milliseconds.
pub const STREAM_LOOK_MS: u64 = 1_000;

/// A record once begun has to arrive, and an answer has to be taken, within this time, in milliseconds.
pub const RECORD_TIMEOUT_MS: u64 = 30_000;

/// Bytes of records of tenants that are being read or served on all streams together, of which one tenant may have half
/// of what the others leave: eight of the largest installations of one tenant alone. Records are longer than anything
/// else a stream keeps, and there may be thousands of streams.
pub const RECORDS_BYTES_MAX: usize = 256 << 20;

/// A record up to so many bytes is not counted in that: with as many streams as there are, half as much again.
pub const UNCOUNTED_RECORD_BYTES: usize = 64 << 10;

/// How long a record that has no room waits for others to end, in milliseconds; then its stream is closed.
pub const RECORD_ROOM_MS: u64 = 10_000;

/// Bytes of answers to tenants that are made or not taken yet on all streams together, shared as those of records are.
/// Counted is from when a request is handed to a worker, as the longest that its answer may be: some 120 of one tenant
/// alone, where each client has one under way.
pub const ANSWERS_BYTES_MAX: usize = 256 << 20;

/// Bytes of the longest answer to a data request: a reply or a value, with its head.
pub const ANSWER_BYTES_MAX: usize = wire::limits::REPLY_BYTES_MAX + 64;

/// Bytes of the longest page of an enumeration or a scan: it ends behind the object that fills it, and where keys were
/// made to lie in one place of the index it may have as much as any answer.
pub const PAGE_BYTES_MAX: usize = wire::limits::STREAM_BODY_BYTES_MAX;

/// How long a request whose answer has no room waits for others, in milliseconds, before it is held off.
pub const ANSWER_ROOM_MS: u64 = 1_000;

/// After how long who was held off so is told to come again, in microseconds.
pub const ANSWER_ROOM_RETRY_US: u32 = 250_000;

/// Bytes of answers that the kernel keeps of one stream for a peer that takes none; a long answer passes in pieces of
/// that. Enough for some 100 MB/s at a round trip of a millisecond.
pub const UNTAKEN_BYTES: usize = 128 << 10;

/// How long a stream waits for the answer to a data operation, in milliseconds.
pub const STREAM_ANSWER_TIMEOUT_MS: u64 = 10_000;

const _: () = assert!(TENANT_STREAMS_MAX + STREAMS_RESERVE <= STREAMS_MAX);
const _: () = assert!(STREAMS_MAX * UNCOUNTED_RECORD_BYTES <= RECORDS_BYTES_MAX / 2);
const _: () = assert!(wire::limits::INSTALL_BODY_BYTES_MAX * 8 < RECORDS_BYTES_MAX);
const _: () = assert!(ANSWER_BYTES_MAX * 8 < ANSWERS_BYTES_MAX && ANSWER_BYTES_MAX > UNCOUNTED_RECORD_BYTES);
const _: () = assert!(PAGE_BYTES_MAX * 8 < ANSWERS_BYTES_MAX && PAGE_BYTES_MAX >= ANSWER_BYTES_MAX);
const _: () = assert!(ANSWER_BYTES_MAX >= wire::limits::VALUE_BYTES_MAX + 64);
