//! Servers that are cut off from etcd, from each other, or from both, while clients reach them, and tablets are on the move.

use std::net::SocketAddr;
use std::thread;

use cluster::metadata::Metadata;
use cluster::migration::MigrationPhase;
use cluster::moment::Moment;
use db::config::Config;
use db::etcd::Etcd;
use net::Listener;
use store::HashRange;
use wire::{Request, Status};

use super::cluster::metadata;
use super::etcd_process::{EtcdProcess, address_of};
use super::migration::{Pair, Table, key};
use super::patience::comes;
use super::proxy::Proxy;
use super::{Site, config, no_toolchain};

/// A pair of servers, each of which reaches etcd by a way of its own, and is reached by the other one so.
struct Ways {
    pair: Pair,
    etcd: [Proxy; 2],
    peers: [Proxy; 2],
}

impl Ways {
    fn start() -> Self {
        let etcd = EtcdProcess::start();
        let direct = metadata(&etcd);
        let to_etcd = [(); 2].map(|()| Proxy::start(&etcd.address().members[0]));
        let directories = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
        let begin = |site: usize| {
            let listener = Listener::bind(([127, 0, 0, 1], 0).into()).expect("a listener");
            let peers = Proxy::start(&listener.local().expect("its address").to_string());
            let reached: SocketAddr = peers.member().parse().expect("an address");
            let config = Config { advertise: Some(reached), ..config(directories[site].path(), 1) };
            let address = address_of(vec![to_etcd[site].member()]);
            let metadata = Metadata::over(Box::new(Etcd::open(&address).expect("etcd answers")));
            let metadata = metadata.expect("records of this format");
            (Site::start_at(listener, &config, 1, metadata, no_toolchain()), peers)
        };
        let [(one, to_one), (other, to_other)] = [0, 1].map(begin);
        let pair = Pair { sites: [one, other], _directories: directories, metadata: direct, _etcd: etcd };
        Self { pair, etcd: to_etcd, peers: [to_one, to_other] }
    }

    /// Whether a server has heard of a migration.
    fn has_heard(&self, site: usize, id: u32) -> bool {
        let control = self.pair.sites[site].server.control();
        let shown = control.migrations.as_ref().map(|migrations| migrations.shown());
        shown.is_some_and(|shown| shown.iter().any(|one| one.row.id == id))
    }

    fn is_registered(&self, site: usize) -> bool {
        self.pair.sites[site].server.control().lease_cache.is_held(Moment::now())
    }
}

/// Whether a server does what it is asked for with a key.
fn serves(table: &mut Table, site: usize, number: u64) -> bool {
    let (table, client) = (table.number, &mut table.clients[site]);
    let status = client.status(&Request::Get { table, key: &key(number) });
    assert!(matches!(status, Status::Ok | Status::NotFound | Status::NotOwned), "{status:?}");
    status != Status::NotOwned
}

fn upper() -> HashRange {
    HashRange::new(1 << 63, u64::MAX).expect("half of them")
}

/// A key that is on the move, and one that is not.
fn keys() -> [u64; 2] {
    let is_upper = |number: &u64| upper().contains(store::hash(&key(*number)));
    [(0..).find(is_upper).expect("one"), (0..).find(|number| !is_upper(number)).expect("one")]
}

/// Functions, and what they are called.
macro_rules! named {
    ($($function:ident),+ $(,)?) => { [$((stringify!($function), $function as fn())),+] };
}

/// What they wait for are leases that end, ten seconds and more in which they need no processor: so they wait together.
/// Who fails is named by its thread.
#[test]
fn servers_that_are_cut_off_serve_what_nobody_else_may_and_nothing_more() {
    let cases = named![
        a_source_without_etcd_hands_over_what_the_target_owns_by_then,
        a_source_that_is_cut_off_stops_serving_what_moves_before_the_target_does_and_goes_on_with_the_rest,
        a_source_that_was_cut_off_for_a_while_serves_again_what_is_still_its_own,
        a_target_that_is_cut_off_in_mid_move_serves_nobody_before_the_source_does,
    ];
    thread::scope(|scope| {
        for (name, case) in cases {
            let thread = thread::Builder::new().name(name.to_owned());
            thread.spawn_scoped(scope, case).expect("a thread");
        }
    });
}

/// Begins to move half of a table, and takes care that its source knows before the target does.
fn begin(ways: &Ways, table: &Table) -> u32 {
    ways.etcd[1].cut();
    let row = ways.pair.begin(table, upper(), 1);
    comes(|| ways.has_heard(0, row.id).then_some(()));
    row.id
}

fn a_source_without_etcd_hands_over_what_the_target_owns_by_then() {
    let ways = Ways::start();
    let mut table = ways.pair.table();
    (0..500).for_each(|number| table.put(number, b"a value"));
    begin(&ways, &table);
    ways.etcd[0].cut();
    ways.etcd[1].heal();
    let [moves, _] = keys();
    comes(|| serves(&mut table, 1, moves).then_some(()));
    assert!(!serves(&mut table, 0, moves));
    table.check(0..500);
    ways.etcd[0].heal();
    comes(|| ways.pair.metadata.migrations().expect("etcd answers").is_empty().then_some(()));
    table.check(0..500);
}

fn a_source_that_is_cut_off_stops_serving_what_moves_before_the_target_does_and_goes_on_with_the_rest() {
    let ways = Ways::start();
    let mut table = ways.pair.table();
    (0..500).for_each(|number| table.put(number, b"a value"));
    let id = begin(&ways, &table);
    let [moves, stays] = keys();
    ways.etcd[0].cut();
    ways.peers[0].cut();
    // As a target does that the source never hears again of.
    let advance = ways.pair.metadata.migration_advance(id, MigrationPhase::Preparing, MigrationPhase::Moving);
    assert_eq!(advance.expect("etcd answers").phase, MigrationPhase::Moving);
    // On a slow machine its lease may be over by now.
    assert!(serves(&mut table, 0, moves) || !ways.is_registered(0), "while its lease is held it serves");
    ways.etcd[1].heal();
    // Until the target takes it over.
    comes(|| {
        assert!(serves(&mut table, 0, stays), "nobody else can be given that");
        serves(&mut table, 1, moves).then_some(())
    });
    assert!(!serves(&mut table, 0, moves), "two serve it");
    ways.etcd[0].heal();
    ways.peers[0].heal();
    comes(|| ways.pair.metadata.migrations().expect("etcd answers").is_empty().then_some(()));
    assert!(!serves(&mut table, 0, moves) && serves(&mut table, 0, stays));
}

fn a_source_that_was_cut_off_for_a_while_serves_again_what_is_still_its_own() {
    let ways = Ways::start();
    let mut table = ways.pair.table();
    (0..500).for_each(|number| table.put(number, b"a value"));
    begin(&ways, &table);
    let [moves, stays] = keys();
    ways.etcd[0].cut();
    comes(|| (!serves(&mut table, 0, moves)).then_some(()));
    assert!(!ways.is_registered(0), "as long as its lease is held it serves");
    assert!(serves(&mut table, 0, stays));
    ways.etcd[0].heal();
    comes(|| serves(&mut table, 0, moves).then_some(()));
    ways.etcd[1].heal();
    comes(|| ways.pair.metadata.migrations().expect("etcd answers").is_empty().then_some(()));
    table.check(0..500);
}

fn a_target_that_is_cut_off_in_mid_move_serves_nobody_before_the_source_does() {
    let ways = Ways::start();
    let mut table = ways.pair.table();
    // More than is pulled in the meantime: the link breaks before it is over.
    (0..20_000).for_each(|number| table.put(number, &[7; 1_000]));
    let [moves, stays] = keys();
    // So slowly that it takes seconds.
    ways.peers[0].slow_down();
    let row = ways.pair.begin(&table, upper(), 1);
    comes(|| serves(&mut table, 1, moves).then_some(()));
    ways.etcd[1].cut();
    ways.peers[0].cut();
    let phase = ways.pair.metadata.migration_find(row.id).expect("etcd answers").map(|row| row.phase);
    assert_eq!(phase, Some(MigrationPhase::Moving), "it is cut off in mid-move");
    // Until the source takes it back.
    comes(|| {
        assert!(serves(&mut table, 0, stays));
        serves(&mut table, 0, moves).then_some(())
    });
    assert!(!serves(&mut table, 1, moves), "two serve it");
    ways.etcd[1].heal();
    ways.peers[0].heal();
    comes(|| ways.pair.metadata.migrations().expect("etcd answers").is_empty().then_some(()));
    assert!(!serves(&mut table, 1, moves));
    table.check(0..20_000);
}
