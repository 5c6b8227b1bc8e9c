//! All limits of the server, with unit and reason.
//!
//! Limits of message sizes are defined in `wire`, limits of objects in `store`, limits of the cluster's rules in
//! `cluster`. This module defines the limits of the
//! process around them: sessions, tables, connections, lengths of names, bytes of exactly-once replies. Relations
//! between limits are asserted at compile time.
//!
//! A request that reaches a limit gets a typed status that names it; no limit is a reason to panic.

mod durability;
mod extension;
mod membership;
mod migration;

pub use durability::*;
pub use extension::*;
pub use membership::*;
pub use migration::*;

/// Maximum worker cores of one server: the opening answer lists their ports in one record.
pub const CORES_MAX: usize = 64;

/// Minimum memory of a store, whatever the size of its segments: no tenant gets far with less.
pub const MEMORY_BYTES_MIN: usize = 8 << 20;

/// Slice of a worker that shares its CPU, in microseconds: the shortest that the kernel accepts, because a waiting
/// thread's requests wait too.
pub const KERNEL_SLICE_US: u64 = 100;

/// Requests of one prefetch round: enough misses in flight to hide memory latency, few enough to stay in the
/// first-level cache meanwhile.
pub const CHUNK_REQUESTS: usize = 32;

/// Reply frames that a worker has under construction: the answers to a full batch, with room.
pub const OUTGOING_FRAMES: usize = 64;

/// Time that answers of invocations wait for more of their kind while more are being computed: two turns, in which
/// functions of some microseconds fill a frame.
pub const GATHER_US: u64 = 100;

/// Local clients that attach to one core over shared memory: the worker polls each in every round, for some
/// nanoseconds.
pub const CHANNELS_PER_CORE: usize = 64;

/// Descriptors of a core's channels, a socket and a bell each, with room for clients that are attaching.
pub const DESCRIPTORS_OF_CHANNELS: usize = (CHANNELS_PER_CORE + 32) * 2;

/// Shared-memory channels of one user of this host on all cores together: 772 KiB each, leaving room for other users
/// on each core.
pub const CHANNELS_PER_USER: usize = 48;

/// Records of the exactly-once ring of one session; a power of two. The distance between the oldest
/// request that is not acknowledged and the newest one is always below it.
pub const WINDOW_RECORDS: usize = 1024;

/// Outstanding requests of a session: as many as a client may send without an answer. 256 requests of a full frame
/// each stay below the default socket buffers.
pub const SESSION_CREDITS: u16 = 256;

/// Messages of one session in one batch that are served: twice its credits, since copies arrive when a server was
/// delayed. The same number again gets `Retry`; the rest is dropped.
pub const SESSION_BATCH_MESSAGES: u64 = 2 * SESSION_CREDITS as u64;

/// Messages of one tenant in one batch that are served while other tenants are active: the others wait for some 200 us
/// of native requests.
pub const TENANT_BATCH_MESSAGES: u64 = 2_048;

/// Time for which a worker remembers that it serves more than one tenant, in microseconds.
pub const CROWDED_US: u64 = 100_000;

/// Reply bytes of one invocation that are kept for a retransmission. Native replies are kept inline.
pub const STORED_REPLY_BYTES_MAX: usize = wire::limits::REPLY_BYTES_MAX;

/// Reply bytes of all invocations of one session that are kept for retransmissions. A session above it gets `Retry`
/// until it acknowledges.
pub const SESSION_REPLY_BYTES_MAX: usize = 4 << 20;

/// Maximum reply bytes kept of one session, including invocations that were running when it exceeded
/// [`SESSION_REPLY_BYTES_MAX`]. A copy of a request whose reply was not kept is told so.
pub const SESSION_REPLY_BYTES_STORED_MAX: usize = 2 * SESSION_REPLY_BYTES_MAX;

/// A stored reply keeps its buffer for the next use of its record up to this capacity, in bytes.
pub const STORED_REPLY_BYTES_KEPT: usize = 2048;

/// `Retry` delay of a request whose exactly-once record is still in use, in microseconds.
pub const RETRY_BUSY_US: u32 = 500;

/// `Retry` delay of a request for a table or extension of which a server of a cluster may not have heard yet, in
/// microseconds: that takes some milliseconds.
pub const RETRY_UNHEARD_US: u32 = 2_000;

/// `Retry` delay of a commit with thousands of expired keys in its ranges, in microseconds: background work removes these, and looks for
/// them some times a second.
pub const RETRY_EXPIRED_US: u32 = 20_000;

/// `Retry` delay of a request at a worker that has reached a view before others, in microseconds: a few rounds.
pub const RETRY_PASSING_US: u32 = 100;

/// Sessions of one server. A session costs about 40 KiB, nearly all of it the exactly-once ring.
pub const SESSIONS_MAX: usize = 16_384;

/// Sessions of one tenant, so that one tenant cannot take all of them.
pub const SESSIONS_PER_TENANT_MAX: usize = 1024;

/// Time after a start in which clients of earlier runs may resume their sessions, in milliseconds: longer than any of them
/// relies on. Later than that, replies that the log holds for them may be forgotten.
pub const RESUME_MS: u64 = wire::limits::SESSION_IDLE_MS;

/// Time after a start for which replies are kept for clients of earlier runs, in milliseconds: whoever resumes finds them.
pub const RECOVERED_REPLIES_MS: u64 = 2 * RESUME_MS;

/// Default weight of a tenant.
pub const TENANT_WEIGHT_DEFAULT: u64 = 100;

/// Maximum weight of a tenant: a hundred times the default, so that the smallest share is still some work.
pub const TENANT_WEIGHT_MAX: u64 = 10_000;

/// Default limit of the artefact bytes of one tenant: some hundred large versions.
pub const TENANT_CODE_BYTES_MAX: u64 = 64 << 20;

/// Default limit of the processor time of one tenant's installations per minute, in milliseconds: half of a core.
pub const COMPILE_CPU_MS_MAX: u64 = 30_000;

/// Longest wait of a migration's source for its disk, in milliseconds, between leaving hashes and handing them over.
pub const CUT_PATIENCE_MS: u64 = 2_000;

/// Burst of a tenant with a limit of operations per second after a quiet period, in microseconds of that rate: several
/// turns of a waiting client, and few enough to preserve the latency of others.
pub const RATE_BURST_US: u64 = 100_000;

/// Minimum `Throttled` delay, in microseconds: a retry costs the server about as much as an execution.
pub const THROTTLED_AFTER_US_MIN: u64 = 1_000;

/// Maximum `Throttled` delay, in microseconds: clients wait no longer than a second.
pub const THROTTLED_AFTER_US_MAX: u64 = 1_000_000;

/// Parts of one table on one server, and ranges of it that are owned there: each part has its own index, and a look-up
/// among them takes less than a dozen steps.
pub const PARTS_PER_TABLE_MAX: usize = 1024;

/// Tablets of a tagged table of a cluster, unless its creator asks for another number. They are never split, so they are
/// enough for a few dozen servers; each has an index of its own.
pub const TAGGED_TABLETS: usize = 64;

/// Bytes of the name of a tenant, table or extension: the protocol's limit.
pub const NAME_BYTES_MAX: usize = wire::limits::NAME_BYTES_MAX;

/// Burst of wrong secrets and tokens that one source prefix may send over streams.
pub const ATTEMPTS_BURST: u32 = 64;

/// Wrong secrets and tokens of one source prefix over streams that are allowed per second.
pub const ATTEMPTS_PER_SECOND: u32 = 8;

/// Burst of `BadToken` frames that one source prefix gets from one worker.
pub const REFUSALS_BURST: u32 = 256;

/// `BadToken` frames that one source prefix gets per second from one worker.
pub const REFUSALS_PER_SECOND: u32 = 256;

/// Tokens of ended sessions that a worker remembers, to distinguish late requests from guesses: some 30 bytes each.
pub const ENDED_SESSIONS_REMEMBERED: usize = 4096;

/// Buckets of source prefixes (/24 of IPv4, /48 of IPv6); more prefixes share a bucket.
pub const SOURCE_BUCKETS: usize = 256;

/// Minimum calls of a canary before its errors are judged: with fewer, chance decides.
pub const CANARY_CALLS_MIN: u64 = 200;

/// Percentage points by which a canary's error rate may exceed the current version's.
pub const CANARY_ERRORS_MARGIN_PERCENT: u64 = 5;

/// Calls of a canary before its costs are measured.
pub const CANARY_WARM_CALLS: u64 = 1_000;

/// Minimum timed calls of a canary and of the current version before their costs are compared.
pub const CANARY_TIMED_MIN: u64 = 300;

/// Per cent and nanoseconds by which the processor time of a canary's call may exceed that of the current version.
pub const CANARY_COST_MARGIN_PERCENT: u64 = 50;
/// See [`CANARY_COST_MARGIN_PERCENT`].
pub const CANARY_COST_MARGIN_NS: u64 = 500;

/// Percentage points by which a canary's share of slow calls may exceed the current version's: slow is over twice that one's p99.
pub const CANARY_SLOW_PERCENT: u64 = 2;

/// Standard deviations by which a canary's count of errors or slow calls must exceed the number expected from the current version.
pub const CANARY_DEVIATIONS: u64 = 3;

/// Bytes of the qualified name of another tenant's table or extension.
pub const QUALIFIED_NAME_BYTES_MAX: usize = wire::limits::QUALIFIED_NAME_BYTES_MAX;

/// Acts that wait in memory while the metadata does not answer, at most some 700 bytes each.
pub const AUDIT_WAITING_MAX: usize = 4096;

/// Waiting acts of one tenant, so that no tenant takes all the room.
pub const AUDIT_WAITING_PER_TENANT_MAX: usize = 256;

/// Acts that one request reads: with the longest names, the answer stays below the largest record.
pub const AUDIT_ENTRIES_READ_MAX: u32 = 1024;

/// Bytes of the description of an act.
pub const AUDIT_ACT_BYTES_MAX: usize = 512;

/// Simultaneous connections of the metrics port: a few scrapers; each is a thread, and at most this many render.
pub const METRICS_CONNECTIONS_MAX: usize = 8;

/// Bytes of the head of a request on the metrics port.
pub const METRICS_HEAD_BYTES_MAX: usize = 8 << 10;

/// Header lines of a request on the metrics port.
pub const METRICS_HEADERS_MAX: usize = 64;

/// Time in which the head of a request must arrive on the metrics port, in milliseconds.
pub const METRICS_HEAD_TIMEOUT_MS: u64 = 2_000;

/// Time in which a peer must read an answer of the metrics port, in milliseconds: the longest useful scrape timeout.
pub const METRICS_ANSWER_TIMEOUT_MS: u64 = 30_000;

/// Burst of requests that one source prefix may send to the metrics port.
pub const METRICS_REQUESTS_BURST: u32 = 32;

/// Requests of one source prefix to the metrics port per second: rendering 10,000 tenants takes some tens of
/// milliseconds of a core.
pub const METRICS_REQUESTS_PER_SECOND: u32 = 8;

/// Bytes of an answer of the metrics port that are rendered before sending.
pub const METRICS_CHUNK_BYTES: usize = 64 << 10;

/// Tenants and versions of extensions shown in metrics; the latest ones beyond are left out.
pub const METRICS_ROWS_MAX: usize = 16_384;

/// Time that the control plane waits for the workers to take a change, in milliseconds.
pub const CHANGE_TIMEOUT_MS: u64 = 5_000;

/// Changes that a worker takes between two batches, so that a flood of changes does not starve frames.
pub const CHANGES_PER_ROUND: usize = 16;

/// Invocations started before they run, while a batch is served.
pub const INVOCATIONS_PER_TURN: usize = 64;

/// Steps of the store's background work between two looks at an idle port; one while frames arrive.
pub const BACKGROUND_STEPS_IDLE: usize = 4;
/// Microseconds for which a worker does not look for background work after it has found none, unless it is about to
/// sleep.
pub const BACKGROUND_EACH_US: u64 = 4;

/// Maximum interval at which a worker's port checks its socket while local clients have channels to it, in
/// microseconds, if no turn is longer: a check costs a fiftieth of that, and UDP clients wait for it.
pub const EVERYWHERE_EACH_US: u64 = 20;

/// Gap after which a spinning worker assumes that another thread had its CPU, in microseconds: a round takes two.
pub const CPU_LOST_US: u64 = 50;
/// Time for which it then assumes that its CPU is shared, in microseconds: long compared with the turn that detects it
/// again.
pub const CPU_SHARED_US: u64 = 100_000;

/// Maximum sleep of an idle worker before it looks around, in milliseconds.
pub const SLEEP_MS_MAX: u64 = 100;

/// Maximum sleep of an idle worker while another worker is loaded, in microseconds: that one's frames are waiting.
pub const SLEEP_BESIDE_LOADED_US: u64 = 1_000;

/// Absence of a worker from its port after which idle ones take frames there, in microseconds: longer than a batch of
/// a frame or two, so that tenants stay on their core, and as long as the slice of an extension.
pub const STEAL_AFTER_US: u64 = 50;

/// Absence of a worker from its port after which the watchdog wakes another one for the waiting frames, in
/// microseconds: above the longest round of native requests.
pub const ABSENT_AFTER_US: u64 = 5_000;

/// Interval at which an idle worker reads the others' load, in microseconds: each look takes a cache line from its
/// writer for some 100 ns.
pub const STEAL_LOOK_US: u64 = 10;

/// Messages that an idle worker takes from another's port at once, a quarter of one receive of merged frames: the rest
/// is left for others.
pub const STEAL_MESSAGES: usize = net::batch::COALESCED_REGIONS / 4;

/// Invocations that a worker offers at a time; a power of two. A turn's worth of small ones, so that an idle worker
/// finds some whenever it looks.
pub const OFFERS_PER_WORKER: usize = 32;

/// Maximum bytes of key and arguments of an offered invocation, which moves by copying. Larger ones stay.
pub const OFFER_INPUT_BYTES: usize = 512;

/// Invocations that a worker keeps when it offers others: those that it runs until it looks again.
pub const OFFER_KEEP: usize = 2;

/// Tenants that a worker examines for an invocation to offer: those whose turn is far, and which are seldom empty.
pub const OFFER_LOOK_TENANTS: usize = 8;

/// Offered invocations that an idle worker takes at once: the others are for other workers, or for later.
pub const STEAL_INVOCATIONS: usize = 4;

/// Consecutive rounds with waiting frames until a worker wakes another one: a single burst is not worth the 20 to 50
/// us of a wake-up.
pub const LOADED_ROUNDS_TO_WAKE: u32 = 3;

/// Minimum interval at which a loaded worker wakes another one, in microseconds: it costs a system call.
pub const WAKE_SIBLING_US: u64 = 500;

/// Time that a stopping server waits for the threads of its streams, in milliseconds: longer than a call that etcd
/// does not answer.
pub const STREAMS_STOP_MS: u64 = 12_000;

/// Longest wait of a start for an address that is in use, as by a server that was just killed, in milliseconds.
pub const BIND_PATIENCE_MS: u64 = 3_000;

/// Time between two attempts to bind it, in milliseconds.
pub const BIND_PAUSE_MS: u64 = 10;

/// Time that a stopping server waits for all its control threads, in milliseconds: altogether it ends in less than the
/// 30 s after which supervisors kill.
pub const CONTROL_STOP_MS: u64 = 15_000;

/// Time that a stopping server waits for the workers, which end after the current round, and then for the end of its
/// registration, in milliseconds.
pub const WORKERS_STOP_MS: u64 = 5_000;

/// Interval at which housekeeping looks for idle sessions, in milliseconds.
pub const HOUSEKEEPING_MS: u64 = 1_000;

/// Share of its time that a full worker is busy with requests, in percent. Frames taken by others are not included, so
/// a worker that manages with help keeps its tenants.
pub const WORKER_FULL_PERCENT: u64 = 90;

/// Consecutive samples, one each [`HOUSEKEEPING_MS`], that find the load uneven until a tenant moves.
pub const HOMES_LOPSIDED_LOOKS: u32 = 2;

/// Percentage by which a move must lower the work of the fullest worker's tenants: a move leaves a warm cache behind.
pub const HOME_GAIN_PERCENT: u64 = 10;

/// Minimum time that a tenant stays at a home to which it moved, in microseconds.
pub const HOME_STAYS_US: u64 = 10_000_000;

/// Approximate cost of a request without the invocation that it starts, in cycles: some 100 ns, with its part of a
/// frame. Only for comparing tenants.
pub const NATIVE_REQUEST_CYCLES: u64 = 300;

const _: () = assert!(OPENING_BYTES_MAX > NAME_BYTES_MAX + wire::limits::SECRET_BYTES_MAX + 16);
const _: () = assert!(OUTGOING_FRAMES.is_power_of_two() && OUTGOING_FRAMES >= net::batch::BATCH_FRAMES);
const _: () = assert!(WINDOW_RECORDS.is_power_of_two());
const _: () = assert!(WORKER_FULL_PERCENT <= 100 && HOME_STAYS_US > HOUSEKEEPING_MS * 1000);
const _: () = assert!(OFFERS_PER_WORKER.is_power_of_two() && OFFERS_PER_WORKER >= STEAL_INVOCATIONS);
// What moves to another worker is not among the bytes that this one counts.
const _: () = assert!(OFFER_INPUT_BYTES <= UNCOUNTED_INPUT_BYTES);
const _: () = assert!(STEAL_LOOK_US < STEAL_AFTER_US && STEAL_AFTER_US < ABSENT_AFTER_US);
const _: () = assert!(SLEEP_BESIDE_LOADED_US < SLEEP_MS_MAX * 1000);
const _: () = assert!(ETCD_CALL_MS + ETCD_RESOLVE_MS < STREAMS_STOP_MS && STREAMS_STOP_MS < CONTROL_STOP_MS);
const _: () = assert!(CONTROL_STOP_MS + 2 * WORKERS_STOP_MS < 30_000 && ETCD_CALL_MS < WORKERS_STOP_MS);
const _: () = assert!(SESSION_CREDITS as usize <= WINDOW_RECORDS / 2);
const _: () = assert!(SESSION_BATCH_MESSAGES <= TENANT_BATCH_MESSAGES && CORES_MAX <= 256);
const _: () = assert!(STORED_REPLY_BYTES_MAX <= SESSION_REPLY_BYTES_MAX);
const _: () = assert!(STORED_REPLY_BYTES_KEPT * WINDOW_RECORDS <= SESSION_REPLY_BYTES_MAX);
const _: () = assert!(SESSIONS_PER_TENANT_MAX <= SESSIONS_MAX);
const _: () = assert!(METRICS_CONNECTIONS_MAX * DESCRIPTORS_PER_STREAM < DESCRIPTORS_BESIDE_STREAMS);
const _: () = assert!(
    AUDIT_ENTRIES_READ_MAX as usize * (AUDIT_ACT_BYTES_MAX + 2 * NAME_BYTES_MAX + 256)
        <= wire::limits::STREAM_BODY_BYTES_MAX
);

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

/// Time between two looks whether a stream is still there that waits for the server's start, in milliseconds: well below
/// [`STREAM_ROOM_MS`], within which a closed stream makes room for another.
pub const GATE_LOOK_MS: u64 = 250;

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
