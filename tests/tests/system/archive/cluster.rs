//! Archives of a cluster: each key once, whatever moves while the servers are read, and back at any number of servers.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use client::{Client, Durability, MigrationMode, OwnedPositions, Status, TableOptions, archived_keys};
use serde_json::Value;
use tests::cluster::Cluster;
use tests::effort::{rng, rounds};
use tests::package::install_source;
use tests::patience::{Stopping, answered, comes};
use tests::server::{Settings, Tenant};

use super::{
    ACCOUNTS, AMOUNT, TRANSFER, administrator, all, archive, create, fill, name_of, start, sum, text,
    transfer,
};

/// Two servers and the tenant `ann`, whose tables `hash` and `ordered` have tablets at both.
fn cluster() -> (Cluster, Tenant, Client) {
    let (memory, segment) = ("128MiB".into(), "1MiB".into());
    let cluster = Cluster::start(2, &Settings { memory, segment, ..Settings::default() });
    cluster.numbers();
    let ann = cluster.servers[0].tenant("ann");
    let mut client = cluster.servers[0].client(&ann);
    let synced = TableOptions { durability: Some(Durability::Synced), ..TableOptions::default() };
    let hash = answered("the table", || client.table_create_spread("hash", synced, 4));
    let ordered = create(&mut client, "ordered", Durability::Synced, true);
    for table in [hash, ordered] {
        fill(&mut client, table);
    }
    (cluster, ann, client)
}

/// Moves tablets of the tenant, or the upper halves of some, back and forth until `stop`.
fn keep_moving(cluster: &Cluster, stop: &AtomicBool) {
    let (mut rng, numbers) = (rng(), cluster.numbers());
    while !stop.load(Ordering::Relaxed) {
        let mut admin = cluster.servers[0].admin();
        let Ok(tablets) = admin.tablet_list() else { continue };
        let tablet = &tablets[rng.usize(..tablets.len())];
        let to = *numbers.iter().find(|number| **number != tablet.server).expect("two servers");
        // So that a part stays of which another server owns some hashes.
        let is_parted = tablet.table == "ann/hash" && tablets.len() < 80 && rng.bool();
        let first =
            if is_parted { tablet.first + (tablet.last - tablet.first) / 2 + 1 } else { tablet.first };
        let positions = first..=tablet.last;
        // A tablet that moves already does not move.
        let _ = admin.migration_begin(&tablet.table, positions, to, MigrationMode::Rocksteady);
    }
}

/// The live keys of tables in archives that begin now at all servers; `None` if tablets moved in between.
fn live_keys(clients: &mut [Client]) -> Option<usize> {
    let begin = |client: &mut Client| match client.archive_begin() {
        Err(error) if error.status() == Some(Status::WrongTablets) => None,
        begun => Some(begun.expect("it begins")),
    };
    let begun: Vec<_> = clients.iter_mut().map(begin).collect::<Option<_>>()?;
    let mut owned: Vec<_> = begun.iter().flat_map(|begun| &begun.owned).collect();
    owned.sort_by_key(|owned| (owned.table, owned.first));
    let follows = |pair: &[&OwnedPositions]| match pair[0].table == pair[1].table {
        true => pair[0].last.checked_add(1) == Some(pair[1].first),
        false => pair[0].last == u64::MAX && pair[1].first == 0,
    };
    let (first, last) = (owned.first()?, owned.last()?);
    if first.first > 0 || last.last < u64::MAX || !owned.windows(2).all(follows) {
        return None;
    }
    let mut live = 0;
    for (client, begun) in clients.iter_mut().zip(&begun) {
        let mut newest: BTreeMap<u128, (u64, bool)> = BTreeMap::new();
        for number in 0.. {
            let piece = client.archive_read(begun.id, number, true).expect("a piece");
            for key in archived_keys(&piece.records.0).expect("keys") {
                let known = newest.entry(key.hash).or_default();
                *known = (key.version, key.ends).max(*known);
            }
            if piece.is_last {
                break;
            }
        }
        live += newest.values().filter(|(_, ends)| !ends).count();
    }
    Some(live)
}

#[test]
fn what_servers_say_to_own_is_in_their_archives_whatever_comes_and_leaves_meanwhile() {
    let (cluster, ann, mut client) = cluster();
    let live = all(&mut client, "hash").len() + all(&mut client, "ordered").len();
    let mut clients: Vec<_> = cluster.servers.iter().map(|server| server.client(&ann)).collect();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let _stopping = Stopping(&stop);
        scope.spawn(|| keep_moving(&cluster, &stop));
        let mut whole = 0;
        for _ in 0..rounds(8, 100) {
            if let Some(found) = live_keys(&mut clients) {
                assert_eq!(found, live, "live keys");
                whole += 1;
            }
        }
        println!("{whole} beginnings between two moves");
        assert!(whole > 0);
    });
}

#[test]
fn an_archive_of_a_cluster_has_every_key_once_though_tablets_move_and_comes_back_anywhere() {
    let (cluster, ann, mut client) = cluster();
    let place = tempfile::tempdir().expect("a directory");
    let accounts = create(&mut client, "accounts", Durability::Written, false);
    for account in 0..ACCOUNTS {
        client.put(accounts, &account.to_le_bytes(), &AMOUNT.to_le_bytes()).expect("there is room");
    }
    create(&mut client, "volatile", Durability::Memory, false);
    install_source(&mut client, "transfer", TRANSFER).expect("it is built");
    let server = &cluster.servers[0];
    let (code, said) =
        archive(administrator(server, &ann), &["create", "--to", text(place.path()), "--tenant", "ann"])
            .expect_err("one server has not all");
    assert!(
        said["next"].as_str().is_some_and(|next| next.contains("the tenant's own secret")),
        "{code:?} {said}"
    );

    let stop = AtomicBool::new(false);
    let to = ["create", "--to", text(place.path())];
    let from = ["--from", text(place.path())];
    let names = thread::scope(|scope| {
        let (stop, cluster) = (&stop, &cluster);
        let _stopping = Stopping(stop);
        let mut writer = cluster.servers[1].client(&ann);
        comes("the other server has heard of the extension", || writer.resolve("transfer.transfer").ok());
        scope.spawn(move || transfer(&mut writer, accounts, stop));
        scope.spawn(move || keep_moving(cluster, stop));
        (0..rounds(2, 10))
            .map(|_| {
                let created = comes("an archive", || {
                    let failed = |error: &_| println!("{error:?}");
                    archive(server.command(&ann), &to).inspect_err(failed).ok()
                });
                assert_eq!(created[0]["left_out"][0], "volatile");
                assert_eq!(created[0]["cuts"].as_array().map(Vec::len), Some(2), "{created}");
                name_of(&created)
            })
            .collect::<Vec<_>>()
    });
    archive(server.command(&ann), &[&["verify"][..], &from].concat()).expect("they are whole");
    comes("the end of all moves", || server.admin().migration_list().ok()?.is_empty().then_some(()));
    let alone = start();
    for (at, name) in names.iter().enumerate() {
        let target = if at == 0 { &alone } else { server };
        let new = format!("new{at}");
        let restore = [&["restore", name, "--as", &new][..], &from].concat();
        let restored = archive(administrator(target, &ann), &restore).expect("it is restored");
        assert_eq!(restored["expired"], Value::from(0), "{restored}");
        let secret = restored["secret"].as_str().expect("a secret").to_owned();
        let mut copy = target.client(&Tenant { name: new.clone(), secret });
        assert_eq!(sum(&mut copy), ACCOUNTS * AMOUNT, "{name}");
        for table in ["hash", "ordered"] {
            assert!(all(&mut copy, table) == all(&mut client, table), "{table} of {name} is another");
        }
        if at > 0 {
            let tablets = server.admin().tablet_list().expect("tablets");
            let hash = format!("{new}/hash");
            assert!(tablets.iter().filter(|tablet| tablet.table == hash).count() >= 4, "{tablets:?}");
            server.admin().tenant_drop(&new).expect("it goes");
        }
    }
}
