//! Transactions of clients through real servers: all or nothing, as if one ran after the other.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use client::{
    Client, Condition, Durability, Error, KeyRange, LimitChange, Right, Status, TableOptions, Transaction,
    Write,
};
use tests::cluster::Cluster;
use tests::effort::{rng, rounds};
use tests::patience::{Stopping, answered, comes};
use tests::server::{Server, Settings, Tenant};
use wire::{Changes, CommitRead, CommitWrite, Request};

const ACCOUNTS: u64 = 12;
const BALANCE: i64 = 100;

fn account(number: u64) -> Vec<u8> {
    format!("account {number}").into_bytes()
}

fn balance(tx: &mut Transaction<'_>, table: u32, number: u64) -> Result<i64, Error> {
    let value = tx.get(table, &account(number))?.expect("every account exists");
    Ok(i64::from_le_bytes(value.try_into().expect("eight bytes")))
}

fn fill(client: &mut Client, table: u32) {
    for number in 0..ACCOUNTS {
        client.put(table, &account(number), &BALANCE.to_le_bytes()).expect("there is room");
    }
}

/// Moves money between accounts and adds them all up, from several clients at once.
fn transfer(server: &Server, tenant: &Tenant, table: u32) {
    let over = AtomicBool::new(false);
    let transfers = rounds(200, 3_000);
    thread::scope(|scope| {
        let _stopping = Stopping(&over);
        let writers: Vec<_> = (0..4)
            .map(|_| {
                let (mut client, mut random) = (server.client(tenant), rng());
                scope.spawn(move || {
                    for _ in 0..transfers {
                        let (from, amount) = (random.u64(0..ACCOUNTS), random.i64(1..50));
                        let to = (from + random.u64(1..ACCOUNTS)) % ACCOUNTS;
                        let moved = client.transaction(|tx| {
                            let sums = [balance(tx, table, from)?, balance(tx, table, to)?];
                            if sums[0] < amount {
                                return Ok(());
                            }
                            tx.put(table, &account(from), &(sums[0] - amount).to_le_bytes());
                            tx.put(table, &account(to), &(sums[1] + amount).to_le_bytes());
                            Ok(())
                        });
                        match moved {
                            Ok(()) | Err(Error::Conflict { .. }) => {}
                            Err(error) => panic!("{error}"),
                        }
                    }
                })
            })
            .collect();
        let mut reader = server.client(tenant);
        let over = &over;
        let reading = scope.spawn(move || {
            let mut sums = 0;
            while !over.load(Ordering::Relaxed) {
                let sum = reader.transaction(|tx| {
                    (0..ACCOUNTS).try_fold(0, |sum, number| Ok(sum + balance(tx, table, number)?))
                });
                match sum {
                    Ok(sum) => assert_eq!(sum, BALANCE * ACCOUNTS as i64),
                    Err(Error::Conflict { .. }) => continue,
                    Err(error) => panic!("{error}"),
                }
                sums += 1;
            }
            sums
        });
        writers.into_iter().for_each(|writer| writer.join().expect("it does not panic"));
        over.store(true, Ordering::Relaxed);
        assert!(reading.join().expect("it does not panic") > 0, "some sums were added up");
    });
    let mut client = server.client(tenant);
    let sum = client
        .transaction(|tx| (0..ACCOUNTS).try_fold(0, |sum, number| Ok(sum + balance(tx, table, number)?)));
    assert_eq!(sum.expect("nobody else writes"), BALANCE * ACCOUNTS as i64);
}

#[test]
fn transfers_keep_their_sum_and_nobody_sees_another_one() {
    for durability in [Durability::Memory, Durability::Written, Durability::Synced] {
        let server = Server::start_with(Settings { cores: 2, ..Settings::default() });
        let tenant = server.tenant("acme");
        let mut client = server.client(&tenant);
        let options = TableOptions { durability: Some(durability), ..TableOptions::default() };
        let table = client.table_create_with("accounts", options).expect("a fresh name");
        fill(&mut client, table);
        transfer(&server, &tenant, table);
    }
}

/// Each of two reads both and writes one of them: with versions of what it writes alone both would commit.
#[test]
fn two_that_read_the_same_and_write_different_objects_do_not_both_commit() {
    let server = Server::start();
    let tenant = server.tenant("acme");
    let mut client = server.client(&tenant);
    let table = client.table_create("data").expect("a fresh name");
    let mut clients = [server.client(&tenant), server.client(&tenant)];
    for round in 0..rounds(50, 500) {
        for key in [b"left", b"right" as &[u8]] {
            client.put(table, key, b"1").expect("there is room");
        }
        thread::scope(|scope| {
            for (client, own) in clients.iter_mut().zip(["left", "right"]) {
                scope.spawn(move || {
                    let left = client.transaction(|tx| {
                        let both = [tx.get(table, b"left")?, tx.get(table, b"right")?];
                        if both.iter().all(|value| value.as_deref() == Some(b"1")) {
                            tx.put(table, own.as_bytes(), b"0");
                        }
                        Ok(())
                    });
                    left.expect("at most one conflict");
                });
            }
        });
        let values = [b"left", b"right" as &[u8]]
            .map(|key| client.get(table, key).expect("an answer").expect("it exists").value);
        assert!(values.iter().any(|value| value == b"1"), "round {round}: one of them stays");
    }
}

#[test]
fn what_a_scan_did_not_find_is_not_there_when_it_commits() {
    let server = Server::start();
    let tenant = server.tenant("acme");
    let mut client = server.client(&tenant);
    let table = client.table_create_ordered("seats").expect("a fresh name");
    // Each takes the lowest free number, which it knows from all others.
    let taken = thread::scope(|scope| {
        let takers: Vec<_> = (0..4)
            .map(|_| {
                let mut client = server.client(&tenant);
                scope.spawn(move || {
                    let mut own = Vec::new();
                    for _ in 0..rounds(10, 60) {
                        let range = KeyRange { prefix: b"seat ", ..KeyRange::default() };
                        let seat = client.transaction(|tx| {
                            let number = tx.scan(table, range, usize::MAX)?.len();
                            tx.put(table, format!("seat {number:05}").as_bytes(), b"taken");
                            Ok(number)
                        });
                        match seat {
                            Ok(seat) => own.push(seat),
                            Err(Error::Conflict { key, .. }) => assert!(key.starts_with(b"seat ")),
                            Err(error) => panic!("{error}"),
                        }
                    }
                    own
                })
            })
            .collect();
        takers.into_iter().flat_map(|taker| taker.join().expect("it does not panic")).collect::<Vec<_>>()
    });
    let all: BTreeSet<usize> = taken.iter().copied().collect();
    assert_eq!(all.len(), taken.len(), "nobody has the seat of another one: {taken:?}");
    assert_eq!(all.last().copied(), taken.len().checked_sub(1), "and none is left out");
}

/// Their keys are in the table until background work removes them.
#[test]
fn objects_that_have_expired_are_no_conflict_with_a_scan() {
    let server = Server::start();
    let tenant = server.tenant("acme");
    let mut client = server.client(&tenant);
    let table = client.table_create_ordered("ordered").expect("a fresh name");
    for number in 0..200 {
        let key = format!("key {number:03}");
        let put = if number % 4 == 0 {
            client.put(table, key.as_bytes(), b"stays")
        } else {
            client.put_for(table, key.as_bytes(), b"goes", 200, Condition::Always)
        };
        put.expect("there is room");
    }
    thread::sleep(Duration::from_millis(300));
    let range = KeyRange { prefix: b"key ", ..KeyRange::default() };
    for (reverse, limit) in [(false, usize::MAX), (true, usize::MAX), (false, 20), (true, 20)] {
        let found = client.transaction(|tx| {
            let found = tx.scan(table, KeyRange { reverse, ..range }, limit)?.len();
            tx.put(table, b"elsewhere", b"");
            Ok(found)
        });
        assert_eq!(found.expect("nobody else writes"), limit.min(50));
    }
}

/// Keys that have expired beside it do not hide that what was scanned has been removed.
#[test]
fn what_was_scanned_and_removed_by_another_is_a_conflict_also_beside_what_has_expired() {
    let server = Server::start();
    let tenant = server.tenant("acme");
    let (mut client, mut other) = (server.client(&tenant), server.client(&tenant));
    let table = client.table_create_ordered("jobs").expect("a fresh name");
    for round in 0..24 {
        let key = |name: &str| format!("{round:02} {name}").into_bytes();
        for expired in ["a", "c"] {
            client.put_for(table, &key(expired), b"", 20, Condition::Always).expect("room");
        }
        client.put(table, &key("b"), b"a job").expect("room");
        let is_gone = |client: &mut Client, name| client.get(table, &key(name)).expect("an answer").is_none();
        comes("they expire", || (is_gone(&mut client, "a") && is_gone(&mut client, "c")).then_some(()));
        let mut runs = 0;
        let taken = client.transaction(|tx| {
            let range = KeyRange { prefix: &key("")[..3], reverse: round % 2 == 1, ..KeyRange::default() };
            let found = tx.scan(table, range, if round % 4 < 2 { 1 } else { 10 })?;
            if runs == 0 {
                other.delete(table, &key("b"))?;
            }
            runs += 1;
            found.iter().for_each(|job| tx.delete(table, &job.key));
            Ok(found.len())
        });
        assert_eq!((taken.expect("the second run finds nothing"), runs), (0, 2), "round {round}");
    }
}

#[test]
fn thousands_of_expired_keys_in_a_range_make_no_commit_too_large() {
    let server = Server::start();
    let mut client = server.client(&server.tenant("acme"));
    let options =
        TableOptions { ordered: true, durability: Some(Durability::Memory), ..TableOptions::default() };
    let table = client.table_create_with("ordered", options).expect("a fresh name");
    let keys: Vec<Vec<u8>> = (0..4_000).map(|number| format!("key {number:04}").into_bytes()).collect();
    let write = |key| Write { key, value: Some(b"value"), condition: Condition::Always, ttl_ms: Some(1) };
    let expired: Vec<Write<'_>> = keys.iter().map(|key| write(key)).collect();
    assert!(client.multi_write(table, &expired).expect("a session").into_iter().all(|put| put.is_ok()));
    client.put(table, b"key 9999", b"stays").expect("room");
    comes("it expires", || client.get(table, &keys[3_999]).expect("an answer").is_none().then_some(()));
    let committed = comes("the commit", || {
        let done = client.transaction(|tx| {
            let found = tx.scan(table, KeyRange { prefix: b"key ", ..KeyRange::default() }, 1)?;
            tx.put(table, b"found", &found[0].key);
            Ok(found[0].key.clone())
        });
        match done {
            Ok(key) => Some(key),
            Err(error) => {
                assert!(error.status() != Some(Status::LimitExceeded), "{error}");
                None
            }
        }
    });
    assert_eq!(committed, b"key 9999");
}

#[test]
fn a_transaction_that_is_too_large_is_refused() {
    let server = Server::start();
    let (mut client, table) = server.tenant_with_table("acme");
    for values in [3, 17] {
        let failed = client.transaction(|tx| {
            (0..values).for_each(|key: u64| tx.put(table, &key.to_le_bytes(), &vec![7; 1 << 20]));
            Ok(())
        });
        assert_eq!(failed.err().and_then(|error| error.status()), Some(Status::LimitExceeded));
    }
    let fits = client.transaction(|tx| {
        tx.put(table, b"large", &vec![7; 1 << 20]);
        Ok(())
    });
    fits.expect("it fits");
    assert_eq!(client.get(table, b"large").expect("an answer").expect("it exists").value.len(), 1 << 20);
}

#[test]
fn a_transaction_sees_its_own_writes_and_leaves_nothing_after_an_error() {
    let server = Server::start();
    let (mut client, table) = server.tenant_with_table("acme");
    client.put(table, b"old", b"1").expect("there is room");
    let seen = client.transaction(|tx| {
        tx.put(table, b"new", b"2");
        tx.delete(table, b"old");
        Ok([tx.get(table, b"new")?, tx.get(table, b"old")?, tx.get(table, b"none")?])
    });
    assert_eq!(seen.expect("nobody else writes"), [Some(b"2".to_vec()), None, None]);
    assert!(client.get(table, b"old").expect("an answer").is_none());
    let failed: Result<(), Error> = client.transaction(|tx| {
        tx.put(table, b"new", b"3");
        Err(Error::NotSent)
    });
    assert!(matches!(failed, Err(Error::NotSent)));
    assert_eq!(client.get(table, b"new").expect("an answer").expect("it exists").value, b"2");
    let expires = client.transaction(|tx| {
        tx.put_for(table, b"soon", b"4", 60_000);
        Ok(())
    });
    expires.expect("nobody else writes");
    assert!(client.get(table, b"soon").expect("an answer").expect("it exists").ttl_ms.is_some());
}

#[test]
fn who_is_always_in_conflict_hears_of_the_key() {
    let server = Server::start();
    let tenant = server.tenant("acme");
    let [mut client, mut other] = [(); 2].map(|()| server.client(&tenant));
    let table = client.table_create("data").expect("a fresh name");
    let mut runs = 0;
    let failed = client.transaction(|tx| {
        tx.get(table, b"quiet")?;
        tx.get(table, b"contended")?;
        other.put(table, b"contended", b"again")?;
        tx.put(table, b"quiet", b"never");
        runs += 1;
        Ok(())
    });
    let Err(Error::Conflict { table: of, key }) = failed else { panic!("{failed:?}") };
    assert_eq!((of, &*key, runs), (table, b"contended" as &[u8], 32));
    assert!(client.get(table, b"quiet").expect("an answer").is_none());
}

#[test]
fn forged_commits_change_nothing() {
    let server = Server::start();
    let (mut owner, table) = server.tenant_with_table("acme");
    let stranger = server.tenant("eve");
    owner.put(table, b"key", b"value").expect("there is room");
    owner.grant("data", "eve", Right::Read).expect("it may");
    let mut eve = server.client(&stranger);
    let own = eve.table_create("own").expect("a fresh name");
    let granted = eve.table_open("acme/data").expect("it may");
    let mut answer = Vec::new();
    let mut commit = |client: &mut Client, reads: &[CommitRead<'_>], writes: &[CommitWrite<'_>]| {
        let changes = Changes::listed(reads, &[], writes);
        client.session().call(&Request::Commit { changes }, &mut answer).expect("an answer")
    };
    let write = |table| CommitWrite { table, key: b"key", value: Some(b"forged"), ttl_ms: None };
    let read = |table, version| CommitRead { table, key: b"key", version };
    // A version of the future, and one that never was.
    for version in [1, u64::MAX >> 10, u64::MAX] {
        assert_eq!(commit(&mut eve, &[read(own, version)], &[write(own)]), Status::Conflict);
    }
    assert_eq!(commit(&mut eve, &[], &[write(table)]), Status::UnknownTable, "not under the owner's number");
    assert_eq!(commit(&mut eve, &[read(own, 0)], &[write(own), write(granted)]), Status::NotPermitted);
    assert_eq!(commit(&mut eve, &[], &[write(own), write(u32::MAX)]), Status::UnknownTable);
    assert!(eve.get(own, b"key").expect("an answer").is_none(), "all or nothing");
    let version = owner.get(table, b"key").expect("an answer").expect("it exists").version;
    assert_eq!(
        commit(&mut eve, &[read(granted, version)], &[write(own)]),
        Status::Ok,
        "what it may read counts"
    );
    let limit = LimitChange { limit: "invocation_writes", value: Some(1) };
    server.admin().tenant_limits_set("eve", &[limit]).expect("a limit");
    let two = [write(own), CommitWrite { key: b"other", ..write(own) }];
    assert_eq!(commit(&mut eve, &[], &two), Status::LimitExceeded);
    owner.grant_revoke(client::Subject::Table, "data", "eve").expect("it was given");
    assert_eq!(commit(&mut eve, &[read(granted, version)], &[write(own)]), Status::UnknownTable);
    assert_eq!(owner.get(table, b"key").expect("an answer").expect("it exists").value, b"value");
}

#[test]
fn keys_of_several_servers_are_refused_by_name_and_those_of_a_tag_commit() {
    let cluster = Cluster::start(2, &Settings::default());
    cluster.numbers();
    let tenant = cluster.servers[0].tenant("acme");
    let mut client = cluster.servers[0].client(&tenant);
    let options = TableOptions { tagged: true, ..TableOptions::default() };
    let table = answered("the table", || client.table_create_spread("data", options, 8));
    let key = |tag: u64, name: &str| format!("{{{tag}}}{name}").into_bytes();
    for tag in 0..20 {
        let sum = client.transaction(|tx| {
            tx.get(table, &key(tag, "one"))?;
            tx.put(table, &key(tag, "one"), b"1");
            tx.put(table, &key(tag, "other"), b"2");
            Ok(())
        });
        sum.expect("one tag is one server");
        assert_eq!(client.get(table, &key(tag, "other")).expect("an answer").expect("it exists").value, b"2");
    }
    // Two tables of one server, of which a client knows nothing yet.
    let tables: Vec<u32> = (0..3)
        .map(|number| answered("a table", || client.table_create(&format!("whole-{number}"))))
        .collect();
    let tablets = answered("the tablets", || cluster.servers[0].admin().tablet_list());
    let owner = |table: u32| tablets.iter().find(|tablet| tablet.id == table).map(|tablet| tablet.server);
    let pair = [(0, 1), (0, 2), (1, 2)].map(|(one, other)| (tables[one], tables[other]));
    let mut pairs = pair.into_iter().filter(|(one, other)| owner(*one) == owner(*other));
    let (one, other) = pairs.next().expect("two servers have three tables");
    for server in &cluster.servers {
        comes("a commit in two tables of one server", || {
            let done = server.client(&tenant).transaction(|tx| {
                tx.get(one, b"key")?;
                tx.put(other, b"key", b"value");
                Ok(())
            });
            done.is_ok().then_some(())
        });
    }
    let failed = client.transaction(|tx| {
        (0..20).for_each(|tag| tx.put(table, &key(tag, "one"), b"3"));
        Ok(())
    });
    let text = failed.as_ref().err().map(ToString::to_string).unwrap_or_default();
    assert_eq!(failed.err().and_then(|error| error.status()), Some(Status::NotLocal), "{text}");
    assert!(text.contains("{0}one") && text.contains("different servers"), "{text}");
    for tag in 0..20 {
        assert_eq!(client.get(table, &key(tag, "one")).expect("an answer").expect("it exists").value, b"1");
    }
}

#[test]
fn a_key_that_has_expired_among_thousands_does_not_make_a_commit_too_large() {
    let server = Server::start();
    let mut client = server.client(&server.tenant("acme"));
    let options =
        TableOptions { ordered: true, durability: Some(Durability::Memory), ..TableOptions::default() };
    let table = client.table_create_with("ordered", options).expect("a fresh name");
    let keys: Vec<Vec<u8>> = (0..2_000).map(|number| format!("key {number:04}").into_bytes()).collect();
    let objects: Vec<(&[u8], &[u8])> = keys.iter().map(|key| (&key[..], &b"value"[..])).collect();
    assert!(client.multi_put(table, &objects).expect("a session").into_iter().all(|put| put.is_ok()));
    client.put_for(table, b"key 1000 gone", b"value", 1, Condition::Always).expect("room");
    comes("it expires", || client.get(table, b"key 1000 gone").expect("an answer").is_none().then_some(()));
    let scanned = client.transaction(|tx| {
        let range = KeyRange { prefix: b"key ", ..KeyRange::default() };
        let objects = tx.scan(table, range, usize::MAX)?;
        tx.put(table, b"number", &(objects.len() as u64).to_le_bytes());
        Ok(objects.len())
    });
    assert_eq!(scanned.expect("it is committed"), 2_000);
}
