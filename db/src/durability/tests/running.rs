//! A running server without its network: a store, its tables, its cores and its log.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use cluster::metadata::OwnLogEnd;
use disk::{Disk, SimulatedDisk};
use fastrand::Rng;
use store::{CompletionReply, Config, Core, FoundCompletion, Quota, Store, Table, TableKind, TableOptions};

use super::super::log_reader::{self, LogError};
use super::super::log_writer::LogWriter;
use super::super::recovery::{self, LogStart, ReplayProgress, Report, Rest};
use super::super::{LogLayout, NumberedTables};
use crate::limits::SESSION_CREDITS;
use crate::sync::lock;

pub(super) const CORES: usize = 2;
pub(super) const TABLES: u32 = 2;
/// The table that promises the most; the other one is `written`.
pub(super) const SYNCED: u32 = 1;
pub(super) const KEYS_MAX: u64 = 400;

pub(super) type Key = (u32, u64);

/// What a key holds: version, value, expiry.
pub(super) type Held = (u64, Vec<u8>, u64);

/// Replies by client and sequence.
pub(super) type Completions = BTreeMap<(u64, u64), CompletionReply>;

/// The start of a log that counts as it is.
pub(super) const WHOLE: (u64, u32, UpTo<'static>) = (1, 0, &|_| None);

/// Says up to which cut a log counts, from where it ends.
pub(super) type UpTo<'a> = &'a dyn Fn(OwnLogEnd) -> Option<u64>;

/// A server that has started.
pub(super) struct Started {
    pub(super) running: Running,
    pub(super) report: Report,
    pub(super) completions: Completions,
    /// What clients saw while the log was replayed.
    pub(super) seen: Vec<Seen>,
}

/// What a client saw of a key, and the cut that its answer waits for.
pub(super) type Seen = (Key, Option<Held>, u64);

/// A running server without its network.
pub(super) struct Running {
    pub(super) store: Arc<Store>,
    pub(super) tables: Vec<Arc<Table>>,
    pub(super) cores: Vec<Core>,
    pub(super) writer: LogWriter,
}

/// Recovers the tables from a disk as a start does; calls `meanwhile` while a part of the log is left.
pub(super) fn recover(
    store: &Arc<Store>,
    (mut disk, frames_max): (Box<dyn Disk>, u32),
    (number, passed_over, up_to): (u64, u32, UpTo<'_>),
    tables: Arc<NumberedTables>,
    completed: &dyn Fn(FoundCompletion),
    meanwhile: impl FnOnce(&mut LogWriter, &Rest),
) -> Result<(LogWriter, Report), LogError> {
    let (progress, goes_on) = (ReplayProgress::default(), AtomicBool::new(false));
    let cores = store.cores().min(CORES);
    let replaying = || (0..cores).map(|core| store.core(core)).collect();
    let directory_bytes_max = if store.cores() > CORES { u64::MAX } else { 0 };
    let layout = LogLayout::of(disk.frame_bytes(), frames_max);
    let found = log_reader::find_end(&mut *disk, layout)?;
    let up_to = found.as_ref().and_then(|found| up_to(found.end()));
    let (mut writer, rest) = recovery::begin(
        store,
        disk,
        LogStart { layout, frames_max, number, passed_over, found, up_to },
        (cores, replaying()),
        (tables, directory_bytes_max),
        &progress,
    )?;
    if rest.is_left() {
        meanwhile(&mut writer, &rest);
    }
    let report = rest.end(replaying(), completed, (&progress, &goes_on))?;
    assert_eq!(progress.bytes().0, progress.bytes().1, "all was replayed");
    Ok((writer, report.expect("it goes on")))
}

/// Asks for some keys while the log is replayed, and returns what was told of them.
fn look_while_replayed(
    random: &mut Rng,
    (store, tables): (&Arc<Store>, &[Arc<Table>]),
    writer: &mut LogWriter,
    rest: &Rest,
) -> Vec<Seen> {
    let (core, mut puller) = (store.core(0), rest.puller(store.core(CORES)).expect("a sound disk"));
    let mut seen = Vec::new();
    for _ in 0..random.u32(0..60) {
        if random.u32(0..4) == 0 {
            store.advance_clock(store.now_ms() + random.u64(0..20));
        }
        let keys = if random.bool() { KEYS_MAX } else { KEYS_MAX / 8 };
        let (id, number) = (random.u32(1..=TABLES), random.u64(0..keys));
        let (table, bytes) = (&tables[id as usize - 1], number.to_be_bytes());
        let hash = store::hash(&bytes);
        assert!(table.want(hash), "there is room");
        while puller.step(&|_, _| {}).expect("a sound disk") {}
        let pin = core.pin();
        let object = pin.get(table, hash, &bytes);
        if pin.knows(table, hash, &bytes) {
            let held = object.map(|object| (object.version(), object.value().to_vec(), object.expires_ms()));
            seen.push(((id, number), held, core.take_seen().stable));
        }
        core.take_seen();
        if random.bool() {
            writer.step().expect("a sound disk");
        }
    }
    seen
}

/// Returns the replies that clients find while the log is replayed.
fn early_replies(rest: &Rest) -> Completions {
    let early = rest.early_replies().expect("a sound disk");
    let found = (0..CORES as u64).flat_map(|client| early.of(client, 0).expect("a sound disk"));
    found.map(|found| ((found.request.client, found.request.sequence), found.reply)).collect()
}

impl Running {
    pub(super) fn open(
        config: &Config,
        disk: &SimulatedDisk,
        frames_max: u32,
        now_ms: u64,
        random: &mut Rng,
    ) -> Result<Started, LogError> {
        Self::open_as(config, (disk, frames_max), WHOLE, now_ms, random)
    }

    /// As [`Running::open`], as the start of this number, without so many numbers of segments, and as far as the log counts.
    pub(super) fn open_as(
        config: &Config,
        (disk, frames_max): (&SimulatedDisk, u32),
        start: (u64, u32, UpTo<'_>),
        now_ms: u64,
        random: &mut Rng,
    ) -> Result<Started, LogError> {
        let recovery_cores = random.usize(0..2);
        let store = Store::new(Config { recovery_cores, ..*config }).expect("a small store");
        store.advance_clock(now_ms);
        let tables = tables_of(&store);
        let completions = Mutex::new(BTreeMap::new());
        let completed = |found: FoundCompletion| {
            lock(&completions).insert((found.request.client, found.request.sequence), found.reply);
        };
        let (mut seen, mut early) = (Vec::new(), None);
        let meanwhile = |writer: &mut LogWriter, rest: &Rest| {
            seen = look_while_replayed(random, (&store, &tables), writer, rest);
            early = Some(early_replies(rest));
        };
        let of_log = Arc::new((1..).zip(&tables).map(|(id, table)| (id, Arc::clone(table))).collect());
        let (writer, report) =
            recover(&store, (Box::new(disk.clone()), frames_max), start, of_log, &completed, meanwhile)?;
        let cores = (0..CORES).map(|core| store.core(core)).collect();
        let completions = completions.into_inner().expect("no thread has panicked");
        if let Some(early) = early {
            let asked =
                completions.iter().filter(|((_, sequence), _)| *sequence < u64::from(SESSION_CREDITS));
            asked.for_each(|(request, reply)| assert_eq!(early.get(request), Some(reply), "{request:?}"));
        }
        let running = Running { store, tables, cores, writer };
        Ok(Started { running, report, completions, seen })
    }

    /// Returns what can be read, and checks the counts.
    pub(super) fn contents(&self, keys: u64, known: impl Iterator<Item = Key>) -> BTreeMap<Key, Held> {
        contents_of(&self.cores[0], &self.tables, keys, known)
    }
}

/// Creates the tables of a store.
pub(super) fn tables_of(store: &Arc<Store>) -> Vec<Arc<Table>> {
    let quota = Arc::new(Quota::new(store.cores(), u64::MAX));
    let tables = (1..=TABLES).map(|id| {
        let kind = if id == 1 { TableKind::Hash } else { TableKind::Ordered };
        let options = TableOptions { kind, durable: true, ..TableOptions::default() };
        let table = store.table_with(id, options, &quota);
        table.set_synced(id == SYNCED);
        table
    });
    tables.collect()
}

/// Returns what can be read, and checks the counts.
pub(super) fn contents_of(
    core: &Core,
    tables: &[Arc<Table>],
    keys: u64,
    known: impl Iterator<Item = Key>,
) -> BTreeMap<Key, Held> {
    let pin = core.pin();
    let (mut all, known) = (BTreeMap::new(), known.collect::<Vec<_>>());
    for (table, id) in tables.iter().zip(1..) {
        let mut objects = 0;
        let known = known.iter().filter(|(table, _)| *table == id).map(|(_, number)| *number);
        for number in (0..keys.min(KEYS_MAX)).chain(known.filter(|number| *number >= KEYS_MAX)) {
            let bytes = number.to_be_bytes();
            let Some(object) = pin.get(table, store::hash(&bytes), &bytes) else { continue };
            assert!(object.verify(), "{id} {number} is damaged");
            objects += 1;
            all.insert((id, number), (object.version(), object.value().to_vec(), object.expires_ms()));
        }
        if keys <= KEYS_MAX {
            let expired = table.objects() - objects;
            assert!(expired <= table.expiring(), "{expired} objects too many in table {id}");
        }
    }
    core.take_seen();
    all
}
