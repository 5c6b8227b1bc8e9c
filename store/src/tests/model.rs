//! Tests that random operations on a store and on a `BTreeMap` have the same results while time passes, the index
//! grows and the cleaner runs.

use std::collections::BTreeMap;

use crate::tests::{drain, each_seed, get, put_patiently, steps, store};
use crate::{Condition, Core, Cursor, NEVER_MS, PageLimits, ReadCheck, Table, Write, WriteError, hash};

/// The expected state of a key.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Entry {
    version: u64,
    value: Vec<u8>,
    expires_ms: u64,
}

type Model = BTreeMap<Vec<u8>, Entry>;

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

/// Returns a random expiry: half of the objects never expire, some have already expired.
fn random_expiry(random: &mut fastrand::Rng, now_ms: u64) -> u64 {
    if random.bool() { NEVER_MS } else { now_ms + random.u64(0..300) }
}

/// One run: a core, its table, and its expected content.
struct Run {
    core: Core,
    table: std::sync::Arc<Table>,
    model: Model,
    /// The latest version of each key, present or not.
    versions: BTreeMap<Vec<u8>, u64>,
    now_ms: u64,
    random: fastrand::Rng,
}

impl Run {
    fn current(&self, key: &[u8]) -> u64 {
        self.model.get(key).map_or(0, |entry| entry.version)
    }

    fn accept(&mut self, key: &[u8], entry: Entry) {
        let before = self.versions.insert(key.to_vec(), entry.version).unwrap_or(0);
        assert!(entry.version > before, "versions grow, over deletion and expiry too");
        if entry.expires_ms > self.now_ms {
            self.model.insert(key.to_vec(), entry);
        } else {
            self.model.remove(key);
        }
    }

    /// Advances the clock, and removes expired objects from the model.
    fn pass_time(&mut self, by_ms: u64) {
        self.now_ms += by_ms;
        self.core.store().advance_clock(self.now_ms);
        self.model.retain(|_, entry| entry.expires_ms > self.now_ms);
    }

    fn get(&self, key: &[u8]) -> Option<Entry> {
        let pinned = self.core.pin();
        let expires_ms = pinned.get(&self.table, hash(key), key).map(|object| object.expires_ms());
        let found = get(&self.core, &self.table, key)?;
        Some(Entry { version: found.0, value: found.1, expires_ms: expires_ms? })
    }

    fn put(&mut self, key: &[u8]) {
        let value = random_value(&mut self.random);
        let current = self.current(key);
        let condition = random_condition(&mut self.random, current);
        let expires_ms = random_expiry(&mut self.random, self.now_ms);
        if condition == Condition::Always && expires_ms == NEVER_MS {
            let version = put_patiently(&self.core, &self.table, key, &value).expect("there is memory");
            return self.accept(key, Entry { version, value, expires_ms });
        }
        let put = self.core.pin().put_until(&self.table, hash(key), key, &value, expires_ms, condition);
        match put {
            Ok(version) => {
                assert!(condition.holds(current));
                self.accept(key, Entry { version, value, expires_ms });
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
                assert_eq!(version, self.model.remove(key).map(|entry| entry.version));
            }
            Err(error) => {
                assert_eq!(error, WriteError::ConditionFailed { current });
                assert!(!condition.holds(current));
            }
        }
    }

    fn increment(&mut self, key: &[u8]) {
        let number = |value: &[u8]| <[u8; 8]>::try_from(value).ok();
        let before = self.model.get(key).map_or(Some([0; 8]), |entry| number(&entry.value));
        let expires_ms = self.model.get(key).map_or(NEVER_MS, |entry| entry.expires_ms);
        let pinned = self.core.pin();
        let (incremented, expected) = if self.random.bool() {
            let delta = self.random.i64(-1000..1000);
            let sum =
                before.map(|before| i64::from_le_bytes(before).checked_add(delta).map(i64::to_le_bytes));
            let done = pinned.increment(&self.table, hash(key), key, delta);
            (done.map(|(version, number)| (version, number.to_le_bytes())), sum)
        } else {
            let delta = self.random.f64() * 1000.0;
            let sum = before.map(|before| f64::from_le_bytes(before) + delta);
            let sum = sum.map(|sum| Some(sum).filter(|sum| sum.is_finite()).map(f64::to_le_bytes));
            let done = pinned.increment_float(&self.table, hash(key), key, delta);
            (done.map(|(version, number)| (version, number.to_le_bytes())), sum)
        };
        drop(pinned);
        match (incremented, expected) {
            (Ok((version, number)), Some(Some(expected))) => {
                assert_eq!(number, expected);
                self.accept(key, Entry { version, value: number.to_vec(), expires_ms });
            }
            (Err(WriteError::NotANumber), None) | (Err(WriteError::Retry { .. }), _) => {}
            (Err(WriteError::Overflow), Some(None)) => {}
            (other, expected) => panic!("{other:?} where {expected:?} was expected"),
        }
    }

    fn commit(&mut self, keys: u32) {
        let mut random = self.random.fork();
        let writes: Vec<_> = (0..random.usize(1..6))
            .map(|_| {
                let value = random.bool().then(|| random_value(&mut random));
                (random_key(&mut random, keys), (value, random_expiry(&mut random, self.now_ms)))
            })
            .collect();
        let stale = random.u8(0..4) == 0;
        let read_key = random_key(&mut random, keys);
        let version = self.current(&read_key) + u64::from(stale);
        let reads = [ReadCheck { table: &self.table, hash: hash(&read_key), key: &read_key, version }];
        let borrowed: Vec<_> = writes
            .iter()
            .map(|(key, (value, expires_ms))| {
                let (value, expires_ms) = (value.as_deref(), *expires_ms);
                Write { table: &self.table, hash: hash(key), key, value, expires_ms }
            })
            .collect();
        let committed = self.core.pin().commit(&reads, &borrowed);
        match committed {
            Ok(version) => {
                assert!(!stale);
                let before: Vec<_> = writes.iter().map(|(key, _)| self.current(key)).collect();
                assert!(before.iter().all(|&before| before < version));
                // Of several writes of one key only the last counts.
                for (key, (value, expires_ms)) in writes.into_iter().collect::<BTreeMap<_, _>>() {
                    match value {
                        Some(value) => self.accept(&key, Entry { version, value, expires_ms }),
                        None if self.model.remove(&key).is_some() => drop(self.versions.insert(key, version)),
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
            assert_eq!(self.get(key).as_ref(), Some(expected));
        }
    }

    /// Removes all expired objects, then compares the counts with the objects that can be found.
    fn compare_counts(&mut self) {
        // A walk in progress at the time of expiry may have missed some, and the table rests before the next walk.
        for _ in 0..2 {
            self.pass_time(20_000);
            drain(&self.core);
        }
        self.compare_all();
        let bytes = |(key, entry): (&Vec<u8>, &Entry)| {
            let expiry_bytes = if entry.expires_ms == NEVER_MS { 0 } else { 8 };
            (20 + key.len() + entry.value.len() + expiry_bytes).next_multiple_of(8) as u64
        };
        assert_eq!(self.table.objects(), self.model.len() as u64);
        assert_eq!(self.table.bytes(), self.model.iter().map(bytes).sum::<u64>());
        let (mut met, mut from, pinned) = (0, Cursor::START, self.core.pin());
        loop {
            let mut page = [None; 512];
            let limits = PageLimits { objects: 50, bytes: 2_000, keys_only: false };
            let answer = pinned.enumerate(&self.table, from, limits, &mut page).expect("the table is there");
            for object in page.iter().take(answer.count).flatten().map(|listed| listed.object) {
                let object = object.expect("nothing is corrupted");
                let expected = self.model.get(object.key()).expect("only what is there is enumerated");
                assert_eq!((object.version(), object.value()), (expected.version, expected.value.as_slice()));
            }
            met += answer.count;
            let Some(next) = answer.next else { break };
            from = next;
        }
        assert_eq!(met, self.model.len());
        drop(pinned);
        let expiring = self.model.values().filter(|entry| entry.expires_ms != NEVER_MS);
        assert_eq!(self.table.expiring(), expiring.count() as u64);
    }
}

fn run(seed: u64, keys: u32, steps: usize, memory_bytes: usize) {
    let store = store(memory_bytes, 16 << 10, 1);
    let core = store.core(0);
    let table = store.table(5);
    let random = fastrand::Rng::with_seed(seed);
    let (model, versions) = (Model::new(), BTreeMap::new());
    let mut run = Run { core, table, model, versions, now_ms: 0, random };
    for step in 0..steps {
        let key = random_key(&mut run.random, keys);
        match run.random.u8(0..16) {
            0..5 => run.put(&key),
            5..8 => run.delete(&key),
            8..10 => run.increment(&key),
            10 => run.commit(keys),
            11 => {
                let store = run.core.store();
                if store.is_quiet() {
                    assert!(!store.clean_step(&run.core.pin()), "what is quiet has nothing to clean");
                    assert!(!store.cleaner.lock().has_in_hand(), "what is quiet has nothing in hand");
                }
                let _ = run.core.step();
            }
            12 => run.pass_time(1),
            _ => assert_eq!(run.get(&key).as_ref(), run.model.get(&key)),
        }
        if step % (steps / 8).max(1) == 0 {
            run.compare_all();
            if step % (steps / 4).max(1) == 0 {
                run.compare_counts();
            }
        }
    }
    run.compare_counts();
}

#[test]
#[cfg_attr(miri, ignore = "too long for Miri")]
fn a_table_answers_like_a_map() {
    each_seed("a_table_answers_like_a_map", |seed| run(seed, 3000, steps(60_000), 4 << 20));
}

#[test]
fn a_table_of_few_keys_answers_like_a_map() {
    each_seed("a_table_of_few_keys_answers_like_a_map", |seed| run(seed, 30, steps(40_000), 256 << 10));
}

#[test]
fn a_table_answers_like_a_map_while_the_cleaner_works_hard() {
    // About 250 KB of live data in 512 KB.
    each_seed("a_table_answers_like_a_map_while_the_cleaner_works_hard", |seed| {
        run(seed, 2500, steps(100_000), 768 << 10)
    });
}
