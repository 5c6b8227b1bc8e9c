//! Tests of a table that moves from one store to another while the target is in use.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{drain, each_seed, steps, store};
use crate::{
    Condition, Core, Cursor, HashRange, Quota, ReplayError, Replayed, Store, Table, TableOptions, WriteError,
    hash, within,
};

const KEYS: u32 = 2_000;
const PARTITIONS: usize = 8;

fn table_of(store: &Store, id: u32, hashes: HashRange) -> Arc<Table> {
    let quota = Arc::new(Quota::new(1, u64::MAX));
    store.table_with(id, TableOptions { hashes, ..TableOptions::default() }, &quota)
}

/// Makes one pull: some objects of a partition, and the cursor of the next pull.
fn pull(core: &Core, table: &Table, from: Cursor, last: u64, bytes_max: usize) -> (Vec<u8>, Option<Cursor>) {
    let mut pull = Vec::new();
    let next = core.pin().gather(table, from, last, bytes_max, &mut pull).expect("the table is there");
    // The cursor travels over the network and back.
    let over =
        |next: Cursor| next.hashes().map_or(Cursor::START, |(hash, second)| Cursor::behind(hash, second));
    assert_eq!(next.map(over), next);
    (pull, next)
}

/// Replays a pull, waiting for the cleaner as a real caller would.
fn replay(core: &Core, table: &Table, hashes: HashRange, mut pull: &[u8]) -> Replayed {
    let mut replayed = Replayed::default();
    loop {
        let done = core.pin().replay(table, hashes, &mut pull, &mut replayed);
        core.step();
        match done {
            Err(ReplayError::Refused(WriteError::Retry { .. })) => {}
            done => {
                done.expect("there is memory");
                assert!(pull.is_empty());
                return replayed;
            }
        }
    }
}

struct World {
    source: (Core, Arc<Table>),
    target: (Core, Arc<Table>),
    /// The expected content of the table, and the newest version that each key ever had.
    model: BTreeMap<Vec<u8>, Vec<u8>>,
    versions: BTreeMap<Vec<u8>, u64>,
    random: fastrand::Rng,
}

impl World {
    fn new(seed: u64) -> World {
        let mut random = fastrand::Rng::with_seed(seed);
        let (from, to) = (store(4 << 20, 32 << 10, 1), store(4 << 20, 32 << 10, 1));
        let (core, table) = (from.core(0), table_of(&from, 1, HashRange::ALL));
        let moved = HashRange::new(u64::MAX / 5, u64::MAX / 5 * 4).expect("wide enough");
        let (mut model, mut versions) = (BTreeMap::new(), BTreeMap::new());
        for _ in 0..2 * KEYS {
            let key = random.u32(0..KEYS).to_le_bytes().to_vec();
            if random.u8(0..5) == 0 {
                core.pin().delete(&table, hash(&key), &key, Condition::Always).expect("deletes pass");
                model.remove(&key);
                continue;
            }
            let value = random.u64(..).to_le_bytes().to_vec();
            let put = core.pin().put(&table, hash(&key), &key, &value, Condition::Always);
            versions.insert(key.clone(), put.expect("there is memory"));
            model.insert(key, value);
            core.step();
        }
        let other = table_of(&to, 7, moved);
        other.expect_arrivals(PARTITIONS, table.version_ceiling());
        World { source: (core, table), target: (to.core(0), other), model, versions, random }
    }

    fn moved(&self, key: &[u8]) -> bool {
        self.target.1.hashes().contains(hash(key))
    }

    /// Makes a write at the target, which first requests the object if it needs it.
    fn write(&mut self) {
        let key = loop {
            let key = self.random.u32(0..KEYS).to_le_bytes().to_vec();
            if self.moved(&key) {
                break key;
            }
        };
        let at = hash(&key);
        if self.random.bool() {
            self.ask_for(at);
        }
        let (core, table) = &self.target;
        let known = table.has_arrived(at) || core.pin().get(table, at, &key).is_some();
        match self.random.u8(0..4) {
            0 if known => {
                let deleted = core.pin().delete(table, at, &key, Condition::Always);
                let before = deleted.expect("deletes pass");
                assert_eq!(before.is_some(), self.model.remove(&key).is_some());
            }
            1 if known => assert_eq!(
                core.pin().get(table, at, &key).map(|object| object.value().to_vec()).as_ref(),
                self.model.get(&key)
            ),
            _ => {
                let value = self.random.u64(..).to_le_bytes().to_vec();
                let version = loop {
                    match core.pin().put(table, at, &key, &value, Condition::Always) {
                        // Objects that arrive in the order of hashes crowd a few buckets.
                        Err(WriteError::Retry { .. }) => core.step(),
                        put => break put.expect("there is memory"),
                    };
                };
                let before = self.versions.insert(key.clone(), version);
                assert!(before.is_none_or(|before| before < version), "versions grow over the move");
                self.model.insert(key, value);
            }
        }
        core.step();
    }

    /// Makes a priority pull.
    fn ask_for(&self, at: u64) {
        let ((core, table), (to, other)) = (&self.source, &self.target);
        let mut pull = Vec::new();
        core.pin().gather_hash(table, at, &mut pull);
        replay(to, other, other.hashes(), &pull);
    }
}

fn run(seed: u64, writes: usize) {
    let mut world = World::new(seed);
    let partitions = world.target.1.partitions();
    assert_eq!(partitions.len(), PARTITIONS);
    let mut cursors: Vec<_> = partitions.iter().map(|part| Some(Cursor::before(part.first()))).collect();
    let mut late: Vec<(HashRange, Vec<u8>)> = Vec::new();
    while cursors.iter().any(Option::is_some) {
        (0..writes).for_each(|_| world.write());
        let at = world.random.usize(0..PARTITIONS);
        let Some(from) = cursors[at] else { continue };
        let bytes_max = world.random.usize(1..40) * 32;
        let (pull, next) = pull(&world.source.0, &world.source.1, from, partitions[at].last(), bytes_max);
        replay(&world.target.0, &world.target.1, partitions[at], &pull);
        // A duplicate of a pull is harmless whenever it arrives.
        if world.random.u8(0..3) == 0 {
            late.push((partitions[at], pull));
        }
        let (core, table) = &world.target;
        for (hashes, pull) in late.extract_if(.., |_| world.random.bool()) {
            replay(core, table, hashes, &pull);
        }
        match next.map(|next| next.done_to()) {
            None => world.target.1.arrived(at, partitions[at].last()),
            Some(Some(done)) if partitions[at].contains(done) => world.target.1.arrived(at, done),
            Some(_) => {}
        }
        cursors[at] = next;
    }
    assert!(world.target.1.is_complete());
    compare(&world);
    let mut from = Some(Cursor::before(world.target.1.hashes().first()));
    while let Some(cursor) = from {
        let (core, table) = &world.source;
        from = core.pin().discard(table, cursor, world.target.1.hashes().last()).expect("the table is there");
        core.step();
    }
    drain(&world.source.0);
    let stayed = world.model.keys().filter(|key| !world.moved(key)).count() as u64;
    assert_eq!(world.source.1.objects(), stayed, "what has moved is gone, and nothing else");
    compare(&world);
}

/// Checks that every key is in its place with its value.
fn compare(world: &World) {
    for number in 0..KEYS {
        let key = number.to_le_bytes();
        let (core, table) = if world.moved(&key) { &world.target } else { &world.source };
        let found = core.pin().get(table, hash(&key), &key).map(|object| object.value().to_vec());
        assert_eq!(found.as_ref(), world.model.get(&key[..]));
    }
    let moved = world.model.keys().filter(|key| world.moved(key)).count() as u64;
    assert_eq!(world.target.1.objects(), moved);
}

#[test]
#[cfg_attr(miri, ignore = "too long for Miri")]
fn what_moves_is_as_written_whatever_is_written_meanwhile() {
    each_seed("what_moves_is_as_written_whatever_is_written_meanwhile", |seed| {
        run(seed, steps((seed % 24) as usize));
    });
}

#[test]
fn a_removed_key_stays_removed_when_its_object_arrives_late_and_however_it_went() {
    let (from, to) = (store(1 << 20, 32 << 10, 1), store(1 << 20, 32 << 10, 1));
    let (source, table) = (from.core(0), from.table(1));
    let (target, other) = (to.core(0), table_of(&to, 1, HashRange::ALL));
    let keys: [&[u8]; 3] = [b"deleted", b"expired", b"committed"];
    for key in keys {
        source.pin().put(&table, hash(key), key, b"old", Condition::Always).expect("there is memory");
    }
    other.expect_arrivals(1, table.version_ceiling());
    to.advance_clock(1_000);
    for key in keys {
        let put = target.pin().put_until(&other, hash(key), key, b"new", 2_000, Condition::Always);
        assert!(put.expect("there is memory") > 1);
    }
    target.pin().delete(&other, hash(keys[0]), keys[0], Condition::Always).expect("deletes pass");
    let delete =
        crate::Write { table: &other, hash: hash(keys[2]), key: keys[2], value: None, expires_ms: 0 };
    target.pin().commit(&[], &[delete]).expect("nothing was read");
    to.advance_clock(10_000_000);
    drain(&target);
    assert_eq!(other.objects(), 0);
    let (pull, next) = pull(&source, &table, Cursor::START, u64::MAX, 20_000);
    assert_eq!(next, None);
    let replayed = replay(&target, &other, HashRange::ALL, &pull);
    assert_eq!(replayed, Replayed { late: 3, ..Replayed::default() }, "all are of the past");
    assert!(keys.iter().all(|key| other.was_removed(key)) && other.objects() == 0);
}

#[test]
fn a_commit_removes_nothing_unknown_and_notes_no_invented_keys() {
    let to = store(4 << 20, 32 << 10, 1);
    let (target, other) = (to.core(0), table_of(&to, 1, HashRange::ALL));
    other.expect_arrivals(1, 0);
    let pin = target.pin();
    let remove = |key: &[u8]| {
        let write = crate::Write { table: &other, hash: hash(key), key, value: None, expires_ms: 0 };
        pin.commit(&[], &[write])
    };
    for number in 0..1_000_u32 {
        assert_eq!(remove(&number.to_le_bytes()), Err(crate::CommitError::Write(WriteError::NotArrived)));
    }
    let noted = || other.arrival.get().map(|arrival| arrival.removed());
    assert_eq!(noted(), Some(0));
    // All objects of a hash have arrived, and there were none: the key is absent, and no note is needed.
    other.pulled(&[hash(b"invented")]);
    assert!(remove(b"invented").is_ok() && noted() == Some(0));
    pin.put(&other, hash(b"key"), b"key", b"value", Condition::Always).expect("there is memory");
    assert!(remove(b"key").is_ok() && noted() == Some(1));
}

#[test]
fn a_key_of_which_no_removal_can_be_noted_stays_and_the_writer_comes_again() {
    let to = store(4 << 20, 32 << 10, 1);
    let (target, other) = (to.core(0), table_of(&to, 1, HashRange::ALL));
    other.expect_arrivals(1, 0);
    let arrival = other.arrival.get().expect("it arrives");
    let mut invented = 0_u64;
    while arrival.note_removal(&invented.to_le_bytes()) {
        invented += 1;
    }
    let pin = target.pin();
    let (mut key, expires_ms) = (0_u64, 5);
    // Continues up to a key that cannot be noted: some keys still find a place.
    while arrival.note_removal(format!("key {key}").as_bytes()) {
        key += 1;
    }
    let key = format!("key {key}");
    let key = key.as_bytes();
    pin.put_until(&other, hash(key), key, b"value", expires_ms, Condition::Always).expect("there is memory");
    let come_again = |error| matches!(error, WriteError::Retry { .. });
    assert!(pin.delete(&other, hash(key), key, Condition::Always).is_err_and(come_again));
    let write = crate::Write { table: &other, hash: hash(key), key, value: None, expires_ms: 0 };
    let refused = pin.commit(&[], &[write]);
    assert!(matches!(refused, Err(crate::CommitError::Write(WriteError::Retry { .. }))), "{refused:?}");
    drop(pin);
    to.advance_clock(10);
    drain(&target);
    // Cleans many times: the object moves like other live objects.
    let filler = to.table(2);
    for number in 0..100_000_u32 {
        let name = (number % 1_000).to_le_bytes();
        let put = target.pin().put(&filler, hash(&name), &name, &[7; 500], Condition::Always);
        assert!(put.is_ok() || put.is_err_and(come_again), "{put:?}");
        target.step();
    }
    assert_eq!(other.objects(), 1, "expired, and still there");
    assert!(target.pin().get(&other, hash(key), key).is_none());
    other.arrived(0, u64::MAX);
    assert_eq!(target.pin().delete(&other, hash(key), key, Condition::Always), Ok(None));
    assert_eq!((other.objects(), other.can_return()), (0, false));
}

#[test]
fn a_transfer_keeps_versions_and_expiries_and_takes_no_heed_of_quotas() {
    let (from, to) = (store(1 << 20, 32 << 10, 1), store(1 << 20, 32 << 10, 1));
    let (source, table) = (from.core(0), from.table(1));
    let full = Arc::new(Quota::new(1, 10));
    let (target, other) = (to.core(0), to.table_with(1, TableOptions::default(), &full));
    for _ in 0..5 {
        let put = source.pin().put_until(&table, hash(b"key"), b"key", b"value", 77, Condition::Always);
        put.expect("there is memory");
    }
    assert_eq!(table.version_ceiling(), 5);
    let (pull, _) = pull(&source, &table, Cursor::START, u64::MAX, 20_000);
    other.expect_arrivals(1, table.version_ceiling());
    assert_eq!(replay(&target, &other, HashRange::ALL, &pull).stored, 1);
    assert_eq!(replay(&target, &other, HashRange::ALL, &pull).late, 1, "once");
    let pinned = target.pin();
    let object = pinned.get(&other, hash(b"key"), b"key").expect("it has come");
    assert_eq!((object.version(), object.expires_ms(), object.value()), (5, 77, &b"value"[..]));
    assert!(object.verify(), "sealed anew");
}

#[test]
fn what_was_written_and_removed_since_goes_back_and_nothing_else() {
    let (from, to) = (store(4 << 20, 32 << 10, 1), store(4 << 20, 32 << 10, 1));
    let [source, target] = [&from, &to].map(|store| (store.core(0), table_of(store, 1, HashRange::ALL)));
    let put = |(core, table): &(Core, Arc<Table>), key: u32, value: &[u8]| {
        core.pin()
            .put(table, hash(&key.to_le_bytes()), &key.to_le_bytes(), value, Condition::Always)
            .expect("there is memory");
    };
    (0..300).for_each(|key| put(&source, key, b"before"));
    let ceiling = source.1.version_ceiling();
    target.1.expect_arrivals(PARTITIONS, ceiling);
    let (pull, next) = pull(&source.0, &source.1, Cursor::START, u64::MAX, 1 << 20);
    assert_eq!(next, None);
    replay(&target.0, &target.1, HashRange::ALL, &pull);
    for (partition, hashes) in target.1.partitions().iter().enumerate() {
        target.1.arrived(partition, hashes.last());
    }
    // Of the arrived keys, some are overwritten, some removed, some removed and written again; one key is new.
    (0..50).for_each(|key| put(&target, key, b"since"));
    for key in 50..100_u32 {
        target
            .0
            .pin()
            .delete(&target.1, hash(&key.to_le_bytes()), &key.to_le_bytes(), Condition::Always)
            .expect("it is there");
    }
    (90..100).for_each(|key| put(&target, key, b"again"));
    put(&target, 1_000, b"new");
    assert!(target.1.can_return());
    let mut back = Vec::new();
    let mut next = Some(Cursor::START);
    while let Some(from) = next {
        let gathered = target.0.pin().gather_since(&target.1, from, ceiling, 1 << 20, &mut back);
        next = gathered.expect("the table is there");
    }
    let low = HashRange::new(0, 1 << 63).expect("half of them");
    let high = HashRange::new((1 << 63) + 1, u64::MAX).expect("the other half");
    assert_eq!(within(&back, low).len() + within(&back, high).len(), back.len());
    let mut replayed = Replayed::default();
    source
        .0
        .pin()
        .take_back(&source.1, HashRange::ALL, &mut &back[..], &mut replayed)
        .expect("there is memory");
    assert_eq!((replayed.stored, replayed.late), (50 + 10 + 1, 0));
    let removals = target.0.pin().removals(&target.1);
    assert_eq!(removals.len(), 40);
    for place in removals {
        source.0.pin().remove_placed(&source.1, place).expect("it is there");
    }
    let value = |key: u32| {
        let key = key.to_le_bytes();
        source.0.pin().get(&source.1, hash(&key), &key).map(|object| object.value().to_vec())
    };
    assert!((0..50).all(|key| value(key).as_deref() == Some(b"since")));
    assert!((50..90).all(|key| value(key).is_none()));
    assert!((90..100).all(|key| value(key).as_deref() == Some(b"again")));
    assert!((100..300).all(|key| value(key).as_deref() == Some(b"before")));
    assert_eq!(value(1_000).as_deref(), Some(&b"new"[..]));
    target.1.end_notes();
    assert!(!target.1.can_return());
}

#[test]
fn what_is_written_where_objects_arrive_has_versions_above_the_ceiling_also_over_what_came() {
    let (from, to) = (store(1 << 20, 32 << 10, 1), store(1 << 20, 32 << 10, 1));
    let (source, table) = (from.core(0), from.table(1));
    let (target, other) = (to.core(0), table_of(&to, 1, HashRange::ALL));
    let keys: [&[u8]; 4] = [b"newest", b"put", b"incremented", b"committed"];
    for (at, key) in keys.into_iter().enumerate() {
        for _ in at..keys.len() {
            let put = source.pin().put(&table, hash(key), key, &7_i64.to_le_bytes(), Condition::Always);
            put.expect("there is memory");
        }
    }
    let ceiling = table.version_ceiling();
    assert_eq!(ceiling, 4);
    other.expect_arrivals(1, ceiling);
    let (pull, _) = pull(&source, &table, Cursor::START, u64::MAX, 20_000);
    assert_eq!(replay(&target, &other, HashRange::ALL, &pull).stored, 4);
    let pin = target.pin();
    let put = pin.put(&other, hash(keys[1]), keys[1], b"new", Condition::Always).expect("there is memory");
    let (added, _) = pin.increment(&other, hash(keys[2]), keys[2], 1).expect("a number");
    let (value, expires_ms) = (Some(&b"new"[..]), crate::NEVER_MS);
    let write = crate::Write { table: &other, hash: hash(keys[3]), key: keys[3], value, expires_ms };
    pin.commit(&[], &[write]).expect("nothing was read");
    let committed = pin.get(&other, hash(keys[3]), keys[3]).expect("it was written").version();
    assert_eq!([put, added, committed], [ceiling + 1; 3]);
}

#[test]
fn what_comes_back_is_stored_though_the_table_itself_has_once_arrived() {
    let (from, to) = (store(1 << 20, 32 << 10, 1), store(1 << 20, 32 << 10, 1));
    let (one, there) = (from.core(0), table_of(&from, 1, HashRange::ALL));
    let (other, here) = (to.core(0), table_of(&to, 1, HashRange::ALL));
    here.expect_arrivals(1, 0);
    here.arrived(0, u64::MAX);
    other.pin().put(&here, hash(b"key"), b"key", b"old", Condition::Always).expect("there is memory");
    there.expect_arrivals(1, here.version_ceiling());
    one.pin().put(&there, hash(b"key"), b"key", b"new", Condition::Always).expect("there is memory");
    let (pull, _) = pull(&one, &there, Cursor::START, u64::MAX, 20_000);
    assert_eq!(replay(&other, &here, HashRange::ALL, &pull).stored, 0, "nothing arrives any more");
    let mut replayed = Replayed::default();
    for _ in 0..2 {
        other.pin().take_back(&here, HashRange::ALL, &mut &pull[..], &mut replayed).expect("sound objects");
    }
    assert_eq!(replayed, Replayed { stored: 1, late: 1, corrupted: 0 });
    assert_eq!(other.pin().get(&here, hash(b"key"), b"key").map(|object| object.version()), Some(2));
}
