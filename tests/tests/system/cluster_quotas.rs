//! Limits of a tenant that hold for all servers of a cluster together, wherever its objects and its requests are.

use std::thread;
use std::time::{Duration, Instant};

use client::{Admin, Client, ClientConfig, Durability, LimitChange, Status, TableOptions};
use tests::cluster::Cluster;
use tests::effort::rng;
use tests::patience::{answered, comes};
use tests::server::{Server, Settings, Tenant};

const SERVERS: usize = 3;
const VALUE_BYTES: usize = 1_000;

/// A cluster, a tenant, and its table with a tablet at each server.
fn cluster() -> (Cluster, Tenant, u32) {
    let settings = Settings { memory: "64MiB".into(), segment: "1MiB".into(), ..Settings::default() };
    let cluster = Cluster::start(SERVERS, &settings);
    cluster.numbers();
    let tenant = cluster.servers[0].tenant("acme");
    let options = TableOptions { durability: Some(Durability::Memory), ..TableOptions::default() };
    let mut client = cluster.servers[0].client(&tenant);
    let table = answered("the table", || client.table_create_spread("data", options, SERVERS as u16));
    (cluster, tenant, table)
}

/// A figure of a tenant, summed over the servers of these connections.
fn sum(admins: &mut [Admin], tenant: &Tenant, name: &str) -> Option<u64> {
    let figure = |admin: &mut Admin| {
        let statistics = admin.tenant_statistics(&tenant.name).ok()?;
        statistics.iter().find(|statistic| statistic.name == name).map(|statistic| statistic.value)
    };
    admins.iter_mut().map(figure).sum()
}

fn admins(cluster: &Cluster) -> Vec<Admin> {
    cluster.servers.iter().map(Server::admin).collect()
}

/// Sets a limit, and waits until the servers' shares together do not exceed it.
fn limit(cluster: &Cluster, tenant: &Tenant, name: &str, value: u64) {
    let change = LimitChange { limit: name, value: Some(value) };
    answered("the limit", || cluster.servers[1].admin().tenant_limits_set(&tenant.name, &[change]));
    let share = format!("{name}_share");
    let mut admins = admins(cluster);
    comes("shares", || (sum(&mut admins, tenant, &share)? <= value).then_some(()));
}

/// A client that does not repeat what is refused.
fn hasty(server: &Server, tenant: &Tenant) -> Client {
    let config = ClientConfig { call_timeout: Duration::from_millis(300), ..ClientConfig::default() };
    let connect =
        || Client::connect_with(&server.address().to_string(), &tenant.name, &tenant.secret, config.clone());
    comes("a session", || connect().ok())
}

#[test]
fn objects_at_all_servers_together_stay_within_the_quota() {
    const QUOTA: u64 = 3 << 20;
    let (cluster, tenant, table) = cluster();
    limit(&cluster, &tenant, "memory_bytes", QUOTA);
    let (mut client, mut random) = (cluster.servers[0].client(&tenant), rng());
    let mut admins = admins(&cluster);
    let mut bytes = || comes("the bytes", || sum(&mut admins, &tenant, "object_bytes"));
    // Keys of one server's third of the hashes first: most of the quota is used there.
    let is_of_others = |key: &u64| store::hash(&key.to_le_bytes()) > u64::MAX / 3;
    let mut keys: Vec<u64> = (0..8_000).filter(|key| *key < 3_000 || !is_of_others(key)).collect();
    random.shuffle(&mut keys);
    keys.sort_by_key(is_of_others);
    let (mut stored, mut refused) = (Vec::new(), 0);
    for key in keys {
        let mut put = || client.put(table, &key.to_le_bytes(), &[7; VALUE_BYTES]);
        let answer = put();
        let is_refused = |error: &client::Error| error.status() == Some(Status::OverQuota);
        if answer.as_ref().is_err_and(is_refused) && bytes() < QUOTA * 19 / 20 {
            // What is free at other servers comes within a second or two.
            comes("a share of what is free", || put().ok());
            stored.push(key);
            continue;
        }
        match answer {
            Ok(_) => stored.push(key),
            Err(error) => {
                assert!(is_refused(&error), "{error}");
                refused += 1;
            }
        }
    }
    let most = QUOTA + QUOTA / 16;
    let now = bytes();
    assert!((QUOTA * 9 / 10..=most).contains(&now) && refused > 500, "{now} of {QUOTA}, {refused} refused");
    // What is deleted at one server is free at the others.
    for key in &stored {
        client.delete(table, &key.to_le_bytes()).expect("deletes are admitted");
    }
    let other =
        (0_u64..).find(|key| store::hash(&key.to_le_bytes()) > u64::MAX / 3 * 2).expect("one of three");
    comes("room at another server", || client.put(table, &other.to_le_bytes(), &vec![7; 900_000]).ok());
}

/// Asks for these keys with several clients until the second time in seconds; returns how many gets were admitted from the first on.
fn ask(cluster: &Cluster, tenant: &Tenant, (table, keys): (u32, &[[u8; 8]]), seconds: [u64; 2]) -> u64 {
    let begun = Instant::now();
    let [from, to] = seconds.map(Duration::from_secs);
    thread::scope(|scope| {
        let clients = cluster.servers.iter().map(|server| {
            scope.spawn(move || {
                let (mut client, mut admitted) = (hasty(server, tenant), 0);
                while begun.elapsed() < to {
                    let is_admitted = client.get(table, fastrand::choice(keys).expect("some")).is_ok();
                    admitted += u64::from(is_admitted && begun.elapsed() >= from);
                }
                admitted
            })
        });
        let clients: Vec<_> = clients.collect();
        clients.into_iter().map(|client| client.join().expect("no panic")).sum()
    })
}

/// Keys of one of the tablets.
fn keys_of(cluster: &Cluster, tablet: usize) -> Vec<[u8; 8]> {
    let tablets = answered("the tablets", || cluster.servers[0].admin().tablet_list());
    let hashes = tablets[tablet].first..=tablets[tablet].last;
    let keys = (0_u64..).map(u64::to_le_bytes);
    keys.filter(|key| hashes.contains(&store::hash(key))).take(100).collect()
}

#[test]
fn a_server_that_alone_is_asked_has_nearly_the_whole_rate() {
    const RATE: u64 = 600;
    let (cluster, tenant, table) = cluster();
    limit(&cluster, &tenant, "operations_per_second", RATE);
    let check = |tablet: usize| {
        let admitted = ask(&cluster, &tenant, (table, &keys_of(&cluster, tablet)), [4, 7]);
        println!("tablet {tablet}: {admitted} admitted in 3 s of {RATE} a second");
        assert!((RATE * 12 / 5..RATE * 18 / 5).contains(&admitted), "{admitted} in 3 s of {RATE} a second");
    };
    check(0);
    check(1);
}

#[test]
fn what_a_server_has_is_counted_also_when_it_has_a_new_lease() {
    const QUOTA: u64 = 3 << 20;
    let (cluster, tenant, table) = cluster();
    limit(&cluster, &tenant, "memory_bytes", QUOTA);
    let mut client = cluster.servers[0].client(&tenant);
    let keys = keys_of(&cluster, 0);
    // Each of a thirtieth of the quota, more than a third of it at one server.
    let mut put =
        |key: &[u8; 8]| comes("room for an object", || client.put(table, key, &vec![7; 100_000]).ok());
    keys[..20].iter().for_each(|key| _ = put(key));
    // Until the others know it: nothing changes from then on.
    thread::sleep(Duration::from_secs(3));
    // Longer than leases last, and not as long as others take for gone: each server gets a new one.
    cluster.servers.iter().for_each(|server| server.pause(true));
    thread::sleep(Duration::from_millis(4_500));
    cluster.servers.iter().for_each(|server| server.pause(false));
    let is_registered = || Some(cluster.servers[0].admin().server_list().ok()?.len() == SERVERS);
    comes("the servers", || is_registered()?.then_some(()));
    // As long as what was said under the old leases may count.
    thread::sleep(Duration::from_secs(3));
    keys[20..24].iter().for_each(|key| _ = put(key));
}

#[test]
fn requests_at_all_servers_together_stay_within_the_rate() {
    const RATE: u64 = 600;
    let (cluster, tenant, table) = cluster();
    limit(&cluster, &tenant, "operations_per_second", RATE);
    let keys: Vec<[u8; 8]> = (0..300_u64).map(u64::to_le_bytes).collect();
    let begun = Instant::now();
    let admitted = ask(&cluster, &tenant, (table, &keys), [0, 6]);
    // A burst of each server, and what changes of shares let through.
    let most = (begun.elapsed().as_secs_f64() + 1.0) * RATE as f64 * 1.2;
    println!("{admitted} admitted of {most}");
    assert!((admitted as f64) < most && admitted > RATE, "{admitted} of {most}");
}
