//! A server that is given hashes and is to move them on, of which it hears in one look at the records.

use std::sync::PoisonError;

use cluster::migration::MigrationMode;
use control::TableOptions;
use store::HashRange;
use wire::{Condition, Request, Status, reply};

use super::super::client::Client;
use super::super::patience::comes;
use super::Pair;

#[test]
fn a_server_that_is_to_move_on_what_it_was_just_given_owns_it_first() {
    let pair = Pair::start();
    let [source, target] = pair.numbers();
    let mut clients = pair.table().clients;
    let tenant = pair.metadata.tenant_find("ann").expect("etcd answers").expect("a tenant").id;
    let put = |client: &mut Client, table: u32| {
        client.status(&Request::Put { table, key: b"k", value: b"kept", condition: Condition::Always })
    };
    // It is its owner for the moment in which clients hear of the target; on a slow machine that may be over.
    let served = (0..20).find_map(|round| {
        let (table, row) = {
            let control = pair.sites[0].server.control();
            let _looks_at_no_records = control.changing.lock().unwrap_or_else(PoisonError::into_inner);
            let (name, options) = (format!("given-{round}"), TableOptions::default());
            let given = pair.metadata.table_create_at(tenant, &name, options, &[source]);
            let table = given.expect("a fresh name");
            let begun = pair.metadata.migration_begin(
                (tenant, table),
                HashRange::ALL,
                target,
                MigrationMode::Rocksteady,
                1,
            );
            (table, begun.expect("nothing else moves"))
        };
        let is_served = std::iter::from_fn(|| (!pair.is_done(&row)).then(|| put(&mut clients[0], table)))
            .any(|status| status == Status::Ok);
        is_served.then_some((table, row))
    });
    let (table, row) = served.expect("once of so many times");
    comes(|| pair.is_done(&row).then_some(()));
    let (status, body) = clients[1].call(&Request::Get { table, key: b"k" });
    assert_eq!(status, Ok(Status::Ok));
    assert_eq!(reply::Object::decode(&body).expect("an object").value, b"kept");
}
