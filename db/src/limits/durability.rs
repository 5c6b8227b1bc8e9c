//! Limits of the log on the disk.

/// Number of a segment from which on the log admits no writes; 2^24 more are left to the cleaner. They name segments in 32
/// bits: with 100 segments a second they last 16 months, with 10 a second 13 years.
pub const SEGMENT_NUMBERS_MAX: u32 = u32::MAX - (1 << 24);

/// Frames of a full segment: short ones, as heads take when memory is short, waste at most a part of one.
pub const FRAMES_PER_SEGMENT: usize = store::FRAMES_PER_WINDOW as usize;

/// Bytes of a digest besides its segments: lists of segments of which a part has moved.
pub const DIGEST_BYTES_MIN: usize = 64 << 10;

/// Numbers of cuts that a start passes over: more than an earlier one had taken since its last stable write, each cut of an idle
/// server included.
pub const CUTS_PASSED_OVER: u64 = 1 << 32;

/// By so many cuts behind a digest a part is of a later start: there is another digest before half as many as that passes over.
pub const LATER_START_CUTS: u64 = CUTS_PASSED_OVER / 4 * 3;

/// Numbers of digests that a start with backups passes over: more than are sent in one step.
pub const DIGESTS_PASSED_OVER: u32 = 16;

const _: () =
    assert!(DIGESTS_PASSED_OVER.is_multiple_of(2), "the copy of the latest digest is not written over");

/// Multiple of the frames that digests need with which a log begins, so that later starts may have a disk so much larger.
pub const DIGEST_ROOM: u32 = 8;

/// Part of the disk that frames for digests may take to have that room.
pub const DIGEST_SHARE_DIVISOR: u32 = 64;

/// Blocks that the log writes at once: 1 MiB, which this takes a device some milliseconds at most.
pub const LOG_BATCH_BLOCKS: usize = 256;

/// Directories that wait for their write at once: many steps' worth of full segments.
pub const DIRECTORIES_DUE_MAX: usize = 64;

/// Directories that a step writes: a millisecond each, which the answers of the step wait.
pub const DIRECTORIES_AT_ONCE: usize = 2;

/// Frames kept for removals on a full disk: a hundred thousand tombstones.
pub const REMOVAL_FRAMES: usize = 8;

/// Share (a divisor) of all frames below which cleaning frees some.
pub const FRAMES_SHORT_DIVISOR: usize = 8;

/// Share (a divisor) of all frames that has to be free for directories of segments: less than cleaning leaves free.
pub const FRAMES_DIRECTORIES_DIVISOR: usize = 16;

/// Most frames that are added to the file ahead of their use: tens of milliseconds of writing.
pub const FRAMES_AHEAD: usize = 64;

/// Share (a divisor) of the used frames that is added ahead: a small log stays small.
pub const FRAMES_AHEAD_DIVISOR: usize = 8;

/// Time between two attempts to add frames to a file system without space, in milliseconds.
pub const GROWTH_RETRY_MS: u64 = 500;

/// Longest pause of the log's thread while the disk is short, in milliseconds.
pub const SHORT_INTERVAL_MS: u64 = 2;

/// Time after which a write of a table in `written` is on the disk, by default, in milliseconds.
pub const FLUSH_INTERVAL_MS: u64 = 10;

/// Default limit of the disk, in memories: with half of it live, cleaning writes little more than what is written.
pub const DISK_MEMORIES_DEFAULT: u64 = 4;

/// Default limit of replicas of others' logs, in limits of the own log.
pub const BACKUP_LOGS_DEFAULT: u64 = 2;

/// Other servers that have the log, where there are so many on machines of their own.
pub const REPLICAS_DEFAULT: usize = 2;

/// Most other servers that have the log.
pub const REPLICAS_MAX: usize = 4;

/// Time that a stop waits for backups, in milliseconds.
pub const BACKUPS_STOP_MS: u64 = 2_000;

/// Bytes of the log in a message to a backup: a copy takes the log's thread a fraction of a millisecond between two cuts.
pub const REPLICA_PIECE_BYTES: usize = if cfg!(test) { 5_000 } else { 256 << 10 };

/// Time between two lines about the progress of a recovery, in milliseconds.
pub const RECOVERY_PROGRESS_MS: u64 = 1_000;

/// Part of the memory that the directories of a log may take in addition, if tables are served while it is replayed.
pub const DIRECTORIES_MEMORY_DIVISOR: u64 = 8;

/// Hashes of a table that are brought ahead at once while the log is replayed: other tables follow.
pub const PULLED_HASHES_AT_ONCE: usize = 64;

/// Most entries of a hash that are brought ahead: a key that was written so often waits for the replay, and nobody for it.
pub const PULLED_ENTRIES_OF_HASH_MAX: usize = 1_000;

/// Entries that are read at once while the log is replayed.
pub const READ_AHEAD_ENTRIES: usize = 64;

/// Interval at which is looked for such hashes, in microseconds.
pub const PULLER_LOOK_US: u64 = 200;

/// Damaged entries that a start names in the log.
pub const DAMAGED_NAMED_MAX: usize = 100;

/// Bytes of answers that a worker holds until they are stable: some 500,000 short ones. Beyond it, clients fetch longer ones
/// over their streams, and short ones when they ask again.
pub const HELD_BYTES_MAX: usize = 64 << 20;

/// Longest time for which a worker gathers answers for one write of the disk, in cuts as long as the latest one: on a fast
/// disk nobody waits long.
pub const GROUP_WAIT_CUTS: u64 = 4;

/// Cuts that may be on their way to backups before these have received the first one.
pub const UNRECEIVED_CUTS_MAX: usize = 4;

/// Bytes of the longest message to a backup that leaves with others: copying it costs less than a call of the kernel.
pub const BACKUP_QUEUED_BYTES_MAX: usize = 8 << 10;

/// Bytes that may be sent to backups and not be settled: more is settled at once. A link keeps up to twice as much.
pub const UNSETTLED_BYTES_MAX: usize = if cfg!(test) { 20_000 } else { 8 << 20 };

/// Its limit, in microseconds: on a slow disk many come while one cut is written.
pub const GROUP_WAIT_US_MAX: u64 = 300;

/// Frames that a worker sends in a round with answers that have become stable, some 16 us, before it serves what has come.
pub const RELEASED_FRAMES: usize = 16;

/// Answers that it writes into them, which takes about as long.
pub const RELEASED_ANSWERS: usize = 256;

/// Least default limit of the disk, in bytes: a log that can be cleaned with the default segments and some cores.
pub const DISK_BYTES_MIN: u64 = 1 << 30;

/// Time that a stopping worker waits for the disk to release the answers that it holds, in milliseconds.
pub const HELD_STOP_MS: u64 = 1_000;

/// Time after a start in which a client of before may come back for its replies, in milliseconds: ten times as long as a
/// session lives without a word.
pub const COMPLETION_LEASE_MS: u64 = 600_000;

/// Age beyond which a start expects nobody to ask for a reply, in milliseconds of the store's clock before its end: more than
/// twice the age at which a client repeats a request for the last time. Where clocks jump they are still kept up to a bound.
pub const OLD_REPLIES_MS: u64 = 120_000;

/// Bytes of a reply that a completion record keeps; a longer one is `ReplyForgotten` after a crash.
pub const COMPLETION_REPLY_BYTES_MAX: usize = 1024;

/// Interval at which a control thread looks whether a cut has become stable, in microseconds.
pub const STABLE_LOOK_US: u64 = 500;

/// Time that a request for a snapshot of the log waits for the log's thread, in milliseconds: many cuts.
pub const SNAPSHOT_WAIT_MS: u64 = 5_000;

/// Archives that a server reads at once for tenants, and as many for the administrator: each keeps a segment in memory, and
/// frames of the disk.
pub const ARCHIVES_MAX: usize = 4;

/// Time after which an archive that nobody reads ends, in milliseconds: its frames are kept from the log. Longer than a
/// client of an S3 server may try to store one file.
pub const ARCHIVE_IDLE_MS: u64 = 300_000;

/// Bytes of the log that all archives together read in a second: a small share of what a disk, or a processor that
/// computes checksums, does.
pub const ARCHIVE_BYTES_PER_SECOND: u64 = 128 << 20;

/// Bytes of the pieces in which an archive is sent; an object may exceed it.
pub const ARCHIVE_PIECE_BYTES: usize = 512 << 10;

/// Bytes of objects that a worker stores in one turn at a restore: some hundred microseconds.
pub const RESTORE_TURN_BYTES: usize = 32 << 10;

/// Time that a restore waits for room in memory or on the disk, or for a worker, in milliseconds.
pub const RESTORE_PATIENCE_MS: u64 = 10_000;

/// Time that a change of a table to or from memory goes on trying without progress, in milliseconds: as long as its writes
/// may meet a full disk.
pub const ALTER_PATIENCE_MS: u64 = 3_000;

/// Interval at which it looks how far the objects are, in milliseconds.
pub const ALTER_LOOK_MS: u64 = 1;

/// Replies that a worker records in one turn: some 30 us.
pub const REPLIES_PER_RECORDING: usize = 256;

/// Bytes of a record of a log's stream to its backup: a piece of it, with what is around it.
pub const REPLICA_RECORD_BYTES_MAX: usize = REPLICA_PIECE_BYTES + 256;

/// Records of one stream that a backup takes in before it makes them stable: 4 MiB of pieces.
pub const BACKUP_ROUND_RECORDS: usize = 16;

/// Processor time, in microseconds, after which the backup's thread rests for half as long: it goes before the workers, and a
/// recovery gives it work for seconds.
pub const BACKUP_TURN_US: u64 = 300;

/// Empty frames that a backup keeps in memory for what comes next.
pub const SPARE_FRAMES: usize = 8;

/// Bytes of answers that a server need not have taken before its backup takes in more of it.
pub const BACKUP_UNTAKEN_BYTES: usize = 64 << 10;

/// Bytes of a segment in one record of a backup to a server that recovers a log.
pub const HOLDER_ANSWER_BYTES: usize = 256 << 10;

/// Bytes of a question of a server that recovers a log: hashes of some 800,000 parts of tables.
pub const HOLDER_QUESTION_BYTES_MAX: usize = 16 << 20;

/// Bytes of divided segments that a backup keeps of a log for servers that recover it more slowly than others.
pub const DIVIDED_BYTES_MAX: usize = 64 << 20;

/// Time in which the backup's thread answers who recovers a log, in milliseconds.
pub const BACKUP_ANSWER_MS: u64 = 60_000;

/// Longest sleep of the backup's thread, in milliseconds.
pub const BACKUP_IDLE_MS: u64 = 100;

/// Frames by which the speed of a disk of replicas is measured: a segment's half, some milliseconds on any device in use.
pub const BACKUP_MEASURED_FRAMES: u32 = 4;

/// Longest wait of the thread that finds backups for something to do, in milliseconds.
pub const BACKUPS_STEP_MS: u64 = 20;

/// Longest time for which a start waits for backups to say what they have received of its log, in milliseconds: longer than the life
/// of a lease and the time in which everybody registers again behind an outage of etcd, so that one that is dead is not registered.
pub const START_ASKS_MS: u64 = 8_000;

/// Time after which a start that leaves its log to others takes it itself if nobody has begun to recover it, in milliseconds: they do
/// within seconds if they can.
pub const LEFT_PATIENCE_MS: u64 = 60_000;

/// Time for which a recovery waits for backups that have run on, in milliseconds, before it makes do with those that were started since.
pub const RESTARTED_PATIENCE_MS: u64 = 5_000;

/// Time between two looks at the registered servers for backups, in milliseconds.
pub const BACKUPS_LOOK_MS: u64 = 250;

/// Time after a server has got a lease, at its start or behind an outage of the metadata, in which backups that count may come, in
/// milliseconds.
pub const BACKUPS_PATIENCE_MS: u64 = 5_000;

/// Time in which a backup says what it has, in milliseconds: it reads a frame of each replica.
pub const REPLICAS_HELD_MS: u64 = 60_000;

/// Bytes of a record in which a backup says what it has: of a million replicas.
pub const REPLICAS_HELD_BYTES_MAX: usize = 16 << 20;

/// Bytes of objects that a recovery stores at once.
pub const RECOVERY_BATCH_BYTES: usize = 20_000;

/// Time until a recovery that failed is begun anew, in milliseconds.
pub const RECOVERY_AGAIN_MS: u64 = 1_000;

/// Time that a start without its log waits until others have recovered it, in milliseconds.
pub const RECOVERY_PATIENCE_MS: u64 = 600_000;

/// Memory for the replies that a recovered log has for the clients of its server, in bytes. With more their outcome is unknown.
pub const RECOVERED_REPLIES_BYTES_MAX: usize = 64 << 20;

/// Time between two looks which replicas of others' logs are needed, in milliseconds.
pub const BACKUPS_TIDY_MS: u64 = 10_000;

/// Time in which a recovery waits for more that is to be recovered of the same server, in milliseconds.
pub const RECOVERY_GATHER_MS: u64 = 100;

/// Time between two looks of a recovery that waits for another one, in milliseconds.
pub const RECOVERY_LOOK_MS: u64 = 20;
