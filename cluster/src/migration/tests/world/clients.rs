//! Clients of the simulation: they read and write at the serving side, and compare results with the model.

use std::collections::BTreeMap;

use super::{KEYS, World};
use crate::migration::{Phase, TargetInput};

impl World {
    /// Makes a client's request to the side that serves.
    pub(super) fn use_it(&mut self) {
        let (key, value, kind) = (self.random.u64(0..KEYS), self.random.u64(..), self.random.u8(0..3));
        if let Some(source) = self.source.as_mut().filter(|source| source.serves) {
            match kind {
                0 => assert_eq!(source.read(key), self.model.get(&key).copied()),
                1 => {
                    source.write(key, value);
                    self.model.insert(key, value);
                }
                _ => {
                    source.remove(key);
                    self.model.remove(&key);
                }
            }
        } else if let Some(target) = self.target.as_mut().filter(|target| target.serves) {
            match kind {
                1 => {
                    target.write(key, value);
                    self.model.insert(key, value);
                    self.dirty.insert(key);
                }
                2 if target.knows(key) => {
                    target.remove(key);
                    self.model.remove(&key);
                    self.dirty.insert(key);
                }
                _ => self.read_at_target(key),
            }
        }
    }

    pub(super) fn read_at_target(&mut self, key: u64) {
        let Some(target) = self.target.as_ref().filter(|target| target.serves) else { return };
        if target.knows(key) {
            let found = target.objects.get(&key).map(|object| object.1);
            assert_eq!(found, self.model.get(&key).copied(), "key {key} at {} us", self.now_us);
        } else {
            self.tell_target(TargetInput::Want(key));
        }
    }

    pub(super) fn forget_what_died_with_the_target(&mut self) {
        let source = self.source.as_ref().expect("it is about to serve");
        for key in (0..KEYS).filter(|key| !self.dirty.contains(key)) {
            assert_eq!(source.read(key), self.model.get(&key).copied(), "nobody has written to {key}");
        }
        self.model = source.objects.iter().map(|(&key, object)| (key, object.1)).collect();
    }

    /// Checks that the final owner has all objects and the other side none.
    pub(super) fn compare(&self) {
        let values = |objects: &BTreeMap<u64, (u64, u64)>| -> BTreeMap<u64, u64> {
            objects.iter().map(|(&key, object)| (key, object.1)).collect()
        };
        match (self.records, &self.source, &self.target) {
            (Phase::Finished, source, Some(target)) => {
                assert!(target.serves);
                assert_eq!(values(&target.objects), self.model);
                assert!(source.as_ref().is_none_or(|source| !source.serves && source.objects.is_empty()));
            }
            (Phase::Ended, Some(source), target) => {
                assert!(source.serves);
                assert_eq!(values(&source.objects), self.model);
                assert!(target.as_ref().is_none_or(|target| !target.serves && target.objects.is_empty()));
            }
            // The owner is dead, before or after the migration.
            (Phase::Finished, _, None) | (Phase::Ended, None, _) => {}
            (records, ..) => panic!("{records:?} is no end"),
        }
    }
}
