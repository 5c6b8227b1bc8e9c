//! Random operations on a store and on a `BTreeMap` give the same answers, while the index grows and the
//! cleaner runs.

use std::collections::BTreeMap;

use crate::tests::{budget, get, put_patiently, seed, settle, store};
use crate::{Condition, Core, ReadCheck, Table, Write, WriteError, hash};

type Model = BTreeMap<Vec<u8>, (u64, Vec<u8>)>;

fn random_key(random: &mut fastrand::Rng, keys: u32) -> Vec<u8> {
    let number = random.u32(0..keys);
    let mut key = number.to_le_bytes().to_vec();
    key.resize(4 + (number % 40) as usize, 7);
    key
}

fn random_value(random: &mut fastrand::Rng) -> Vec<u8> {
    let bytes = if random.u8(..) == 0 { random.usize(0..1500) } else { random.usize(0..120) };
    let fill = random.u8(..);
    vec![fill; if random.u8(0..4) == 0 { 8 } else { bytes }]
}

fn random_condition(random: &mut fastrand::Rng, current: u64) -> Condition {
    match random.u8(0..8) {
        0 => Condition::Absent,
        1 => Condition::Present,
        2 => Condition::Version(current),
        3 => Condition::Version(current.wrapping_sub(1)),
        _ => Condition::Always,
    }
}

/// One run: a core, its table, what should be in it.
struct Run {
    core: Core,
    table: std::sync::Arc<Table>,
    model: Model,
    /// No version of the table may be below this for a key that is new.
    deleted_version: u64,
    random: fastrand::Rng,
}

impl Run {
    fn current(&self, key: &[u8]) -> u64 {
        self.model.get(key).map_or(0, |&(version, _)| version)
    }

    fn accept(&mut self, key: &[u8], version: u64, value: Vec<u8>) {
        let before = self.current(key);
        assert!(version > before, "versions grow");
        assert!(before > 0 || version > self.deleted_version, "versions grow over deletion");
        self.model.insert(key.to_vec(), (version, value));
    }

    fn put(&mut self, key: &[u8]) {
        let value = random_value(&mut self.random);
        let current = self.current(key);
        let condition = random_condition(&mut self.random, current);
        if condition == Condition::Always {
            let version = put_patiently(&self.core, &self.table, key, &value).expect("there is memory");
            return self.accept(key, version, value);
        }
        let put = self.core.pin().put(&self.table, hash(key), key, &value, condition);
        match put {
            Ok(version) => {
                assert!(condition.holds(current));
                self.accept(key, version, value);
            }
            Err(WriteError::ConditionFailed { current: reported }) => {
                assert!(!condition.holds(current));
                assert_eq!(reported, current);
            }
            Err(error) => assert!(matches!(error, WriteError::Retry { .. }), "{error}"),
        }
    }

    fn delete(&mut self, key: &[u8]) {
        let current = self.current(key);
        let condition = random_condition(&mut self.random, current);
        match self.core.pin().delete(&self.table, hash(key), key, condition) {
            Ok(version) => {
                assert!(condition.holds(current));
                assert_eq!(version, self.model.remove(key).map(|(version, _)| version));
                self.deleted_version = self.deleted_version.max(current);
            }
            Err(error) => {
                assert_eq!(error, WriteError::ConditionFailed { current });
                assert!(!condition.holds(current));
            }
        }
    }

    fn increment(&mut self, key: &[u8]) {
        let delta = self.random.i64(-1000..1000);
        let before = match self.model.get(key) {
            None => Some(0),
            Some((_, value)) => <[u8; 8]>::try_from(value.as_slice()).ok().map(i64::from_le_bytes),
        };
        let incremented = self.core.pin().increment(&self.table, hash(key), key, delta);
        match (incremented, before) {
            (Ok((version, number)), Some(before)) => {
                assert_eq!(number, before + delta);
                self.accept(key, version, number.to_le_bytes().to_vec());
            }
            (Err(WriteError::NotANumber), None) | (Err(WriteError::Retry { .. }), _) => {}
            (Err(WriteError::Overflow), Some(before)) => assert!(before.checked_add(delta).is_none()),
            (other, before) => panic!("{other:?} where {before:?} was"),
        }
    }

    fn commit(&mut self, keys: u32) {
        let mut random = self.random.fork();
        let writes: Vec<_> = (0..random.usize(1..6))
            .map(|_| (random_key(&mut random, keys), random.bool().then(|| random_value(&mut random))))
            .collect();
        let stale = random.u8(0..4) == 0;
        let read_key = random_key(&mut random, keys);
        let version = self.current(&read_key) + u64::from(stale);
        let reads = [ReadCheck { table: &self.table, hash: hash(&read_key), key: &read_key, version }];
        let write = |(key, value): &'_ (Vec<u8>, Option<Vec<u8>>)| (hash(key), key.clone(), value.clone());
        let owned: Vec<_> = writes.iter().map(write).collect();
        let borrowed: Vec<_> = owned
            .iter()
            .map(|(hash, key, value)| Write { table: &self.table, hash: *hash, key, value: value.as_deref() })
            .collect();
        let committed = self.core.pin().commit(&reads, &borrowed);
        match committed {
            Ok(version) => {
                assert!(!stale);
                let before: Vec<_> = writes.iter().map(|(key, _)| self.current(key)).collect();
                assert!(before.iter().all(|&before| before < version));
                // Of several writes of one key only the last takes place.
                for (key, value) in writes.into_iter().collect::<BTreeMap<_, _>>() {
                    match value {
                        Some(value) => drop(self.model.insert(key, (version, value))),
                        None if self.model.remove(&key).is_some() => {
                            self.deleted_version = self.deleted_version.max(version);
                        }
                        None => {}
                    }
                }
            }
            Err(crate::CommitError::Conflict { read }) => assert!(stale && read == 0),
            Err(error) => {
                assert!(matches!(error, crate::CommitError::Write(WriteError::Retry { .. })), "{error}")
            }
        }
    }

    fn compare_all(&self) {
        for (key, expected) in &self.model {
            assert_eq!(get(&self.core, &self.table, key).as_ref(), Some(expected));
        }
        let bytes: usize = self
            .model
            .iter()
            .map(|(key, (_, value))| (20 + key.len() + value.len()).next_multiple_of(8))
            .sum();
        assert_eq!(self.table.objects(), self.model.len() as u64);
        assert_eq!(self.table.bytes(), bytes as u64);
    }
}

fn run(seed: u64, keys: u32, steps: usize, memory_bytes: usize) {
    let store = store(memory_bytes, 16 << 10, 1);
    let core = store.core(0);
    let table = store.table(5);
    let random = fastrand::Rng::with_seed(seed);
    let mut run = Run { core, table, model: Model::new(), deleted_version: 0, random };
    for step in 0..steps {
        let key = random_key(&mut run.random, keys);
        match run.random.u8(0..16) {
            0..5 => run.put(&key),
            5..8 => run.delete(&key),
            8..10 => run.increment(&key),
            10 => run.commit(keys),
            11 => drop(run.core.step()),
            _ => assert_eq!(get(&run.core, &run.table, &key).as_ref(), run.model.get(&key)),
        }
        if step % (steps / 8).max(1) == 0 {
            run.compare_all();
        }
    }
    settle(&run.core);
    run.compare_all();
}

#[test]
#[cfg_attr(miri, ignore = "too long for Miri")]
fn a_table_answers_like_a_map() {
    run(seed("a_table_answers_like_a_map"), 3000, budget(60_000), 4 << 20);
}

#[test]
fn a_table_of_few_keys_answers_like_a_map() {
    run(seed("a_table_of_few_keys_answers_like_a_map"), 30, budget(40_000), 256 << 10);
}

#[test]
fn a_table_answers_like_a_map_while_the_cleaner_works_hard() {
    // About 250 KB of live data in 512 KB.
    run(seed("a_table_answers_like_a_map_while_the_cleaner_works_hard"), 2500, budget(100_000), 768 << 10);
}
