//! Every limit of the server, with its unit and its reason.
//!
//! Limits of message sizes belong to the protocol and live in `wire`; limits of objects belong to
//! `store`. Here are those of the process around them: how many sessions, tables, connections, how long a
//! name, how much is kept for exactly-once replies. Relations between limits are asserted at compile time.
//!
//! Whoever meets a limit gets a typed status that names it; nothing here is a reason to panic.

mod cluster;
mod extension;
mod migration;
mod pending_requests;
mod remote;
mod stream;

pub use cluster::*;
pub use extension::*;
pub use migration::*;
pub use pending_requests::*;
pub use remote::*;
pub use stream::*;

/// Worker cores of one server: the opening answer lists their ports in one record.
pub const CORES_MAX: usize = 64;

/// Memory of a store below which a server refuses to start, however small its segments are: no tenant gets far with less.
pub const MEMORY_BYTES_MIN: usize = 8 << 20;

/// How long a worker keeps a CPU from somebody else who waits for it, in microseconds: the shortest that the kernel takes,
/// since the requests of who waits wait too.
pub const KERNEL_SLICE_US: u64 = 100;

/// Requests of one prefetch round: enough misses in flight to hide memory latency, few enough to stay in
/// the first-level cache while they wait.
pub const CHUNK_REQUESTS: usize = 32;

/// Frames of replies that a worker has under construction: the answers to a full batch, with room.
pub const OUTGOING_FRAMES: usize = 64;

/// How long answers of invocations wait for more of their kind while more are being computed: two turns, in which
/// functions of some microseconds fill a frame.
pub const GATHER_US: u64 = 100;

/// Clients on this host that a core takes over shared memory: it looks at each in every round, for some nanoseconds.
pub const LINKS_OF_CORE: usize = 64;

/// Descriptors of a core's links, a socket and a bell each, with room for those that knock.
pub const DESCRIPTORS_OF_LINKS: usize = (LINKS_OF_CORE + 32) * 2;

/// Links over shared memory of one user of this host, all cores together: 772 KiB each, and a place for others beside him at
/// each core.
pub const LINKS_OF_USER: usize = 48;

/// Records of the exactly-once ring of one session; a power of two. The distance between the oldest
/// request that is not acknowledged and the newest one is always below it.
pub const WINDOW_RECORDS: usize = 1024;

/// Requests that a session may have outstanding: as many as a client may put on the wire without an
/// answer. 256 requests of a full frame each stay below the default socket buffers.
pub const SESSION_CREDITS: u16 = 256;

/// Messages of one session in one batch that are served: twice its credits, since copies come when a server was
/// held up. As many again are told to come again, what is beyond is dropped.
pub const SESSION_BATCH_MESSAGES: u64 = 2 * SESSION_CREDITS as u64;

/// The same of one tenant while others are there: some 200 us of native requests for them to wait behind.
pub const TENANT_BATCH_MESSAGES: u64 = 2_048;

/// How long a worker remembers that it serves more than one tenant, in microseconds.
pub const CROWDED_US: u64 = 100_000;

/// Reply bytes of one invocation that are kept for a retry. Native replies are kept inline.
pub const STORED_REPLY_BYTES_MAX: usize = wire::limits::REPLY_BYTES_MAX;

/// Reply bytes of all invocations of one session that are kept for retries. A session that is above it
/// gets `Retry` until it acknowledges.
pub const SESSION_REPLY_BYTES_MAX: usize = 4 << 20;

/// Reply bytes of one session that are kept at the very most, by invocations that were under way when it came
/// above [`SESSION_REPLY_BYTES_MAX`]. A copy of a request whose reply was not kept is told so.
pub const SESSION_REPLY_BYTES_STORED_MAX: usize = 2 * SESSION_REPLY_BYTES_MAX;

/// A stored reply keeps its buffer for the next use of its record up to this capacity, in bytes.
pub const STORED_REPLY_BYTES_KEPT: usize = 2048;

/// What a request is told to wait, in microseconds, whose exactly-once record is still taken.
pub const RETRY_BUSY_US: u32 = 500;

/// What a request is told to wait, in microseconds, whose table or extension a server of a cluster may have still to hear of:
/// it takes some milliseconds.
pub const RETRY_UNHEARD_US: u32 = 2_000;

/// What a request is told to wait, in microseconds, that meets a worker which has passed to a view that others have
/// not: a few rounds.
pub const RETRY_PASSING_US: u32 = 100;

/// Sessions of one server. A session costs about 40 KiB, nearly all of it the exactly-once ring.
pub const SESSIONS_MAX: usize = 16_384;

/// Sessions of one tenant, so that one tenant cannot take all of them.
pub const SESSIONS_PER_TENANT_MAX: usize = 1024;

/// A session without a stream and without a frame for this long is closed, in milliseconds.
pub const SESSION_IDLE_MS: u64 = 60_000;

/// Tenants of one server.
pub const TENANTS_MAX: usize = 65_536;

/// Weight of a tenant for which nobody has set one.
pub const TENANT_WEIGHT_DEFAULT: u64 = 100;

/// The largest weight: a hundred times the default, so that the smallest share still is some work.
pub const TENANT_WEIGHT_MAX: u64 = 10_000;

/// Bytes of artefacts of one tenant for which nobody has set another limit: some hundred large versions.
pub const TENANT_CODE_BYTES_MAX: u64 = 64 << 20;

/// Time on the processor that one tenant's installations may use in a minute, in milliseconds, if nobody has
/// set another limit: half of a core.
pub const COMPILE_CPU_MS_MAX: u64 = 30_000;

/// What a tenant with a limit of operations a second may make at once after it was quiet, in microseconds of
/// that rate: several turns of a client that waits, and few enough to leave others their latency.
pub const RATE_BURST_US: u64 = 100_000;

/// What a request is told to wait at least that a limit of its tenant holds off, in microseconds: coming back
/// costs the server about as much as being served.
pub const THROTTLED_AFTER_US_MIN: u64 = 1_000;

/// What it is told to wait at most: clients wait no longer than a second.
pub const THROTTLED_AFTER_US_MAX: u64 = 1_000_000;

/// Tables of one tenant: each costs an index of its own.
pub const TABLES_PER_TENANT_MAX: usize = 256;

/// Parts of one table at one server, and ranges of it that are owned there: each part has an index of its own, and a
/// look-up among them stays below a dozen steps.
pub const PARTS_PER_TABLE_MAX: usize = 1024;

/// Extensions of one tenant: each is a loaded library.
pub const EXTENSIONS_PER_TENANT_MAX: usize = 64;

/// Versions of one extension that are kept: each is a package in the metadata and a loaded library. The
/// oldest one that nobody gets without naming it goes first.
pub const EXTENSION_VERSIONS_KEPT_MAX: usize = 5;

/// Bytes of the name of a tenant, table or extension: the protocol's limit.
pub const NAME_BYTES_MAX: usize = wire::limits::NAME_BYTES_MAX;

/// Wrong secrets and tokens that one source prefix may send at once over streams.
pub const ATTEMPTS_BURST: u32 = 64;

/// Wrong secrets and tokens of one source prefix over streams that are forgiven per second.
pub const ATTEMPTS_PER_SECOND: u32 = 8;

/// `BadToken` frames that one source prefix gets at once from one worker.
pub const REFUSALS_BURST: u32 = 256;

/// `BadToken` frames that one source prefix gets per second from one worker.
pub const REFUSALS_PER_SECOND: u32 = 256;

/// Sessions that have ended whose tokens a worker still knows, to tell what comes late from guesses: some 30 bytes each.
pub const ENDED_SESSIONS_REMEMBERED: usize = 4096;

/// Source prefixes (/24 of IPv4, /48 of IPv6) that are told apart; more share a bucket.
pub const SOURCE_BUCKETS: usize = 256;

/// Calls of a canary before its errors are judged: with fewer, chance decides.
pub const CANARY_CALLS_MIN: u64 = 200;

/// Errors of a canary, in points of a hundred calls, by which it may exceed the current version.
pub const CANARY_ERRORS_MARGIN_PERCENT: u64 = 5;

/// By how many standard deviations a canary's errors have to exceed what the current version's let expect.
pub const CANARY_ERRORS_DEVIATIONS: u64 = 3;

/// Grants that one tenant may give: each is a table or an extension more for every worker to know.
pub const GRANTS_PER_TENANT_MAX: usize = 1024;

/// Bytes of the name of something of another tenant.
pub const QUALIFIED_NAME_BYTES_MAX: usize = wire::limits::QUALIFIED_NAME_BYTES_MAX;

/// Acts that the audit log holds, some 150 bytes each; the oldest go first.
pub const AUDIT_ENTRIES_MAX: u64 = 65_536;

/// Acts of one tenant that the audit log holds, so that no tenant pushes out what others did.
pub const AUDIT_ENTRIES_PER_TENANT_MAX: u64 = 1024;

/// Acts that wait in a server's memory to be recorded while the metadata does not answer, at most some 700 bytes each.
pub const AUDIT_WAITING_MAX: usize = 4096;

/// Acts of one tenant among those, so that no tenant takes all the room.
pub const AUDIT_WAITING_PER_TENANT_MAX: usize = 256;

/// Acts that one request reads: with the longest names, an answer below the largest record.
pub const AUDIT_ENTRIES_READ_MAX: u32 = 1024;

/// Bytes of the description of an act.
pub const AUDIT_ACT_BYTES_MAX: usize = 512;

/// Connections of the metrics port at a time: a few scrapers; each is a thread, and no more than these render.
pub const METRICS_CONNECTIONS_MAX: usize = 8;

/// Bytes of the head of a request on the metrics port.
pub const METRICS_HEAD_BYTES_MAX: usize = 8 << 10;

/// Header lines of a request on the metrics port.
pub const METRICS_HEADERS_MAX: usize = 64;

/// The head of a request has to arrive on the metrics port within this time, in milliseconds.
pub const METRICS_HEAD_TIMEOUT_MS: u64 = 2_000;

/// An answer of the metrics port has to be taken within this time, in milliseconds: the longest scrape
/// timeout that is of use.
pub const METRICS_ANSWER_TIMEOUT_MS: u64 = 30_000;

/// Requests that one source prefix may send to the metrics port at once.
pub const METRICS_REQUESTS_BURST: u32 = 32;

/// Requests of one source prefix to the metrics port per second: rendering all of 10,000 tenants takes some
/// tens of milliseconds of a core.
pub const METRICS_REQUESTS_PER_SECOND: u32 = 8;

/// Bytes of an answer of the metrics port that are rendered before they are sent.
pub const METRICS_CHUNK_BYTES: usize = 64 << 10;

/// Tenants that metrics are shown of, and versions of extensions: beyond them, those that came last are left out.
pub const METRICS_ROWS_MAX: usize = 16_384;

/// How long the control plane waits for the workers to take a change, in milliseconds.
pub const CHANGE_TIMEOUT_MS: u64 = 5_000;

/// Changes that a worker takes between two batches, so that a flood of them does not starve frames.
pub const CHANGES_PER_ROUND: usize = 16;

/// Invocations that are started before they are run, while a batch is served.
pub const INVOCATIONS_PER_TURN: usize = 64;

/// Steps of background work of the store between two looks at an idle port; one while frames keep coming.
pub const BACKGROUND_STEPS_IDLE: usize = 4;
/// Microseconds that a worker looks for no background work after it has found none, unless it is to sleep.
pub const BACKGROUND_EACH_US: u64 = 4;

/// How often a worker's port looks at its socket at least where clients of this host have links to it, in microseconds, if no
/// turn is longer: a look costs a fiftieth of that, and who comes by UDP waits for it.
pub const EVERYWHERE_EACH_US: u64 = 20;

/// After how long a worker that spins takes it that somebody else had its CPU, in microseconds: a round takes two.
pub const CPU_LOST_US: u64 = 50;
/// How long it takes its CPU for shared then, in microseconds: long beside the turn that it takes to see it again.
pub const CPU_SHARED_US: u64 = 100_000;

/// How long an idle worker sleeps at most before it looks around, in milliseconds.
pub const SLEEP_MS_MAX: u64 = 100;

/// The same while another worker is loaded, in microseconds: its frames are waiting.
pub const SLEEP_BESIDE_LOADED_US: u64 = 1_000;

/// How long a worker may be away from its port until idle ones take frames there, in microseconds: longer than
/// a batch of a frame or two takes, so that tenants stay on their core, as long as the slice of an extension.
pub const STEAL_AFTER_US: u64 = 50;

/// How long a worker has to be away from its port until the watchdog wakes another one for what waits there,
/// in microseconds: above the longest round of native requests.
pub const ABSENT_AFTER_US: u64 = 5_000;

/// How often an idle worker looks at what the others show of their load, in microseconds: each look takes a
/// cache line away from its writer for some 100 ns.
pub const STEAL_LOOK_US: u64 = 10;

/// Messages that an idle worker takes from another's port at once, a quarter of what a receive of merged
/// frames takes: the rest is for whoever comes first.
pub const STEAL_MESSAGES: usize = net::batch::COALESCED_REGIONS / 4;

/// Invocations that a worker offers to the others at a time; a power of two. A turn's worth of small ones, so
/// that an idle worker finds some whenever it looks.
pub const OFFERS_PER_WORKER: usize = 32;

/// Bytes of key and arguments of an invocation that is offered to other workers: it moves by copying. Larger
/// ones stay.
pub const OFFER_INPUT_BYTES: usize = 512;

/// Invocations that a worker keeps to itself when it offers others: what it runs until it looks again.
pub const OFFER_KEEP: usize = 2;

/// Tenants at which a worker looks for an invocation to offer: those whose turn is far, and seldom empty.
pub const OFFER_LOOK_TENANTS: usize = 8;

/// Offered invocations that an idle worker takes at once: those to come are for others, or for later.
pub const STEAL_INVOCATIONS: usize = 4;

/// Rounds in a row that found frames waiting until a worker wakes another one: a single burst is not worth the
/// 20 to 50 us of a wake-up.
pub const LOADED_ROUNDS_TO_WAKE: u32 = 3;

/// How often a loaded worker wakes another one, in microseconds: it costs a system call.
pub const WAKE_NEIGHBOUR_US: u64 = 500;

/// How long a server that stops waits for the threads of its streams, in milliseconds: longer than a call that etcd does not
/// answer.
pub const STREAMS_STOP_MS: u64 = 12_000;

/// The same for all its control threads, in milliseconds: in all it ends within less than the 30 s after which supervisors
/// kill.
pub const CONTROL_STOP_MS: u64 = 15_000;

/// The same for the workers, which end with the round at hand, and then for what says that the server is gone.
pub const WORKERS_STOP_MS: u64 = 5_000;

/// How often idle sessions are looked for, in milliseconds.
pub const HOUSEKEEPING_MS: u64 = 1_000;

/// Part of its time that a worker is busy with requests when it counts as full, in percent. Frames that others
/// took from it are missing in that, so that a worker that gets by with help keeps its tenants.
pub const WORKER_FULL_PERCENT: u64 = 90;

/// Looks in a row, one each [`HOUSEKEEPING_MS`], that find the load lopsided until a tenant moves.
pub const HOMES_LOPSIDED_LOOKS: u32 = 2;

/// By how much a move has to lower the work of the fullest worker's tenants, in percent: what moves leaves a warm
/// cache behind.
pub const HOME_GAIN_PERCENT: u64 = 10;

/// How long a tenant stays at a home to which it moved, in microseconds.
pub const HOME_STAYS_US: u64 = 10_000_000;

/// What a request costs a worker besides an invocation that it starts, in cycles: some 100 ns, with its part of a
/// frame. Only to compare tenants with each other.
pub const NATIVE_REQUEST_CYCLES: u64 = 300;

/// Ids of clients that one write to the metadata reserves.
pub const CLIENT_IDS_RESERVED: u64 = 65_536;

const _: () = assert!(OPENING_BYTES_MAX > NAME_BYTES_MAX + wire::limits::SECRET_BYTES_MAX + 16);
const _: () = assert!(OUTGOING_FRAMES.is_power_of_two() && OUTGOING_FRAMES >= net::batch::BATCH_FRAMES);
const _: () = assert!(WINDOW_RECORDS.is_power_of_two());
const _: () = assert!(WORKER_FULL_PERCENT <= 100 && HOME_STAYS_US > HOUSEKEEPING_MS * 1000);
const _: () = assert!(OFFERS_PER_WORKER.is_power_of_two() && OFFERS_PER_WORKER >= STEAL_INVOCATIONS);
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
// The current version, the canary, and one to go back to.
const _: () = assert!(EXTENSION_VERSIONS_KEPT_MAX >= 3);
