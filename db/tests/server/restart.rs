//! What survives a restart: tenants, tables, secrets. What does not: objects and sessions.

use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use control::{AdminRequest, TableEntry, TenantEntry};
use wire::{Condition, OpenRequest, Request, Status};

use super::Site;
use super::client::{Client, ControlStream};

#[test]
fn tenants_and_tables_survive_a_restart() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start(directory.path(), 1, 1);
    let secret = site.create_tenant("ann");
    let mut client = site.client("ann", &secret);
    let (first, second) = (client.create_table("first"), client.create_table("second"));
    client.control.ask(&AdminRequest::TableDrop { name: "first" }).expect("a table");
    let (client_id, token) = (client.opened.client_id, client.opened.token);
    let administrator = site.administrator.clone();
    site.server.stop();

    let site = Site::start(directory.path(), 1, 2);
    assert_eq!(site.administrator, administrator);
    let tenants = site.administrator().ask(&AdminRequest::TenantList).expect("a list");
    let tenants = control::decode::<Vec<TenantEntry>>(&tenants).expect("tenants");
    assert_eq!((tenants.len(), tenants[0].name.as_str(), tenants[0].tables), (1, "ann", 1));
    let mut client = site.client("ann", &secret);
    assert!(client.opened.client_id > client_id, "numbers of clients are not given again");
    let tables = client.control.ask(&AdminRequest::TableList).expect("a list");
    let tables = control::decode::<Vec<TableEntry>>(&tables).expect("tables");
    let of_table = |table: &TableEntry| (table.id, table.name.clone(), table.objects);
    assert_eq!(tables.iter().map(of_table).collect::<Vec<_>>(), [(second, "second".to_owned(), 0)]);
    assert_eq!(client.status(&Request::Get { table: second, key: b"k" }), Status::NotFound);
    assert_eq!(client.status(&Request::Get { table: first, key: b"k" }), Status::UnknownTable);
    assert!(client.create_table("first") > second, "numbers of tables are not given again");
    let stale = ControlStream::open(site.server.tcp(), &OpenRequest::Attach { token });
    assert_eq!(stale.err().expect("the session ended with the server").0, Status::BadToken);
}

#[test]
fn a_server_stops_under_load() {
    let directory = tempfile::tempdir().expect("a directory");
    for round in 0..3 {
        let site = Site::start(directory.path(), round, 2);
        let secret = site.create_tenant(&format!("tenant{round}"));
        let mut clients: Vec<Client> =
            (0..3).map(|_| site.client(&format!("tenant{round}"), &secret)).collect();
        let table = clients[0].create_table("t");
        let (serving, served) = channel();
        let loads: Vec<_> = clients
            .drain(..)
            .map(|client| {
                let serving = serving.clone();
                thread::spawn(move || load(client, table, &serving))
            })
            .collect();
        for _ in &loads {
            served.recv_timeout(Duration::from_secs(300)).expect("every client is served");
        }
        site.server.stop();
        for load in loads {
            load.join().expect("no panic");
        }
    }
}

/// Puts until nothing has been answered for a while; says so when the first answers are there.
fn load(mut client: Client, table: u32, serving: &Sender<()>) {
    let (mut submitted, mut answered) = (0_u64, 0_u64);
    let mut quiet_since_us = client.now_us();
    while answered < 1_000 || client.now_us() - quiet_since_us < 200_000 {
        let key = submitted.to_le_bytes();
        let put = Request::Put { table, key: &key, value: &[3; 200], condition: Condition::Always };
        if client.submit(submitted, &put) {
            submitted += 1;
            continue;
        }
        let before = answered;
        client.step(&mut |_, (status, _)| {
            assert_eq!(status, Ok(Status::Ok));
            answered += 1;
        });
        if answered > before {
            quiet_since_us = client.now_us();
        }
        if before < 1_000 && answered >= 1_000 {
            serving.send(()).expect("the test waits");
        }
    }
}
