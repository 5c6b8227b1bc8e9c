//! Every limit of the server, with its unit and its reason.
//!
//! Limits of message sizes belong to the protocol and live in `wire`; limits of objects belong to
//! `store`. Here are those of the process around them: how many sessions, tables, connections, how long a
//! name, how much is kept for exactly-once replies. Relations between limits are asserted at compile time.
//!
//! Whoever meets a limit gets a typed status that names it; nothing here is a reason to panic.

/// Worker cores of one server: the opening answer lists their ports in one record.
pub const CORES_MAX: usize = 64;

/// Memory of a store below which a server refuses to start: a few segments per core.
pub const MEMORY_BYTES_MIN: usize = 8 << 20;

/// Requests of one prefetch round: enough misses in flight to hide memory latency, few enough to stay in
/// the first-level cache while they wait.
pub const CHUNK_REQUESTS: usize = 32;

/// Frames of replies that a worker has under construction: the answers to a full batch, with room.
pub const OUTGOING_FRAMES: usize = 64;

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

/// Extensions of one tenant: each is a loaded library.
pub const EXTENSIONS_PER_TENANT_MAX: usize = 64;

/// Versions of one extension that are kept: each is a package in the metadata and a loaded library. The
/// oldest one that nobody gets without naming it goes first.
pub const EXTENSION_VERSIONS_KEPT_MAX: usize = 5;

/// Bytes of the name of a tenant, table or extension: the protocol's limit.
pub const NAME_BYTES_MAX: usize = wire::limits::NAME_BYTES_MAX;

/// TCP connections at a time, each served by a control thread.
pub const CONNECTIONS_MAX: usize = 2048;

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

/// Wrong secrets and tokens that one source prefix may send at once over streams.
pub const ATTEMPTS_BURST: u32 = 64;

/// Wrong secrets and tokens of one source prefix over streams that are forgiven per second.
pub const ATTEMPTS_PER_SECOND: u32 = 8;

/// `BadToken` frames that one source prefix gets at once from one worker.
pub const REFUSALS_BURST: u32 = 256;

/// `BadToken` frames that one source prefix gets per second from one worker.
pub const REFUSALS_PER_SECOND: u32 = 256;

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

/// How long a stream waits for the answer to a data operation, in milliseconds.
pub const STREAM_ANSWER_TIMEOUT_MS: u64 = 10_000;

/// Changes that a worker takes between two batches, so that a flood of them does not starve frames.
pub const CHANGES_PER_ROUND: usize = 16;

/// Invocations that are started before they are run, while a batch is served.
pub const INVOCATIONS_PER_TURN: usize = 64;

/// Steps of background work of the store between two looks at an idle port; one while frames keep coming.
pub const BACKGROUND_STEPS_IDLE: usize = 4;

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
const _: () = assert!(SESSION_CREDITS as usize <= WINDOW_RECORDS / 2);
const _: () = assert!(SESSION_BATCH_MESSAGES <= TENANT_BATCH_MESSAGES && CORES_MAX <= 256);
const _: () = assert!(STORED_REPLY_BYTES_MAX <= SESSION_REPLY_BYTES_MAX);
const _: () = assert!(STORED_REPLY_BYTES_KEPT * WINDOW_RECORDS <= SESSION_REPLY_BYTES_MAX);
const _: () = assert!(SESSIONS_PER_TENANT_MAX <= SESSIONS_MAX);
const _: () = assert!(
    AUDIT_ENTRIES_READ_MAX as usize * (AUDIT_ACT_BYTES_MAX + 2 * NAME_BYTES_MAX + 256)
        <= wire::limits::STREAM_BODY_BYTES_MAX
);
// The current version, the canary, and one to go back to.
const _: () = assert!(EXTENSION_VERSIONS_KEPT_MAX >= 3);
// ---- Extensions: memory and stacks -------------------------------------------------------------------

/// Bytes of stack that an extension may use: deep enough for parsers and TAO queries, small enough that a
/// stack costs a worker 16 warm pages at most.
pub const EXTENSION_STACK_BYTES: usize = 64 << 10;

/// Bytes of stack that a host call may use: measured are below 6 KiB in a build for tests, below 4 KiB in a
/// release. An extension that calls the host with less than this left, plus a signal frame, overflows.
pub const HOST_CALL_STACK_BYTES: usize = 16 << 10;

/// Bytes of the guard below an extension's stack. A single page would do, since the compiler touches every
/// page of a frame in turn; more catches what a bug in that would do.
pub const STACK_GUARD_BYTES: usize = 64 << 10;

/// Stacks that a worker keeps mapped while nobody runs on them.
pub const STACKS_KEPT_PER_WORKER: usize = 64;

/// Bytes of the stack on which faults are handled, the signal frame excluded.
pub const ALTERNATE_STACK_BYTES: usize = 32 << 10;

const _: () = assert!(STACK_GUARD_BYTES.is_multiple_of(4096) && ALTERNATE_STACK_BYTES.is_multiple_of(4096));

// ---- Extensions: one invocation --------------------------------------------------------------------------

/// Bytes that one invocation may allocate.
pub const ARENA_BYTES: usize = 1 << 20;

/// Bytes of keys and values that one invocation may write before they are applied.
pub const TRANSACTION_BYTES: usize = 4 << 20;

/// Objects that one invocation may write: with the reads of it, what one commit of the store takes.
pub const TRANSACTION_WRITES_MAX: usize = 1024;

/// Up to this many writes a lookup among them compares in a row.
pub const TRANSACTION_WRITES_SCANNED: usize = 16;

/// Objects that an invocation of a function that may write may read: all are validated at the commit.
pub const TRANSACTION_READS_MAX: usize = 3072;

/// Reads for which a slot keeps memory from one invocation to the next.
pub const TRANSACTION_READS_KEPT: usize = 256;

/// Objects that one invocation may read, in whatever way.
pub const INVOCATION_READS_MAX: u32 = 1 << 20;

/// Keys that one host call reads: what the SDK sends at once, twice over.
pub const GET_MANY_KEYS_MAX: usize = 64;

/// Times that one invocation may yield. At some 100 ns a turn of an idle worker, about 10 ms.
pub const INVOCATION_YIELDS_MAX: u32 = 100_000;

/// Age at which an invocation is ended that yielded or used up a slice, in microseconds: until then it
/// holds its pin, and the store cannot free what was overwritten since.
pub const INVOCATION_WALL_US_MAX: u64 = 1_000_000;

/// Time on the processor that one invocation may use, in microseconds.
pub const INVOCATION_CPU_US_MAX: u64 = 100_000;

/// How often an invocation is run until its commit meets no conflict.
pub const COMMIT_TRIES_MAX: u32 = 8;

/// Bytes of the text of a panic that the caller gets.
pub const LAST_WORDS_BYTES_MAX: usize = 512;

/// Bytes of one log line; what the SDK sends at most.
pub const EXTENSION_LOG_LINE_BYTES_MAX: usize = 256;

/// Log lines of one invocation; more are not kept.
pub const EXTENSION_LOG_LINES_MAX: u32 = 32;

/// Bytes of log lines that are kept for a tenant.
pub const EXTENSION_LOG_BYTES: usize = 64 << 10;

// ---- Extensions: measuring ---------------------------------------------------------------------------------

/// Invocations of a worker of which one, on average, is timed: two readings of the cycle counter cost some
/// 15 ns, so that measuring stays near 1 ns an invocation.
pub const INVOCATIONS_PER_TIMING: u32 = 16;

/// Steps in which a power of two is divided by the histogram of times: a quantile is right within 6 %.
pub const TIME_STEPS_PER_DOUBLING: usize = 8;

/// Longest time that the histogram tells apart, in cycles: some 20 s.
pub const TIME_CYCLES_MAX: u64 = 1 << 36;

const _: () = assert!(TIME_STEPS_PER_DOUBLING.is_power_of_two() && TIME_CYCLES_MAX.is_power_of_two());
const _: () = assert!(INVOCATIONS_PER_TIMING.is_power_of_two());

// ---- Extensions: tracing ----------------------------------------------------------------------------------

/// Polls of a traced invocation that are told apart.
pub const TRACE_POLLS_MAX: usize = 32;

/// Traces that are kept for a tenant's reader, some 6 KiB each.
pub const TRACES_KEPT: usize = 32;

/// Tenants of a server that trace at a time: their traces take 13 MiB at the very most.
pub const TRACED_TENANTS_MAX: usize = 64;

/// How long a reader of traces may be silent before tracing ends, in microseconds.
pub const TRACE_LEASE_US: u64 = 3_000_000;

/// Rest of a worker after a trace that was kept, in microseconds: so tracing stays below a hundredth of a core.
pub const TRACE_REST_US: u64 = 1_000;

// ---- Extensions: installing --------------------------------------------------------------------------------

/// Installations that build at a time: each is a compiler, and the workers need the machine.
pub const COMPILES_AT_ONCE_MAX: usize = 2;

/// Installations of one tenant that wait: each is a control thread. More are told to try later.
pub const COMPILES_WAITING_PER_TENANT_MAX: usize = 4;

// ---- Extensions: one worker ------------------------------------------------------------------------------

/// Invocations of one worker that have not ended. Beyond it new ones are told to come again.
pub const INVOCATIONS_PER_WORKER_MAX: usize = 8192;

/// Slots that a worker keeps for the invocations to come; more are unmapped when they are free.
pub const SLOTS_KEPT_PER_WORKER: usize = 1024;

/// Bytes of each part of a slot's memory that stay with it. So 1024 kept slots hold some 256 MiB at the
/// very most, and as a rule a few pages each.
pub const ROOM_PART_BYTES_KEPT: usize = 64 << 10;

// ---- Extensions: preemption ------------------------------------------------------------------------------

/// What an invocation may run in one piece before it makes room for others, in microseconds: long enough
/// that a signal of the timer, which costs up to 20 us on a virtual machine, does not eat it, short enough
/// that who waits behind a loop waits some 100 us.
pub const SLICE_US: u64 = 50;

/// Polls in a row that end within their slice before an extension counts as steady for the first time. Each
/// time that one which was steady uses up a slice, twice as many are asked of it from then on.
pub const STEADY_POLLS: u32 = 1024;

/// The most polls that are asked for, some seconds of nothing else: so that whoever is short on purpose to be
/// long once gains less than a thousandth of a core.
pub const STEADY_POLLS_MAX: u32 = 1 << 24;

/// After this time without an overrun half as many are asked for, in microseconds: a thread that lost its core
/// looks like an overrun, and is not to count for long.
pub const STEADY_HALVED_US: u64 = 4_000_000;

/// How many slices ahead of a steady extension's polls the timer is kept, at the least. Arming it for 50 us
/// costs up to 9 us on a virtual machine, for 1 ms 3 us, and only once in so many slices: 0.3 % of a core. The
/// first overrun of what was steady is seen that much later; from then on it is watched slice by slice.
pub const STEADY_SLICES: u64 = 20;

/// A poll is charged at most this many slices more than its timer was late on purpose: else others ran.
pub const SLICES_CHARGED_MAX: u64 = 3;

/// While a tenant has other invocations that can run, one that used up a slice runs on when those have used
/// this many slices since the last such one: a quarter of the tenant's time.
pub const PARKED_REST_SLICES: u64 = 3;

/// How long a turn of invocations goes on, in slices: then the worker looks at its port. With the last poll,
/// which may use up a slice, who comes meanwhile waits for twice that.
pub const TURN_SLICES: u64 = 1;

/// Slices that a tenant can owe, for what it used beyond its share: as a debt it waits while others are served,
/// so this bounds both how long and how much of a lucky burst is taken back.
pub const TENANT_DEBT_SLICES_MAX: u64 = 64;

/// Tenants whose share of a worker is remembered; beyond it those that have nothing to run are forgotten. Each
/// takes some 200 bytes.
pub const TENANT_PLACES_KEPT: usize = 16_384;

/// Invocations of one worker that wait after using up a slice. Each holds a stack, a room and its pin; the
/// newest is ended when there are more.
pub const PARKED_PER_WORKER_MAX: usize = 256;

/// How often those that wait are looked through for their deadline, in microseconds.
pub const PARKED_LOOK_US: u64 = 1_000;

/// Polls of one extension in a row between two readings of the cycle counter: a reading costs some 8 ns,
/// about an eighth of the smallest invocation.
pub const POLLS_PER_READING: u32 = 8;

/// How often the watchdog looks at the workers, in milliseconds. It signals one that it finds in the same
/// poll twice.
pub const WATCHDOG_LOOK_MS: u64 = 10;

/// Looks that find a worker in the same poll until the watchdog reports it.
pub const WATCHDOG_LOOKS_TO_REPORT: u32 = 10;

const _: () = assert!(INVOCATION_CPU_US_MAX <= INVOCATION_WALL_US_MAX);
const _: () = assert!(SLICE_US * SLICES_CHARGED_MAX < INVOCATION_CPU_US_MAX);
const _: () = assert!(SLICE_US * STEADY_SLICES * 2 < INVOCATION_CPU_US_MAX);
const _: () = assert!(STEADY_POLLS.is_power_of_two() && STEADY_POLLS < STEADY_POLLS_MAX);
const _: () = assert!(SLICE_US * SLICES_CHARGED_MAX < WATCHDOG_LOOK_MS * 1000);
const _: () = assert!(PARKED_PER_WORKER_MAX <= INVOCATIONS_PER_WORKER_MAX);

const _: () = assert!(TRANSACTION_READS_MAX + TRANSACTION_WRITES_MAX <= store::COMMIT_OPERATIONS_MAX);
const _: () = assert!(TRANSACTION_BYTES >= store::VALUE_BYTES_MAX + store::KEY_BYTES_MAX);
const _: () = assert!(ROOM_PART_BYTES_KEPT.is_multiple_of(4096) && ARENA_BYTES > ROOM_PART_BYTES_KEPT);
const _: () = assert!(EXTENSION_LOG_LINE_BYTES_MAX + 64 < EXTENSION_LOG_BYTES);
const _: () = assert!(LAST_WORDS_BYTES_MAX <= STORED_REPLY_BYTES_MAX);
