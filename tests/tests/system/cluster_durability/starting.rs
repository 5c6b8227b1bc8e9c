//! A server of a cluster while it replays its log: it serves what it owns, to clients and to functions elsewhere, and its
//! tablets stay where they are.

use std::collections::BTreeMap;

use client::{Client, Condition, Durability, Status, TableOptions};
use tests::cluster::Cluster;
use tests::effort::rounds;
use tests::package::install_source;
use tests::patience::{answered, comes};
use tests::server::{Settings, Tenant};

use super::{HALF, READS, Tireless, begin, owner, wait_for_moves};

/// Objects of the table: in a debug build the replay of those of a server takes tenths of a second.
const OBJECTS: u64 = 40_000;
/// The upper half of the upper tablet, which goes away and comes back.
const QUARTER: u64 = HALF + HALF / 2;

type Model = BTreeMap<u64, Vec<u8>>;

fn fill(client: &mut Client, table: u32) -> Model {
    let value = |key: u64| [&key.to_le_bytes()[..], &[7; 992]].concat();
    let model: Model = (0..OBJECTS).map(|key| (key, value(key))).collect();
    for together in model.iter().collect::<Vec<_>>().chunks(500) {
        let keys: Vec<_> = together.iter().map(|(key, _)| key.to_le_bytes()).collect();
        let objects: Vec<_> =
            keys.iter().zip(together).map(|(key, (_, value))| (&key[..], &value[..])).collect();
        let written = client.multi_put(table, &objects).expect("the servers answer");
        assert!(written.iter().all(Result::is_ok), "there is room");
    }
    model
}

fn is_upper(key: u64, from: u64) -> bool {
    store::hash(&key.to_le_bytes()) >= from
}

/// Reads, deletes, and writes keys of the upper half of which nobody has asked, and reads one at a function of the other
/// server.
fn use_it(client: &mut Client, table: u32, (model, round): (&mut Model, u64), here: &[u8]) {
    let of_round =
        |change: u64| (0..OBJECTS).filter(move |key| key % 200 == round * 5 + change && is_upper(*key, HALF));
    for key in of_round(0) {
        let object = client.get(table, &key.to_le_bytes()).expect("it is read ahead");
        assert!(object.map(|object| object.value) == model.get(&key).cloned(), "{key}");
    }
    for key in of_round(1) {
        let was = client.delete(table, &key.to_le_bytes()).expect("it is read ahead").is_some();
        assert_eq!(was, model.remove(&key).is_some(), "{key}");
        assert!(client.get(table, &key.to_le_bytes()).expect("an answer").is_none(), "{key}");
    }
    for key in of_round(2).filter(|key| model.contains_key(key)).collect::<Vec<_>>() {
        let bytes = key.to_le_bytes();
        let version = client.get(table, &bytes).expect("an answer").expect("it is there").version;
        let put = client.put_if(table, &bytes, &[8; 10], Condition::Version(version));
        assert!(put.expect("nobody else has it") > version, "{key}");
        model.insert(key, vec![8; 10]);
    }
    for key in of_round(3).take(20) {
        let read = comes("an answer of the function", || {
            match client.invoke("reads.one", table, here, &key.to_le_bytes()) {
                // The server there could not say in half a second.
                Ok(answer) if answer == [3] => None,
                Err(error) if error.status() == Some(Status::UnknownExtension) => None,
                answer => Some(answer.expect("an answer")),
            }
        });
        let found = (read[0] == 1).then(|| read[9..].to_vec());
        assert!(found == model.get(&key).cloned(), "{key}: {}", read[0]);
    }
}

#[test]
fn a_server_serves_what_it_owns_while_it_replays_and_nothing_that_left_comes_back() {
    let (memory, segment) = ("256MiB".into(), "1MiB".into());
    let mut cluster = Cluster::start(2, &Settings { memory, segment, ..Settings::default() });
    let numbers = cluster.numbers();
    let tenant: Tenant = cluster.servers[0].tenant("acme");
    let mut client = cluster.servers[0].client(&tenant);
    let options =
        TableOptions { durability: Some(Durability::Synced), ordered: true, ..TableOptions::default() };
    let table = answered("the table", || client.table_create_spread("data", options, 2));
    install_source(&mut client, "reads", READS).expect("an extension");
    let tablets = cluster.servers[0].admin().tablet_list().expect("tablets");
    let upper = tablets.iter().find(|tablet| tablet.first == HALF).expect("an upper half").server;
    let at = numbers.iter().position(|number| *number == upper).expect("a server");
    let other = *numbers.iter().find(|number| **number != upper).expect("two servers");
    let here = (0_u64..).find(|key| !is_upper(*key, HALF)).expect("a key").to_le_bytes();
    let mut model = fill(&mut client, table);

    // What goes and comes back lies in the log under two parts; what was deleted elsewhere must not return.
    begin(&cluster, QUARTER, other);
    wait_for_moves(&cluster);
    for key in (0..OBJECTS).filter(|key| key % 10 == 9 && is_upper(*key, QUARTER)) {
        assert!(client.delete(table, &key.to_le_bytes()).expect("the server answers").is_some());
        model.remove(&key);
    }
    begin(&cluster, QUARTER, upper);
    wait_for_moves(&cluster);

    let mut seen_at_work = 0;
    for round in 0..rounds(3, 8) as u64 {
        if round % 3 == 1 {
            assert!(cluster.servers[at].stop().success());
        } else {
            cluster.servers[at].kill();
        }
        cluster.servers[at].restart();
        let was_replaying = cluster.servers[at].is_replaying();
        if round % 2 == 0 {
            // It waits until all is there.
            let is_here = owner(&cluster.servers[0], u64::MAX) == upper;
            begin(&cluster, QUARTER, if is_here { other } else { upper });
        }
        // The client is the other server's: nothing reminds it of what it knew.
        let mut client = cluster.servers[1 - at].client(&tenant);
        use_it(&mut client, table, (&mut model, round), &here);
        seen_at_work += u32::from(was_replaying);
        println!("round {round}: at work after the requests: {}", cluster.servers[at].is_replaying());
        cluster.servers[at].await_replay();
        wait_for_moves(&cluster);
        let mut user = Tireless::new(&cluster, &tenant, table);
        comes("exact counts", || {
            let counted = user.ask(|client, _| client.table_stat_counted("data"));
            println!("{} objects, {} expected, {:?}", counted.entry.objects, model.len(), counted.uncounted);
            (counted.entry.objects == model.len() as u64 && counted.uncounted.is_empty()).then_some(())
        });
        let keys: Vec<Vec<u8>> =
            user.ask(|client, table| client.enumerate(table).map(|object| Ok(object?.key)).collect());
        assert!(keys.len() == model.len() && keys.iter().all(|key| model.contains_key(&number(key))));
    }
    assert!(seen_at_work > 0, "the server served after the replay each time");
    let mut user = Tireless::new(&cluster, &tenant, table);
    for (key, value) in model.iter().step_by(7) {
        assert!(user.get(*key).as_ref() == Some(value), "{key}");
    }
}

fn number(key: &[u8]) -> u64 {
    u64::from_le_bytes(key.try_into().expect("eight bytes"))
}
