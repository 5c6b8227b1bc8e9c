//! Tests of several threads on one store: nothing is lost, no reader sees half a commit, counts are exact.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::tests::{budget, delete_patiently, drain, put_patiently, seed, store};
use crate::{
    CommitError, Condition, Core, Cursor, NEVER_MS, ReadCheck, Store, Table, Write, WriteError, hash,
};

/// Runs `work` on one thread per core.
fn on_cores<T: Send>(store: &Arc<Store>, cores: usize, work: impl Fn(&Core, usize) -> T + Sync) -> Vec<T> {
    let work = &work;
    thread::scope(|scope| {
        let run = |index| {
            let core = store.core(index);
            scope.spawn(move || work(&core, index))
        };
        let threads: Vec<_> = (0..cores).map(run).collect();
        threads.into_iter().map(|thread| thread.join().expect("no thread panics")).collect()
    })
}

#[test]
fn no_increment_is_lost() {
    let store = store(1 << 20, 16 << 10, 4);
    let table = store.table(1);
    let seed = seed("no_increment_is_lost");
    let rounds = budget(20_000);
    let sums = on_cores(&store, 4, |core, index| {
        let mut random = fastrand::Rng::with_seed(seed + index as u64);
        let mut sum = 0;
        for _ in 0..rounds {
            let (key, delta) = ([random.u8(0..20); 3], random.i64(-5..9));
            let added = core.pin().increment(&table, hash(&key), &key, delta);
            match added {
                Ok(_) => sum += delta,
                Err(error) => assert!(matches!(error, WriteError::Retry { .. }), "{error}"),
            }
            core.step();
        }
        sum
    });
    let core = store.core(0);
    let pinned = core.pin();
    let number = |key: u8| {
        let object = pinned.get(&table, hash(&[key; 3]), &[key; 3]);
        object.map_or(0, |object| i64::from_le_bytes(object.value().try_into().expect("a number")))
    };
    assert_eq!((0..20).map(number).sum::<i64>(), sums.iter().sum::<i64>());
}

/// Writers put, delete and insert beside readers that check every object they find; keys that are never
/// deleted are always found, while the index grows under them and the cleaner moves them.
#[test]
fn readers_always_find_what_is_there() {
    let store = store(4 << 20, 16 << 10, 4);
    let table = store.table(1);
    let seed = seed("readers_always_find_what_is_there");
    let fixed = if cfg!(miri) { 20 } else { 500_u64 };
    let rounds = budget(40_000);
    {
        let core = store.core(0);
        for number in 0..fixed {
            put_patiently(&core, &table, &number.to_le_bytes(), &[0; 64]).expect("there is memory");
        }
    }
    let done = AtomicBool::new(false);
    on_cores(&store, 4, |core, index| {
        let mut random = fastrand::Rng::with_seed(seed + index as u64);
        if index >= 2 {
            while !done.load(Ordering::Acquire) {
                check_fixed(core, &table, random.u64(0..fixed));
            }
            return;
        }
        for round in 0..rounds as u64 {
            let number = random.u64(0..fixed);
            put_patiently(core, &table, &number.to_le_bytes(), &[random.u8(..); 64])
                .expect("there is memory");
            let passing = (1 << 32) + index as u64 * 10_000 + round % 5000;
            let key = passing.to_le_bytes();
            if round / 5000 % 2 == 0 {
                put_patiently(core, &table, &key, &[random.u8(..); 32]).expect("there is memory");
            } else {
                delete_patiently(core, &table, &key).expect("deletes need no memory");
            }
            core.step();
        }
        done.store(true, Ordering::Release);
    });
    let core = store.core(0);
    drain(&core);
    let pinned = core.pin();
    assert!(
        (0..fixed).all(|number| {
            pinned.get(&table, hash(&number.to_le_bytes()), &number.to_le_bytes()).is_some()
        })
    );
}

fn check_fixed(core: &Core, table: &Table, number: u64) {
    let key = number.to_le_bytes();
    let pinned = core.pin();
    let object = pinned.get(table, hash(&key), &key).expect("it is never deleted");
    let first = object.value()[0];
    assert!(object.value().len() == 64 && object.value().iter().all(|&byte| byte == first));
    let again = pinned.get(table, hash(&key), &key).expect("it is never deleted");
    assert!(again.version() >= object.version(), "versions grow");
    drop(pinned);
    core.step();
}

fn amount(core: &Core, table: &Table, account: u32) -> (u64, i64) {
    let key = account.to_le_bytes();
    let pinned = core.pin();
    let object = pinned.get(table, hash(&key), &key).expect("accounts stay");
    (object.version(), i64::from_le_bytes(object.value().try_into().expect("a number")))
}

/// Transfers between accounts while readers read all of them: the sum is constant.
#[test]
fn nobody_sees_half_a_commit() {
    const ACCOUNTS: u32 = 12;
    let store = store(1 << 20, 16 << 10, 4);
    let table = store.table(1);
    let seed = seed("nobody_sees_half_a_commit");
    let rounds = budget(20_000);
    {
        let core = store.core(0);
        for account in 0..ACCOUNTS {
            put_patiently(&core, &table, &account.to_le_bytes(), &100_i64.to_le_bytes())
                .expect("there is memory");
        }
    }
    let done = AtomicBool::new(false);
    let commits = on_cores(&store, 4, |core, index| {
        let mut random = fastrand::Rng::with_seed(seed + index as u64);
        let mut commits = 0;
        if index == 0 {
            while !done.load(Ordering::Acquire) {
                let pinned = core.pin();
                let keys: Vec<_> = (0..ACCOUNTS).map(u32::to_le_bytes).collect();
                let lookups: Vec<_> = keys.iter().map(|key| (hash(key), key.as_slice())).collect();
                let mut objects = vec![None; keys.len()];
                while pinned.get_many(&table, &lookups, &mut objects).is_err() {}
                let value =
                    |object: crate::Object<'_>| i64::from_le_bytes(object.value().try_into().expect("8"));
                let sum: i64 = objects.into_iter().map(|object| value(object.expect("accounts stay"))).sum();
                assert_eq!(sum, 100 * i64::from(ACCOUNTS));
            }
            return 0;
        }
        for _ in 0..rounds {
            let (from, to) = (random.u32(0..ACCOUNTS), random.u32(0..ACCOUNTS));
            commits += u32::from(from != to && transfer(core, &table, from, to));
            core.step();
        }
        done.store(true, Ordering::Release);
        commits
    });
    assert!(commits.iter().sum::<u32>() > 0);
}

fn transfer(core: &Core, table: &Table, from: u32, to: u32) -> bool {
    let (from_read, to_read) = (amount(core, table, from), amount(core, table, to));
    let (from, to) = (from.to_le_bytes(), to.to_le_bytes());
    let read = |key, version| ReadCheck { table, hash: hash(key), key, version };
    let write = |key, value| Write { table, hash: hash(key), key, value: Some(value), expires_ms: NEVER_MS };
    let (less, more) = ((from_read.1 - 1).to_le_bytes(), (to_read.1 + 1).to_le_bytes());
    let reads = [read(&from, from_read.0), read(&to, to_read.0)];
    match core.pin().commit(&reads, &[write(&from, &less), write(&to, &more)]) {
        Ok(_) => true,
        Err(CommitError::Conflict { .. } | CommitError::Write(WriteError::Retry { .. })) => false,
        Err(error) => panic!("{error}"),
    }
}

/// Two keys are always committed together; of two consecutive reads, the second never shows an older commit.
#[test]
fn single_reads_in_a_row_do_not_see_half_a_commit() {
    let store = store(1 << 20, 16 << 10, 2);
    let table = store.table(1);
    let rounds = budget(30_000) as u64;
    let commit_both = |core: &Core, number: u64| {
        let value = number.to_le_bytes();
        let write =
            |key| Write { table: &table, hash: hash(key), key, value: Some(&value), expires_ms: NEVER_MS };
        core.pin().commit(&[], &[write(b"a"), write(b"b")])
    };
    commit_both(&store.core(0), 0).expect("there is memory");
    let done = AtomicBool::new(false);
    on_cores(&store, 2, |core, index| {
        let number = |key: &[u8]| {
            let pinned = core.pin();
            let object = pinned.get(&table, hash(key), key).expect("it stays");
            u64::from_le_bytes(object.value().try_into().expect("a number"))
        };
        if index == 0 {
            while !done.load(Ordering::Acquire) {
                let (a, b) = (number(b"a"), number(b"b"));
                assert!(a <= b, "b was read later");
                let (b, a) = (number(b"b"), number(b"a"));
                assert!(b <= a, "a was read later");
            }
            return;
        }
        for round in 1..=rounds {
            let committed = commit_both(core, round);
            assert!(matches!(committed, Ok(_) | Err(CommitError::Write(WriteError::Retry { .. }))));
            core.step();
        }
        done.store(true, Ordering::Release);
    });
}

#[test]
fn counts_are_exact_when_all_is_quiet() {
    let store = store(4 << 20, 16 << 10, 3);
    let table = store.table(1);
    let seed = seed("counts_are_exact_when_all_is_quiet");
    on_cores(&store, 3, |core, index| {
        let mut random = fastrand::Rng::with_seed(seed + index as u64);
        for _ in 0..budget(20_000) {
            let key = random.u16(0..2000).to_le_bytes();
            if random.bool() {
                let value = vec![1; random.usize(0..200)];
                put_patiently(core, &table, &key, &value).expect("there is memory");
            } else {
                delete_patiently(core, &table, &key).expect("deletes need no memory");
            }
            core.step();
        }
    });
    let core = store.core(0);
    let pinned = core.pin();
    let keys = (0..2000_u16).map(u16::to_le_bytes);
    let found: Vec<_> = keys
        .filter_map(|key| pinned.get(&table, hash(&key), &key).map(|object| object.log_bytes()))
        .collect();
    assert_eq!(table.objects(), found.len() as u64);
    assert_eq!(table.bytes(), found.iter().sum::<usize>() as u64);
}

/// Threads fill a new table as fast as they can while the thread that grows its index sometimes loses its core.
#[test]
fn filling_a_new_table_at_once_is_never_refused_for_good() {
    for _ in 0..budget(60).min(600) {
        let store = store(4 << 20, 16 << 10, 4);
        let table = store.table(1);
        let each = if cfg!(miri) { 60 } else { 1500_u64 };
        on_cores(&store, 4, |core, index| {
            for number in 0..each {
                let key = (number << 8 | index as u64).to_le_bytes();
                put_patiently(core, &table, &key, b"v").expect("it is only a matter of time");
            }
        });
        assert_eq!(table.objects(), 4 * each);
        if cfg!(miri) {
            return;
        }
    }
}

/// Says so at its end.
struct Done<'d>(&'d AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// The cleaner moves objects between the look at them and their removal.
#[test]
fn what_is_discarded_or_expires_is_gone_though_the_cleaner_moves_it_meanwhile() {
    let store = store(1 << 20, 16 << 10, 2);
    let (table, others) = (store.table(1), [store.table(2), store.table(3)]);
    let (rounds, done) = (budget(30).min(1_000) as u64, AtomicBool::new(false));
    let overwrite = |core: &Core, number: u64| {
        let key = (number % 64).to_le_bytes();
        put_patiently(core, &others[core.index()], &key, &[1; 100]).expect("there is memory");
    };
    on_cores(&store, 2, |core, index| {
        if index == 1 {
            for number in 0.. {
                overwrite(core, number);
                core.step();
                if done.load(Ordering::Acquire) {
                    return;
                }
            }
        }
        // Also a test that fails ends the other thread.
        let _done = Done(&done);
        let mut now_ms = 1;
        for round in 0..rounds {
            let expires_ms = if round % 2 == 0 { NEVER_MS } else { now_ms + 1 };
            for number in 0..6_000_u64 {
                let (key, value) = (number.to_le_bytes(), [2; 50]);
                let put = || {
                    let pinned = core.pin();
                    pinned.put_until(&table, hash(&key), &key, &value, expires_ms, Condition::Always).ok()
                };
                while put().is_none() {
                    core.step();
                }
                // So that half of each segment is dead.
                overwrite(core, number);
            }
            if expires_ms == NEVER_MS {
                let mut from = Some(Cursor::before(0));
                while let Some(at) = from {
                    from = core.pin().discard(&table, at, u64::MAX).expect("the table is there");
                }
            } else {
                let begun = Instant::now();
                while table.objects() > 0 {
                    let is_late = begun.elapsed() > Duration::from_secs(60);
                    assert!(!is_late, "round {round}: no walk comes for {}", table.objects());
                    // Walks come again after a rest.
                    now_ms += 1;
                    store.advance_clock(now_ms);
                    core.step();
                }
            }
            assert_eq!(table.objects(), 0, "round {round}");
        }
    });
}
