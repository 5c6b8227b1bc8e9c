//! Archives of tables in a world, and their return.

use fastrand::Rng;
use store::{Cursor, ReplayError, Replayed};

use super::World;
use crate::durability::tests::running::TABLES;

/// Bytes of an archive that are gathered at once.
const ARCHIVE_BYTES_MAX: usize = 1 << 20;

impl World {
    /// Takes an archive of a table, or restores one: what has gone since comes back, with a version as high as it needs.
    pub(super) fn restore(&mut self, random: &mut Rng, core: usize) {
        let (id, asks) = (random.u32(1..=TABLES), self.asks);
        let running = self.running.as_ref().expect("it runs");
        let (table, core_of) = (&running.tables[id as usize - 1], &running.cores[core]);
        core_of.ask_for_disk(asks);
        let archive = self.archives.entry(id).or_default();
        let pin = core_of.pin();
        if archive.is_empty() || random.u32(0..4) == 0 {
            archive.clear();
            let mut from = Some(Cursor::START);
            while let Some(cursor) = from {
                from = pin.gather(table, cursor, u64::MAX, ARCHIVE_BYTES_MAX, archive).expect("it is there");
            }
            drop(pin);
            running.cores[core].take_seen();
            return;
        }
        let (mut rest, mut restored) = (&archive[..], Replayed::default());
        let refused = pin.restore(table, &mut rest, &mut restored).err();
        let done = archive.len() - rest.len();
        let mut objects = Vec::new();
        let mut at = 0;
        while at < done {
            let (key, bytes) = store::entry_key(&archive[at..]).expect("it is whole");
            if let Some(object) = pin.get(table, store::hash(key), key) {
                let number = u64::from_be_bytes(key.try_into().expect("a key of this model"));
                objects
                    .push(((id, number), (object.version(), object.value().to_vec(), object.expires_ms())));
            }
            at += bytes;
        }
        drop(pin);
        let cuts = running.cores[core].take_seen();
        for (key, held) in objects {
            // One of before a crash may be newer than what the key has now.
            if self.model.objects.get(&key).is_none_or(|known| known.0 != held.0) {
                self.tell_with(cuts, key, held.0);
                self.wrote(key, held);
            }
        }
        match refused {
            Some(ReplayError::Refused(error)) => self.refuse(core, error),
            Some(error) => panic!("{error}"),
            None => {}
        }
    }
}
