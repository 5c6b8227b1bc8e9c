//! Tables that evict, through a real server: by the client and by the command.

use std::process::Output;

use client::{Client, KeyRange, LimitChange, Status, TableOptions};
use tests::server::{Server, Tenant};

use super::replies::refusal;

const CACHE_BYTES: u64 = 64 << 10;

fn cache(client: &mut Client, name: &str, ordered: bool) -> u32 {
    let options = TableOptions { ordered, cache_bytes: Some(CACHE_BYTES), ..TableOptions::default() };
    client.table_create_with(name, options).expect("a fresh name")
}

fn fill(client: &mut Client, table: u32) {
    for number in 0..1_000_u32 {
        client.put(table, &number.to_be_bytes(), &[1; 100]).expect("there is room");
    }
}

#[test]
fn a_table_with_a_budget_keeps_it_and_keeps_what_is_used() {
    let server = Server::start();
    let mut client = server.client(&server.tenant("acme"));
    for ordered in [false, true] {
        let name = if ordered { "ordered" } else { "plain" };
        let table = cache(&mut client, name, ordered);
        let first = client.put(table, b"first", b"never read").unwrap();
        client.put(table, b"hot", b"value").unwrap();
        for number in 0..2_000_u32 {
            client.put(table, &number.to_be_bytes(), &[1; 100]).expect("it makes room");
            if number.is_multiple_of(50) {
                let hot = client.get(table, b"hot").unwrap();
                assert_eq!(hot.expect("what is used stays").value, b"value", "after {number}");
            }
        }
        let found = client.table_stat(name).unwrap();
        assert!(found.bytes <= CACHE_BYTES && found.bytes > CACHE_BYTES / 2, "{found:?}");
        assert_eq!((found.cache_bytes, found.objects + found.evicted), (Some(CACHE_BYTES), 2_002));
        assert!(client.get(table, b"first").unwrap().is_none(), "what nobody uses leaves");

        assert!(client.put(table, b"first", b"again").unwrap() > first, "versions grow over an eviction");
        let listed = if ordered {
            client.scan(table, KeyRange::default(), usize::MAX).unwrap().len() as u64
        } else {
            client.table_stat(name).unwrap().objects
        };
        assert_eq!(listed, client.table_stat(name).unwrap().objects);
    }
    // Half of the tenant's writes are elsewhere, and stay.
    let plain = client.table_create("stays").unwrap();
    fill(&mut client, plain);
    let entries = client.table_list().unwrap();
    let kinds = entries.iter().map(|table| (&table.name[..], table.cache_bytes, table.evicted > 0));
    let (cached, none) = (Some(CACHE_BYTES), None);
    assert_eq!(
        kinds.collect::<Vec<_>>(),
        [("ordered", cached, true), ("plain", cached, true), ("stays", none, false)]
    );
    assert_eq!(entries[2].objects, 1_000);
}

#[test]
fn budgets_that_make_no_sense_and_objects_beyond_a_budget_are_refused() {
    let server = Server::start();
    let acme = server.tenant("acme");
    let mut client = server.client(&acme);
    let mut create = |cache_bytes| {
        refusal(client.table_create_with(
            "cache",
            TableOptions { cache_bytes: Some(cache_bytes), ..TableOptions::default() },
        ))
    };
    for senseless in [0, 1, 4_095, u64::MAX, u64::MAX / 2, 1 << 50] {
        assert_eq!(create(senseless), Status::OutOfRange, "{senseless}");
    }
    server
        .admin()
        .tenant_limits_set("acme", &[LimitChange { limit: "memory_bytes", value: Some(1 << 20) }])
        .unwrap();
    assert_eq!(create((1 << 20) + 1), Status::OverQuota);
    assert!(client.table_list().unwrap().is_empty(), "what is refused is not there");
    let table = cache(&mut client, "cache", false);
    let large = vec![7; CACHE_BYTES as usize];
    assert_eq!(refusal(client.put(table, b"key", &large)), Status::OverBudget);
    let error = client.put(table, b"key", &large).expect_err("it is too large").to_string();
    assert!(error.contains("budget") && error.contains("--cache"), "{error}");
    // What fits leaves no room for others, which therefore leave.
    for number in 0..500_u32 {
        client.put(table, &number.to_be_bytes(), &[1; 100]).unwrap();
    }
    client.put(table, b"key", &large[..large.len() - 100]).expect("it makes room");
    assert!(client.table_stat("cache").unwrap().bytes <= CACHE_BYTES);
}

#[test]
fn a_table_has_its_budget_again_after_a_restart_and_not_one_of_the_same_name() {
    let mut server = Server::start();
    let acme = server.tenant("acme");
    let mut client = server.client(&acme);
    cache(&mut client, "cache", true);
    cache(&mut client, "dropped", false);
    client.table_drop("dropped").unwrap();
    client.table_create("dropped").unwrap();
    drop(client);
    server.kill();
    server.restart();
    let mut client = server.client(&acme);
    let found: Vec<_> =
        client.table_list().unwrap().iter().map(|table| (table.ordered, table.cache_bytes)).collect();
    assert_eq!(found, [(true, Some(CACHE_BYTES)), (false, None)]);
    let table = client.table_open("cache").unwrap();
    fill(&mut client, table);
    let found = client.table_stat("cache").unwrap();
    assert!(found.bytes <= CACHE_BYTES && found.evicted > 0, "{found:?}");
}

/// Runs the command as a tenant.
fn run(server: &Server, tenant: &Tenant, line: &str) -> Output {
    server.command(tenant).args(line.split(' ')).output().expect("the command runs")
}

#[test]
fn the_command_makes_lists_and_counts_caches() {
    let server = Server::start();
    let acme = server.tenant("acme");
    let said = |line: &str| {
        let output = run(&server, &acme, line);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    };
    said("table create pages --cache 64KiB");
    said("table create plain");
    let listed = said("table list");
    let row = |name: &str| listed.lines().find(|line| line.contains(name)).expect("it is listed");
    assert!(row("pages").contains("65,536"), "{listed}");
    assert_eq!(row("plain").matches(" -").count(), 2, "{listed}");
    let mut client = server.client(&acme);
    let table = client.table_open("pages").unwrap();
    fill(&mut client, table);
    let evicted = client.table_stat("pages").unwrap().evicted.to_string();
    assert!(said("table stat pages").contains(&evicted));
    assert!(said("--output json table stat pages").contains(&format!("\"evicted\":{evicted}")));
    assert!(said("--output json table list").contains("\"cache_bytes\":65536"));
    for wrong in ["0", "64MB", "-1", "much", "99999999999TiB", "unlimited"] {
        let output = run(&server, &acme, &format!("table create wrong --cache {wrong}"));
        assert!(!output.status.success(), "{wrong}");
        assert!(!output.stderr.is_empty(), "{wrong} is explained");
    }
}
