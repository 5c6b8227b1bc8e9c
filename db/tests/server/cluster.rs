//! Two servers of one cluster over a real etcd: what one changes the other one serves, and data goes on without etcd.

use cluster::metadata::Metadata;
use cluster::peer::{ClusterSecret, Purpose};
use control::{
    AdminRequest, Durability, ExtensionResolved, Right, ServerEntry, Subject, TableEntry, TableId,
    TableOptions, TenantLimitEntry,
};
use db::boot::Server;
use db::config::{Config, parse_metadata_place};
use db::peer::{self, PeerError};
use tempfile::TempDir;
use wire::{Body, Condition, OpenRequest, Request, Status, TabletMap, opcode};

use super::client::{Client, ControlStream};
use super::etcd_process::EtcdProcess;
use super::exposition::scrape;
use super::extensions::{COUNTER, install, invoke, package};
use super::patience::comes;
use super::{Site, config, no_toolchain};

pub(super) struct Cluster {
    /// Stop before their etcd does.
    pub(super) sites: [Site; 2],
    pub(super) directories: [TempDir; 2],
    pub(super) etcd: EtcdProcess,
}

impl Cluster {
    pub(super) fn start() -> Self {
        let etcd = EtcdProcess::start();
        let directories = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
        let sites = [&directories[0], &directories[1]]
            .map(|directory| Site::start_compiling(directory.path(), 1, metadata(&etcd)));
        Self { sites, directories, etcd }
    }

    /// A client at each server, of one tenant, and the tenant's secret.
    fn clients(&self, tenant: &str) -> ([Client; 2], String) {
        let secret = self.sites[0].create_tenant(tenant);
        ([0, 1].map(|site: usize| self.sites[site].client(tenant, &secret)), secret)
    }
}

pub(super) fn metadata(etcd: &EtcdProcess) -> Metadata {
    Metadata::over(Box::new(etcd.client())).expect("records of this format")
}

fn table(client: &mut Client, name: &str) -> Option<u32> {
    let answer = client.control.ask(&AdminRequest::TableOpen { name }).ok()?;
    Some(control::decode::<TableId>(&answer).expect("an id").id)
}

fn tables(client: &mut Client) -> Vec<String> {
    let answer = client.control.ask(&AdminRequest::TableList).expect("a list");
    let tables = control::decode::<Vec<TableEntry>>(&answer).expect("tables");
    tables.into_iter().map(|table| table.name).collect()
}

fn put(client: &mut Client, table: u32) -> Status {
    client.status(&Request::Put { table, key: b"k", value: b"v", condition: Condition::Always })
}

fn map(client: &mut Client, table: u32) -> TabletMap {
    let (status, answer) = client.call(&Request::Tablets { table });
    assert_eq!(status, Ok(Status::Ok));
    TabletMap::decode(&answer).expect("a map")
}

#[test]
fn what_one_server_changes_the_other_one_serves() {
    let cluster = Cluster::start();
    let ([mut one, mut other], _) = cluster.clients("ann");
    let number = one.create_table("first");
    assert_eq!(comes(|| table(&mut other, "first")), number, "the same table by number");
    assert_eq!((put(&mut one, number), put(&mut other, number)), (Status::Ok, Status::NotOwned));
    // Each tells where it is, once it has heard of that. Of which commit it heard it may differ.
    let places = comes(|| {
        let maps = [&mut one, &mut other].map(|client| map(client, number));
        let [place, place_there] = maps.map(|map| (map.servers().to_vec(), map.tablets().to_vec()));
        (place == place_there).then_some(place.0)
    });
    assert_eq!(places[0].address, cluster.sites[0].server.tcp().to_string());
    let second = other.create_table("second");
    assert_eq!(put(&mut other, second), Status::Ok, "who owns fewest gets it, which is who was asked");
    comes(|| (tables(&mut one) == ["first", "second"]).then_some(()));
    let options = TableOptions { durability: Some(Durability::Synced), ..TableOptions::default() };
    one.control.ask(&AdminRequest::TableCreate { name: "disk", options }).expect("both have a disk");
    one.control.ask(&AdminRequest::TableDrop { name: "disk" }).expect("a table");
    // A table that was dropped and made again is another one.
    one.control.ask(&AdminRequest::TableDrop { name: "first" }).expect("a table");
    let again = one.create_table("first");
    comes(|| (table(&mut other, "first") == Some(again)).then_some(()));
    assert_eq!(put(&mut other, number), Status::UnknownTable);
    assert_eq!(one.status(&Request::Get { table: again, key: b"k" }), Status::NotFound);

    cluster.sites[1].limit("ann", "weight", Some(300));
    let weight = |client: &mut Client| {
        let answer = client.control.ask(&AdminRequest::TenantLimits { name: None }).expect("limits");
        let limits = control::decode::<Vec<TenantLimitEntry>>(&answer).expect("limits");
        limits.into_iter().find(|limit| limit.name == "weight").map(|limit| limit.value)
    };
    comes(|| (weight(&mut one) == Some(300)).then_some(()));

    let ([mut bob, mut bob_there], _) = cluster.clients("bob");
    let right = Right::Read;
    one.control.ask(&AdminRequest::GrantCreate { name: "first", to: "bob", right }).expect("a table");
    let [granted, granted_there] = [&mut bob, &mut bob_there].map(|bob| comes(|| table(bob, "ann/first")));
    assert_eq!(granted, granted_there);
    assert_eq!(put(&mut bob, granted), Status::NotPermitted);
    assert_eq!(bob.status(&Request::Get { table: granted, key: b"k" }), Status::NotFound);
    assert_eq!(bob_there.status(&Request::Get { table: granted, key: b"k" }), Status::NotOwned);
    let revoke = AdminRequest::GrantRevoke { subject: Subject::Table, name: "first", to: "bob" };
    other.control.ask(&revoke).expect("a grant");
    for bob in [&mut bob, &mut bob_there] {
        comes(|| {
            (bob.status(&Request::Get { table: granted, key: b"k" }) == Status::UnknownTable).then_some(())
        });
    }
}

#[test]
fn a_session_of_one_server_is_not_resumed_at_another() {
    let cluster = Cluster::start();
    let ([one, _other], secret) = cluster.clients("ann");
    let request = OpenRequest::Resume {
        tenant: "ann",
        secret: &secret,
        client_id: one.opened.client_id,
        first_unacknowledged: 1,
        proof: one.opened.proof.expect("a proof"),
    };
    let [own, elsewhere] = [0, 1].map(|site: usize| {
        ControlStream::open(cluster.sites[site].server.tcp(), &request).map_err(|refused| refused.0).err()
    });
    assert_eq!((own, elsewhere), (None, Some(Status::BadSecret)), "the other one does not have its replies");
}

#[test]
fn servers_prove_to_each_other_that_they_are_of_one_cluster() {
    let cluster = Cluster::start();
    let metadata = metadata(&cluster.etcd);
    let secret = ClusterSecret(metadata.cluster_secret().expect("etcd answers"));
    let [one, other] = comes(|| metadata.servers().ok()?.try_into().ok());
    assert_ne!(one.id, other.id);
    let open = |secret: &ClusterSecret, asked: u32| {
        peer::open(secret, other.id, (asked, one.tcp), Purpose::Migration(77))
            .err()
            .expect("no such migration")
    };
    let refused = open(&secret, one.id);
    assert!(matches!(refused, PeerError::Refused(Status::Unavailable)), "{refused}");
    for (secret, asked) in [(&ClusterSecret([7; 32]), one.id), (&secret, other.id)] {
        let refused = open(secret, asked);
        assert!(matches!(refused, PeerError::Stranger), "{refused}");
    }
    // Who cannot answer the challenge is not let in, and hears nothing but that.
    let nonce = [3; 32];
    let (mut stream, challenge) =
        ControlStream::open(one.tcp, &OpenRequest::Peer { server: other.id, nonce }).expect("a challenge");
    assert_eq!(challenge.len(), 64);
    let refused = stream.exchange(opcode::PROVE_PEER, 0, &[0; 41]).expect_err("it is no proof");
    assert_eq!(refused, (Status::BadSecret, Vec::new()));
    assert!(stream.read().is_none(), "the server closes the stream");
    // A server that is alone has no peers.
    let directory = tempfile::tempdir().expect("a directory");
    let alone = Site::start(directory.path(), 1, 1);
    let refused = ControlStream::open(alone.server.tcp(), &OpenRequest::Peer { server: 1, nonce });
    assert_eq!(refused.err().expect("it is of no cluster").0, Status::UnknownOpcode);
}

#[test]
fn a_session_of_a_tenant_that_was_made_a_moment_ago_stays_while_servers_come() {
    let etcd = EtcdProcess::start();
    let directories = [(); 9].map(|()| tempfile::tempdir().expect("a directory"));
    let start =
        |directory: &TempDir| Site::start_with(directory.path(), 1, 1, metadata(&etcd), no_toolchain());
    let site = start(&directories[0]);
    for (directory, number) in directories[1..].iter().zip(0..) {
        // A server that comes has all others read everything that the metadata says.
        let coming = start(directory);
        for (at, number) in [&site, &coming, &site, &coming].into_iter().zip(4 * number..) {
            let name = format!("tenant-{number}");
            let secret = site.create_tenant(&name);
            let mut client = at.client(&name, &secret);
            let table = client.create_table("t");
            comes(|| {
                (client.status(&Request::Get { table, key: b"k" }) != Status::UnknownTable).then_some(())
            });
        }
    }
}

#[test]
fn a_tenant_that_is_dropped_at_one_server_ends_at_the_other_one() {
    let cluster = Cluster::start();
    let ([mut one, mut other], secret) = cluster.clients("ann");
    let number = one.create_table("t");
    comes(|| table(&mut other, "t"));
    cluster.sites[0].administrator().ask(&AdminRequest::TenantDrop { name: "ann" }).expect("a tenant");
    comes(|| (other.control.ask(&AdminRequest::TableList).is_err()).then_some(()));
    assert_eq!(put(&mut other, number), Status::BadToken);
    let refused = Client::open(&cluster.sites[1], "ann", &secret).err().expect("it is gone");
    assert_eq!(refused.0, Status::BadSecret);
    let ([mut again, mut again_there], _) = cluster.clients("ann");
    assert_eq!((tables(&mut again).len(), tables(&mut again_there).len()), (0, 0));
}

#[test]
fn an_extension_that_one_server_installs_the_other_one_runs() {
    let cluster = Cluster::start();
    let ([mut one, mut other], _) = cluster.clients("ann");
    let number = one.create_table("t");
    comes(|| table(&mut other, "t"));
    let installed = install(&mut one, "counter", &package(COUNTER)).expect("it compiles");
    let resolve = |client: &mut Client| {
        let answer = client.control.ask(&AdminRequest::ExtensionResolve { name: "counter" }).ok()?;
        let resolved = control::decode::<ExtensionResolved>(&answer).expect("functions");
        Some((resolved.extension, resolved.version))
    };
    let there = comes(|| resolve(&mut other));
    assert_eq!(there, (installed.extension, 1));
    let five = 5_i64.to_le_bytes();
    let add = invoke(installed.extension, "add", number, &five);
    let number_there = other.create_table("u");
    let add_there = invoke(installed.extension, "add", number_there, &five);
    // Who asks in the moment in which it comes may be too early.
    comes(|| (other.call(&add_there) == (Ok(Status::Ok), five.to_vec())).then_some(()));
    assert_eq!(one.call(&add), (Ok(Status::Ok), five.to_vec()));

    install(&mut other, "counter", &package(&format!("{COUNTER}\n// another one\n"))).expect("it compiles");
    comes(|| (resolve(&mut one)?.1 == 2).then_some(()));
    other.control.ask(&AdminRequest::ExtensionRollback { name: "counter", version: 1 }).expect("it is kept");
    comes(|| (resolve(&mut one)?.1 == 1).then_some(()));
    one.control.ask(&AdminRequest::ExtensionRemove { name: "counter", version: 0 }).expect("it is there");
    comes(|| resolve(&mut other).is_none().then_some(()));
    assert_eq!(other.status(&add_there), Status::UnknownExtension);
}

#[test]
fn data_goes_on_while_etcd_does_not_answer_and_changes_come_after_it() {
    let mut cluster = Cluster::start();
    let ([mut one, mut other], secret) = cluster.clients("ann");
    let (number, number_there) = (one.create_table("t"), other.create_table("s"));
    comes(|| table(&mut other, "t"));
    let is_registered = || scrape(&cluster.sites[1]).value("splinter_cluster_registered", &[]) == 1.0;
    comes(|| is_registered().then_some(()));
    cluster.etcd.pause();
    let refused = one.control.ask(&AdminRequest::TableCreate { name: "u", options: Default::default() });
    assert_eq!(refused.expect_err("etcd stands still").0, Status::Unavailable);
    for (client, number) in [(&mut one, number), (&mut other, number_there)] {
        assert_eq!(put(client, number), Status::Ok);
    }
    let shown = scrape(&cluster.sites[1]).value("splinter_tenant_tables", &[("tenant", "ann")]);
    assert!(shown >= 1.0, "metrics go on");
    cluster.etcd.resume();
    comes(|| one.control.ask(&AdminRequest::TableCreate { name: "v", options: Default::default() }).ok());
    for client in [&mut one, &mut other] {
        comes(|| tables(client).contains(&"v".to_owned()).then_some(()));
    }
    // While the lease is held that a server is registered with, it opens sessions; on a slow machine it may be over.
    comes(|| {
        let registered = || metadata(&cluster.etcd).servers().expect("etcd answers").len() == 2;
        comes(|| registered().then_some(()));
        cluster.etcd.pause();
        let opened = Client::open(&cluster.sites[1], "ann", &secret).ok();
        // The first of those that need etcd finds out that it does not answer, and hears other words than who comes later.
        Client::open(&cluster.sites[1], "nobody", &secret).err().expect("there is none");
        let stranger = Client::open(&cluster.sites[1], "nobody", &secret).err().expect("there is none");
        let guessed = Client::open(&cluster.sites[1], "ann", "a guess").err().expect("it is wrong");
        cluster.etcd.resume();
        assert_eq!(stranger.0, Status::Unavailable, "it may be a tenant by now");
        assert_eq!(guessed, stranger, "nobody learns who is a tenant");
        opened.map(|mut client| assert_eq!(put(&mut client, number_there), Status::Ok))
    });
    cluster.etcd.kill();
    for (client, number) in [(&mut one, number), (&mut other, number_there)] {
        assert_eq!(put(client, number), Status::Ok);
    }
    cluster.etcd.restart();
    comes(|| other.control.ask(&AdminRequest::TableCreate { name: "w", options: Default::default() }).ok());
    comes(|| tables(&mut one).contains(&"w".to_owned()).then_some(()));
    // What was refused may have been made: then it is at both.
    comes(|| (tables(&mut one) == tables(&mut other)).then_some(()));
}

#[test]
fn servers_are_registered_while_they_run_under_numbers_that_stay() {
    let Cluster { sites, directories, etcd } = Cluster::start();
    let metadata = metadata(&etcd);
    let servers =
        comes(|| Some(metadata.servers().expect("etcd answers")).filter(|servers| servers.len() == 2));
    for (server, site) in servers.iter().zip(&sites) {
        assert_eq!((server.tcp, &*server.frame_ports), (site.server.tcp(), site.server.frame_ports()));
        assert!(server.started_ms > 0 && server.view > 0);
    }
    let list = |site: &Site| {
        let answer = site.administrator().ask(&AdminRequest::ServerList).expect("the administrator may");
        let list = control::decode::<Vec<ServerEntry>>(&answer).expect("servers");
        list.into_iter().map(|server| (server.id, server.tcp, server.is_asked)).collect::<Vec<_>>()
    };
    for (number, site) in sites.iter().enumerate() {
        let seen = |server: usize| (servers[server].id, servers[server].tcp.to_string(), server == number);
        assert_eq!(list(site), [seen(0), seen(1)]);
    }
    let [first, second] = sites;
    first.server.stop();
    let left = metadata.servers().expect("etcd answers");
    assert_eq!(left, servers[1..], "who stops says so");
    let again = Site::start_compiling(directories[0].path(), 1, super::cluster::metadata(&etcd));
    let back = comes(|| Some(metadata.servers().expect("etcd answers")).filter(|servers| servers.len() == 2));
    assert_eq!((back[0].id, back[0].tcp), (servers[0].id, again.server.tcp()));
    assert!(back[0].view > servers[0].view, "views of a server only grow");
    drop(second);
}

#[test]
fn what_a_server_had_that_is_gone_others_get_when_they_are_told_to() {
    let Cluster { sites: [first, second], directories, etcd } = Cluster::start();
    let secret = first.create_tenant("ann");
    let [mut one, mut other] = [&first, &second].map(|site| site.client("ann", &secret));
    let metadata = metadata(&etcd);
    let servers = comes(|| Some(metadata.servers().expect("etcd answers")).filter(|rows| rows.len() == 2));
    let number = one.create_table("t");
    assert_eq!(put(&mut one, number), Status::Ok);
    comes(|| table(&mut other, "t"));
    assert!(metadata.tablets_adopt(servers[0].id, 5).is_err(), "it is there");
    first.server.stop();
    assert_eq!(put(&mut other, number), Status::NotOwned, "nobody takes what is another's by itself");
    assert_eq!(metadata.tablets_adopt(servers[0].id, 5), Ok((1, false)));
    comes(|| (put(&mut other, number) == Status::Ok).then_some(()));
    assert_eq!(map(&mut other, number).servers()[0].number, servers[1].id);
    let row = &metadata.tablets().expect("etcd answers")[0];
    assert_eq!(row.tablets[0].emptied_ms, Some(5), "what was there is lost, and that is said");
    let again = Site::start_compiling(directories[0].path(), 1, super::cluster::metadata(&etcd));
    let mut one = again.client("ann", &secret);
    assert_eq!(put(&mut one, number), Status::NotOwned, "it comes back to what others own by now");
    // Before its etcd is killed, which it would ask for seconds to end its registration.
    drop(second);
}

#[test]
fn a_server_whose_etcd_is_not_there_does_not_start_and_says_where_it_looked() {
    let directory = tempfile::tempdir().expect("a directory");
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let place = format!("etcd://{}/c1", listener.local_addr().expect("its address"));
    drop(listener);
    let metadata = parse_metadata_place(&place).expect("a place");
    let config = Config { metadata, ..config(directory.path(), 1) };
    let refused = Server::start(&config).err().expect("nobody listens there").to_string();
    assert!(refused.contains(&place) && refused.contains("metadata"), "{refused}");
}
