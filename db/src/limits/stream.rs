//! Limits of streams: their number and holders, their use of process resources, and their traffic.
//!
//! If the process may open fewer files or have fewer threads, there are fewer streams, see
//! [`crate::config::StreamLimits`]. Tenants share the memory of records and answers, see [`crate::server::streams`].

/// Concurrent streams, each served by a control thread. Fewer if the process may open fewer files or have fewer
/// threads.
pub const STREAMS_MAX: usize = 2048;

/// Streams of one tenant, so that no tenant takes all of them. A session needs no stream while it moves nothing large.
pub const TENANT_STREAMS_MAX: usize = 512;

/// Streams that tenants together leave to operators: a few commands at a time.
pub const STREAMS_RESERVE: usize = 16;

/// Streams that were closed to make room and whose threads have not ended yet: they end at once, unless the machine is
/// busy. Beyond this number newcomers wait.
pub const STREAMS_LEAVING_MAX: usize = 32;

/// Time that a newcomer waits for those, in milliseconds.
pub const STREAM_ROOM_MS: u64 = 1_000;

/// Descriptors of a stream: its own, and one for closing it.
pub const DESCRIPTORS_PER_STREAM: usize = 2;

/// Descriptors of a worker: its socket, and those for sleeping and waking, with room.
pub const DESCRIPTORS_PER_CORE: usize = 8;

/// Descriptors of everything else: readers of metrics, metadata, pipes of compilers, libraries being opened.
pub const DESCRIPTORS_BESIDE_STREAMS: usize = 128;

/// Threads of everything but streams and workers: housekeeping, readers of metrics, compilers and their boxes.
pub const THREADS_BESIDE_STREAMS: usize = 64;

/// Stack of a control thread, in bytes. Its record buffers are on the heap.
pub const CONTROL_STACK_BYTES: usize = 512 << 10;

/// Time after which a new connection that has opened nothing is closed, in milliseconds.
pub const OPENING_TIMEOUT_MS: u64 = 10_000;

/// Bytes of the body of an opening: a name, a secret and their lengths, with room.
pub const OPENING_BYTES_MAX: usize = 1024;

/// Interval at which the thread of a silent stream checks whether its session has ended, in milliseconds.
pub const STREAM_LOOK_MS: u64 = 1_000;

/// Time in which a begun record must arrive, and in which a peer must read an answer, in milliseconds.
pub const RECORD_TIMEOUT_MS: u64 = 30_000;

/// Bytes of tenants' records that are being read or served on all streams together, of which one tenant may have half
/// of what the others leave: eight of the largest installations of one tenant alone. Records are longer than anything
/// else that a stream keeps, and there may be thousands of streams.
pub const RECORDS_BYTES_MAX: usize = 256 << 20;

/// Bytes up to which a record is not counted in that: with the maximum number of streams, half as much again.
pub const UNCOUNTED_RECORD_BYTES: usize = 64 << 10;

/// Time that a record without room waits for others to end, in milliseconds; then its stream is closed.
pub const RECORD_ROOM_MS: u64 = 10_000;

/// Bytes of answers to tenants that are being produced or not read yet on all streams together, shared like those of
/// records. An answer counts from the hand-over of its request to a worker, with its maximum size: some 120 of one
/// tenant alone, if each client has one under way.
pub const ANSWERS_BYTES_MAX: usize = 256 << 20;

/// Bytes of the longest answer to a data request: a reply or a value, with its head.
pub const ANSWER_BYTES_MAX: usize = wire::limits::REPLY_BYTES_MAX + 64;

/// Bytes of the longest page of an enumeration or a scan: it ends after the object that fills it, and if keys were
/// crafted to lie in one place of the index it may be as long as any answer.
pub const PAGE_BYTES_MAX: usize = wire::limits::STREAM_BODY_BYTES_MAX;

/// Time that a request whose answer has no room waits for others before it gets `Throttled`, in milliseconds.
pub const ANSWER_ROOM_MS: u64 = 1_000;

/// Delay in that `Throttled` answer, in microseconds.
pub const ANSWER_ROOM_RETRY_US: u32 = 250_000;

/// Bytes of answers that the kernel keeps of one stream whose peer reads none; a long answer passes in pieces of that
/// size. Enough for some 100 MB/s at a round trip of a millisecond.
pub const UNTAKEN_BYTES: usize = 128 << 10;

/// Time that a stream waits for the answer to a data operation, in milliseconds.
pub const STREAM_ANSWER_TIMEOUT_MS: u64 = 10_000;

const _: () = assert!(TENANT_STREAMS_MAX + STREAMS_RESERVE <= STREAMS_MAX);
const _: () = assert!(STREAMS_MAX * UNCOUNTED_RECORD_BYTES <= RECORDS_BYTES_MAX / 2);
const _: () = assert!(wire::limits::INSTALL_BODY_BYTES_MAX * 8 < RECORDS_BYTES_MAX);
const _: () = assert!(ANSWER_BYTES_MAX * 8 < ANSWERS_BYTES_MAX && ANSWER_BYTES_MAX > UNCOUNTED_RECORD_BYTES);
const _: () = assert!(PAGE_BYTES_MAX * 8 < ANSWERS_BYTES_MAX && PAGE_BYTES_MAX >= ANSWER_BYTES_MAX);
const _: () = assert!(ANSWER_BYTES_MAX >= wire::limits::VALUE_BYTES_MAX + 64);
