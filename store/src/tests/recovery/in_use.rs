//! The same crashes, while clients go on during the recovery: what they wait for comes ahead of its segments.

use std::collections::HashMap;
use std::rc::Rc;

use super::recorder::Record;
use super::{CORES, TABLES, World};
use crate::log::SEGMENT_HEADER_BYTES;
use crate::recovery::RecoveryHandle;
use crate::{LogOnDisk, RecoveryError, entry_bytes, entry_hash};

/// Where the entries of each hash lie: segments and offsets.
type Places = HashMap<u64, Vec<(u32, usize)>>;

/// Keys of each table that are compared with the model between two segments.
const KEYS_CHECKED: u64 = 100;

/// A recovery in progress.
pub(super) struct Arriving {
    handle: RecoveryHandle,
    record: Rc<(Record, Places)>,
    /// Segments that have not come.
    left: Vec<u32>,
}

fn places(record: &Record) -> Places {
    let mut places = Places::new();
    for (&sequence, (_, bytes)) in &record.segments {
        let mut offset = SEGMENT_HEADER_BYTES;
        while offset < bytes.len() {
            if let Some(hash) = entry_hash(&bytes[offset..]) {
                places.entry(hash).or_default().push((sequence, offset));
            }
            offset += entry_bytes(&bytes[offset..]).expect("a log consists of entries");
        }
    }
    places
}

impl World {
    /// Brings what all segments have of a hash ahead, for a client of this table.
    pub(super) fn bring(&mut self, table: u32, hash: u64) {
        let arriving = self.arriving.take().expect("a recovery goes on");
        self.random.shuffle(&mut self.cores);
        let mut recovery = arriving.handle.on(&self.cores[0]);
        let mut is_there = true;
        let (record, places) = &*arriving.record;
        let found = places.get(&hash).into_iter().flatten();
        // Some that have come meanwhile are read, too, as by a thread that is late.
        let is_late = self.random.bool();
        for &(sequence, offset) in found {
            if !is_late && !arriving.left.contains(&sequence) {
                continue;
            }
            assert!(self.recorder.record.segments.contains_key(&sequence), "the disk keeps what is read");
            let bytes = &record.segments[&sequence].1;
            let place = (sequence, bytes.len());
            is_there &= recovery.ahead(place, &bytes[offset..], |number| self.table_of(number)).is_ok();
        }
        if is_there {
            self.tables[table as usize - 1].pulled(&[hash]);
        }
        self.arriving = Some(arriving);
    }

    /// As [`World::recover`], with clients meanwhile.
    pub(super) fn recover_in_use(&mut self, log: &LogOnDisk) -> bool {
        self.open();
        let record = self.recorder.record.clone();
        let places = places(&record);
        let record = Rc::new((record, places));
        for table in self.tables.iter().filter(|table| table.is_durable()) {
            table.expect_replay();
        }
        let core = self.store.core(CORES);
        let mut recovery = core.recover(&LogOnDisk { is_in_use: true, ..log.clone() });
        self.store.set_disk_short(self.random.bool());
        self.store.set_disk_room(self.random.u32(0..3));
        let mut left = log.sequences.clone();
        if self.random.bool() {
            self.random.shuffle(&mut left);
        }
        self.go_on_beside(recovery.handle(), &record, &left);
        while let Some(sequence) = left.pop() {
            let bytes = &record.0.segments[&sequence].1;
            match recovery.segment(sequence, bytes, &[], |number| self.table_of(number)) {
                Ok(()) => {}
                Err(RecoveryError::OutOfMemory) => return false,
                Err(error) => panic!("{error}"),
            }
            self.go_on_beside(recovery.handle(), &record, &left);
        }
        assert_eq!(recovery.finish().damaged, Vec::new());
        self.tables.iter().filter(|table| table.is_replaying()).for_each(|table| table.end_replay());
        self.store.set_disk_short(false);
        self.store.set_disk_room(u32::MAX);
        true
    }

    /// Some steps of clients, while these segments have not come.
    fn go_on_beside(&mut self, handle: RecoveryHandle, record: &Rc<(Record, Places)>, left: &[u32]) {
        if self.random.u32(0..3) > 0 {
            return;
        }
        self.arriving = Some(Arriving { handle, record: Rc::clone(record), left: left.to_vec() });
        (0..self.random.u32(0..60)).for_each(|_| self.step());
        self.check_known();
        self.arriving = None;
    }

    /// Compares some of what is known with the model, and makes sure that nothing else is told.
    fn check_known(&mut self) {
        let random = &mut self.random;
        let pinned = self.cores[0].pin();
        for table in 1..=TABLES {
            let part = &self.tables[table as usize - 1];
            let first = random.u64(0..self.keys);
            for number in first..self.keys.min(first + KEYS_CHECKED) {
                let bytes = number.to_be_bytes();
                let hash = crate::hash(&bytes);
                let found = pinned.get(part, hash, &bytes);
                let found =
                    found.map(|object| (object.version(), object.value().to_vec(), object.expires_ms()));
                if pinned.knows(part, hash, &bytes) {
                    assert_eq!(
                        found.as_ref(),
                        self.model.objects.get(&(table, number)),
                        "table {table}, key {number}"
                    );
                } else {
                    assert_eq!(found, None, "an unknown key of table {table}: {number}");
                }
            }
        }
    }
}
