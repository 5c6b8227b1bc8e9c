//! A running server without its network: a store, its tables, its cores and its log.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use disk::SimulatedDisk;
use store::{CompletionReply, Config, Core, FoundCompletion, Quota, Store, Table, TableKind, TableOptions};

use super::super::log_reader::LogError;
use super::super::log_writer::LogWriter;
use super::super::recovery::{self, ReplayProgress, Report};
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

/// A running server without its network.
pub(super) struct Running {
    pub(super) store: Arc<Store>,
    pub(super) tables: Vec<Arc<Table>>,
    pub(super) cores: Vec<Core>,
    pub(super) writer: LogWriter,
}

impl Running {
    pub(super) fn open(
        config: &Config,
        disk: &SimulatedDisk,
        frames_max: u32,
        now_ms: u64,
    ) -> Result<(Running, Report, Completions), LogError> {
        let store = Store::new(*config).expect("a small store");
        store.advance_clock(now_ms);
        let quota = Arc::new(Quota::new(CORES, u64::MAX));
        let tables: Vec<_> = (1..=TABLES)
            .map(|id| {
                let kind = if id == 1 { TableKind::Hash } else { TableKind::Ordered };
                let options = TableOptions { kind, durable: true, ..TableOptions::default() };
                let table = store.table_with(id, options, &quota);
                table.set_synced(id == SYNCED);
                table
            })
            .collect();
        let completions = Mutex::new(BTreeMap::new());
        let completed = |found: FoundCompletion| {
            lock(&completions).insert((found.request.client, found.request.sequence), found.reply);
        };
        let find = |id: u32| tables.get(id as usize - 1).cloned();
        let (writer, report) = recovery::recover(
            &store,
            Box::new(disk.clone()),
            frames_max,
            (CORES, CORES),
            &find,
            &completed,
            &ReplayProgress::default(),
        )?;
        let cores = (0..CORES).map(|core| store.core(core)).collect();
        let completions = completions.into_inner().expect("no thread has panicked");
        Ok((Running { store, tables, cores, writer }, report, completions))
    }

    /// Returns what can be read, and checks the counts.
    pub(super) fn contents(&self, keys: u64, known: impl Iterator<Item = Key>) -> BTreeMap<Key, Held> {
        let pin = self.cores[0].pin();
        let (mut all, known) = (BTreeMap::new(), known.collect::<Vec<_>>());
        for (table, id) in self.tables.iter().zip(1..) {
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
        self.cores[0].take_seen_cut();
        all
    }
}
