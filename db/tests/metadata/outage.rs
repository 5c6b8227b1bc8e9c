//! What an etcd can do to a server: die and come back, stand still, lose an answer, forget its history, not be there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use cluster::metadata::{Metadata, MetadataError};
use cluster::records::{
    Committed, Condition, Event, KeySpan, Query, RecordChange, Records, RecordsError, Revision, WatchEnd,
};
use control::Actor;
use db::config::EtcdAddress;
use db::etcd::Etcd;

use super::etcd_process::{EtcdProcess, Member, address_of, free_ports};
use super::patience::{PATIENCE, comes};
use super::place::write;
use super::proxy::Proxy;

fn read(records: &dyn Records, key: &str) -> Result<Option<Vec<u8>>, RecordsError> {
    let found = records.read(&[Query::all(KeySpan::one(key))], None)?.found;
    Ok(found[0].first().map(|record| record.value.clone()))
}

/// What became of an act of a writer: its text, and whether it was promised, refused or neither.
type Fate = (String, Result<u64, MetadataError>);

/// Appends acts until it is told to stop.
fn append(metadata: &Metadata, writer: usize, stop: &AtomicBool) -> Vec<Fate> {
    let mut fates = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let act = format!("{writer}-{}", fates.len());
        let given = metadata.audit_append(None, 5, Actor::Server, act.clone(), 0);
        fates.push((act, given));
        if fates.last().is_some_and(|(_, given)| given.is_err()) {
            thread::sleep(Duration::from_millis(10));
        }
    }
    fates
}

#[test]
fn what_was_promised_is_there_once_when_etcd_is_killed_in_the_middle() {
    let mut etcd = EtcdProcess::start();
    let servers = [(); 2].map(|()| Metadata::over(Box::new(etcd.client())).expect("fresh records"));
    let stop = AtomicBool::new(false);
    let fates: Vec<Fate> = thread::scope(|scope| {
        let (stop, servers) = (&stop, &servers);
        let writers: Vec<_> =
            (0..4).map(|writer| scope.spawn(move || append(&servers[writer % 2], writer, stop))).collect();
        for _ in 0..3 {
            let before = last_act(&servers[0]);
            comes(|| (last_act(&servers[0])? > before? + 5).then_some(()));
            etcd.kill();
            etcd.restart();
            comes(|| last_act(&servers[0]));
        }
        let before = last_act(&servers[1]);
        comes(|| (last_act(&servers[1])? > before? + 5).then_some(()));
        stop.store(true, Ordering::Relaxed);
        writers.into_iter().flat_map(|writer| writer.join().expect("no panic")).collect()
    });
    let acts = servers[0].audit_read(None, 0, usize::MAX).expect("it is back");
    let count = |act: &str| acts.iter().filter(|stored| stored.act == act).count();
    for (act, given) in &fates {
        match given {
            Ok(sequence) => {
                assert_eq!(count(act), 1, "{act}");
                assert!(acts.iter().any(|stored| stored.sequence == *sequence && stored.act == *act));
            }
            Err(MetadataError::Records(RecordsError::Uncertain(_))) => assert!(count(act) <= 1, "{act}"),
            Err(error) => assert_eq!(count(act), 0, "{act}: {error}"),
        }
    }
    let promised = fates.iter().filter(|(_, given)| given.is_ok()).count();
    assert!(promised > 20 && acts.len() >= promised, "{promised} of {}", acts.len());
}

fn last_act(metadata: &Metadata) -> Option<u64> {
    let acts = metadata.audit_read(None, 0, 1).ok()?;
    Some(acts.last().map_or(0, |act| act.sequence))
}

#[test]
fn an_etcd_that_stands_still_is_told_from_one_that_answers_and_nobody_queues_behind_it() {
    let etcd = EtcdProcess::start();
    let records = etcd.client();
    let held = records.lease_grant(Duration::from_secs(600)).expect("a lease");
    let first = write(&records, &[RecordChange::put("a/1", "x")]);
    etcd.pause();
    assert!(matches!(read(&records, "a/1"), Err(RecordsError::Unavailable(_))));
    // From now on nobody waits: all of these would take minutes.
    for _ in 0..100 {
        let refused = records.commit(&[], &[RecordChange::put("a/1", "lost")]);
        assert!(matches!(refused, Err(RecordsError::Unavailable(_))), "{refused:?}");
        assert!(matches!(records.lease_keep(held.lease), Err(RecordsError::Unavailable(_))));
    }
    etcd.resume();
    assert_eq!(comes(|| read(&records, "a/1").ok()), Some(b"x".to_vec()));
    let conditions = [Condition::Is("a/1".to_owned(), first)];
    assert!(matches!(records.commit(&conditions, &[RecordChange::put("a/1", "y")]), Ok(Committed::At(_))));
    assert!(records.lease_keep(held.lease).expect("it is held").until > held.until);
}

#[test]
fn a_commit_into_an_etcd_that_stands_still_happens_as_it_was_said() {
    let etcd = EtcdProcess::start();
    let records = etcd.client();
    write(&records, &[RecordChange::put("a/1", "x")]);
    etcd.pause();
    let committed = records.commit(&[], &[RecordChange::put("a/1", "y")]);
    assert!(matches!(committed, Err(RecordsError::Uncertain(_))), "{committed:?}");
    etcd.resume();
    let value = comes(|| read(&records, "a/1").ok()).expect("a record");
    assert!(value == b"x" || value == b"y");
}

/// Adds one to a number, on what others left.
fn increment(records: &dyn Records) -> Result<(), RecordsError> {
    loop {
        let reading = records.read(&[Query::all(KeySpan::one("a/number"))], None)?;
        let (condition, number) = match reading.found[0].first() {
            Some(record) => {
                let number: u64 = String::from_utf8_lossy(&record.value).parse().expect("a number");
                (Condition::Is(record.key.clone(), record.revision), number)
            }
            None => (Condition::Absent("a/number".to_owned()), 0),
        };
        let change = RecordChange::put("a/number", (number + 1).to_string());
        if let Committed::At(_) = records.commit(&[condition], &[change])? {
            return Ok(());
        }
    }
}

fn number(records: &dyn Records) -> u64 {
    let value = read(records, "a/number").expect("records answer").unwrap_or_else(|| b"0".to_vec());
    String::from_utf8_lossy(&value).parse().expect("a number")
}

#[test]
fn a_commit_whose_answer_is_lost_is_found_to_have_happened() {
    let etcd = EtcdProcess::start();
    let proxy = Proxy::start(&etcd.address().members[0]);
    let address = address_of(vec![proxy.member()]);
    let (direct, records) = (etcd.client(), Etcd::open(&address).expect("etcd answers"));
    increment(&records).expect("nothing is lost yet");
    for round in 2..=4 {
        proxy.lose_answers();
        // Without a condition: twice would go unnoticed otherwise.
        let watch = direct.watch("a/", direct.read(&[], None).expect("etcd answers").revision);
        let watch = watch.expect("etcd answers");
        let committed = thread::scope(|scope| {
            let change = RecordChange::put("a/number", round.to_string());
            let committing = scope.spawn(|| records.commit(&[], &[change]));
            let event = watch.next(PATIENCE).expect("the request gets there");
            proxy.heal();
            (committing.join().expect("no panic"), event.revision)
        });
        assert_eq!(committed.0, Ok(Committed::At(committed.1)), "as the first and only one");
        assert_eq!(number(&direct), round);
        // It is answered, so nobody sends it again: what comes next is what is written next.
        let next = write(&direct, &[RecordChange::put("a/next", round.to_string())]);
        assert_eq!(watch.next(PATIENCE).map(|event| event.revision), Ok(next), "not twice");
    }
}

#[test]
fn a_commit_that_does_not_get_there_is_made_once() {
    let etcd = EtcdProcess::start();
    let proxy = Proxy::start(&etcd.address().members[0]);
    let address = address_of(vec![proxy.member()]);
    let (direct, records) = (etcd.client(), Etcd::open(&address).expect("etcd answers"));
    increment(&records).expect("nothing is lost yet");
    for round in 2..=4 {
        proxy.lose_requests();
        thread::scope(|scope| {
            let committing = scope.spawn(|| {
                let change = RecordChange::put("a/number", (number(&direct) + 1).to_string());
                records.commit(&[], &[change])
            });
            proxy.has_lost(1);
            proxy.heal();
            let committed = committing.join().expect("no panic");
            assert!(matches!(committed, Ok(Committed::At(_))), "{committed:?}");
        });
        assert_eq!(number(&direct), round);
    }
}

#[test]
fn a_watch_goes_on_without_a_gap_when_etcd_comes_back() {
    let mut etcd = EtcdProcess::start();
    let watching = etcd.client();
    let mut at = write(&watching, &[RecordChange::put("a/0", "x")]);
    let watch = watching.watch("a/", at).expect("etcd answers");
    for round in 0..2 {
        let before = write(&watching, &[RecordChange::put("a/before", round.to_string())]);
        etcd.kill();
        etcd.restart();
        // Another server is there again first.
        let other = etcd.client();
        let after = write(&other, &[RecordChange::put("a/after", round.to_string())]);
        for (revision, key) in [(before, "a/before"), (after, "a/after")] {
            let expected =
                Event { revision, changes: vec![(key.to_owned(), Some(round.to_string().into_bytes()))] };
            assert_eq!(watch.next(PATIENCE), Ok(expected));
        }
        assert!(before > at);
        at = after;
        comes(|| read(&watching, "a/0").ok());
    }
}

#[test]
fn a_watch_of_what_is_forgotten_says_so() {
    let etcd = EtcdProcess::start();
    let records = etcd.client();
    let first = write(&records, &[RecordChange::put("a/0", "x")]);
    let mut last = first;
    for number in 0..5 {
        last = write(&records, &[RecordChange::put("a/1", number.to_string())]);
    }
    compact(&etcd, last);
    let watch = records.watch("a/", first).expect("etcd answers");
    assert_eq!(watch.next(PATIENCE), Err(WatchEnd::Lost));
    let one = [Query::all(KeySpan::one("a/1"))];
    assert_eq!(records.read(&one, Some(first)), Err(RecordsError::Overtaken));
    let reading = records.read(&one, None).expect("etcd answers");
    let watch = records.watch("a/", reading.revision).expect("etcd answers");
    let next = write(&records, &[RecordChange::put("a/1", "new")]);
    assert_eq!(watch.next(PATIENCE).map(|event| event.revision), Ok(next));
}

fn compact(etcd: &EtcdProcess, revision: Revision) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let mut client =
            etcd_client::Client::connect(etcd.address().members, None).await.expect("etcd answers");
        client.compact(revision.0 as i64, None).await.expect("it has more");
    });
}

#[test]
fn clusters_that_share_an_etcd_do_not_see_each_other() {
    let etcd = EtcdProcess::start();
    let one = Arc::new(etcd.client());
    let mut address = etcd.address();
    address.cluster = "tes".to_owned();
    let other = Etcd::open(&address).expect("etcd answers");
    write(one.as_ref(), &[RecordChange::put("a/1", "x")]);
    assert_eq!(read(&other, "a/1"), Ok(None));
    write(&other, &[RecordChange::DeletePrefix("a/".to_owned())]);
    assert_eq!(read(one.as_ref(), "a/1"), Ok(Some(b"x".to_vec())));
}

/// An etcd of three members, and how a server finds all of them.
fn trio() -> ([EtcdProcess; 3], EtcdAddress) {
    'ports: loop {
        let names = ["one", "two", "three"];
        let ports = names.map(|_| free_ports());
        let all =
            names.iter().zip(&ports).map(|(name, ports)| format!("{name}=http://127.0.0.1:{}", ports[1]));
        let all = all.collect::<Vec<_>>().join(",");
        let mut numbers = 0..3;
        let mut members = names.map(|name| {
            let ports = ports[numbers.next().expect("three")];
            EtcdProcess::begin(Member { name: name.to_owned(), ports, all: all.clone() })
        });
        for member in &mut members {
            if !member.comes_up() {
                continue 'ports;
            }
        }
        let addresses = members.iter().flat_map(|member| member.address().members).collect();
        return (members, address_of(addresses));
    }
}

#[test]
fn an_etcd_of_three_goes_on_without_any_one_of_them() {
    let (mut members, address) = trio();
    let metadata =
        Metadata::over(Box::new(Etcd::open(&address).expect("etcd answers"))).expect("fresh records");
    let watch = metadata.records().watch("counters/", Revision(1)).expect("etcd answers");
    let (mut given, mut uncertain) = (Vec::new(), 0);
    let mut give = || {
        for _ in 0..3 {
            // Members may need a while to agree who leads them.
            let id = comes(|| match metadata.server_number() {
                Err(MetadataError::Records(RecordsError::Uncertain(_))) => {
                    uncertain += 1;
                    None
                }
                other => other.ok(),
            });
            given.push(id);
        }
    };
    give();
    for member in &mut members {
        member.pause();
        give();
        member.resume();
        member.kill();
        give();
        member.restart();
        give();
    }
    assert!(given.is_sorted_by(|one, next| one < next), "each number once, in order: {given:?}");
    let (most, last) = (given.len() as u32 + uncertain, given[given.len() - 1]);
    assert!((given.len() as u32..=most).contains(&last), "{last} of {most}");
    for next in 2..=last + 1 {
        let event = watch.next(PATIENCE).expect("none is left out");
        let text = format!("{{\"next\":{next}}}");
        assert_eq!(event.changes, [("counters/server".to_owned(), Some(text.into_bytes()))]);
    }
}
