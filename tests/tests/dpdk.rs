//! The real server over DPDK, and the client library over DPDK in another process: vhost and virtio-user.
//!
//! Neither has a card, huge pages or privileges. DPDK begins once in a process, so each client is a process of its own:
//! this program, started anew for one of the tests below that are ignored otherwise, its role. Streams go over the
//! kernel's loopback, frames through the ring. Compiled with the feature `dpdk` alone; `scripts/test --dpdk` runs it.

use std::collections::BTreeMap;
use std::env;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use client::{Client, ClientConfig, PackageFile, Session};
use net::dpdk::{self, DpdkConfig, Role};
use tempfile::TempDir;
use tests::effort::{rng, rounds};
use tests::raw::PATIENCE;
use tests::server::{Server, Settings, Tenant, patient};

const SERVER: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
const CLIENT: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 9, 0, 2), 40_000);
const TABLE: &str = "data";

const MANIFEST: &str = "[package]\nname = \"counted\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n\
                        [dependencies]\nsandstorm = { path = \"sandstorm\" }\n";
const COUNTED: &str = r#"
#![no_std]
use sandstorm::{Args, Db, Error, Reply};

sandstorm::extension! { write counted }

/// Counts its invocations under the key; replies with the count and the arguments.
async fn counted(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let before = match db.get(args.table(), args.key()).await? {
        Some(value) => u64::from_le_bytes(value.try_into().map_err(|_| Error::BadArguments)?),
        None => 0,
    };
    let now = (before + 1).to_le_bytes();
    db.put(args.table(), args.key(), &now).await?;
    reply.write(&now)?;
    reply.write(args.bytes())
}
"#;

/// A server at one end of a ring.
struct Stage {
    server: Server,
    tenant: Tenant,
    table: u32,
    directory: TempDir,
    queues: usize,
}

impl Stage {
    /// A server of so many cores, with so many queues.
    fn new(cores: usize, queues: usize) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let ring = directory.path().join("ring");
        let environment = environment(&format!("net_vhost0,iface={},queues={queues}", ring.display()));
        let arguments = ["--dpdk", &environment.join(" "), "--dpdk-address", &SERVER.to_string()];
        let server = Server::start_with(Settings {
            cores,
            arguments: arguments.map(String::from).to_vec(),
            ..Settings::default()
        });
        let tenant = server.tenant("acme");
        // Administration goes over the stream: this client sends no frame.
        let table = server.client(&tenant).table_create(TABLE).expect("the table is created");
        Self { server, tenant, table, directory, queues }
    }

    /// Starts a client in a role.
    fn start(&self, role: &str) -> Process {
        let ring = self.directory.path().join("ring");
        let device = format!("net_virtio_user0,path={},queues={}", ring.display(), self.queues);
        let child = Command::new(env::current_exe().expect("this program"))
            .args(["--exact", role, "--ignored", "--nocapture"])
            .env("RING_DEVICE", device)
            .env("RING_QUEUES", self.queues.to_string())
            .env("RING_SERVER", self.server.address().to_string())
            .env("RING_SECRET", &self.tenant.secret)
            .env("RING_TABLE", self.table.to_string())
            .env("RING_HEARD", self.directory.path().join("heard"))
            .stdin(Stdio::null())
            .spawn()
            .expect("this program starts again");
        Process(child)
    }

    fn counter(&self, name: &str) -> Option<u64> {
        let statistics = self.server.admin().statistics().expect("the server counts");
        statistics.into_iter().find(|statistic| statistic.name == name).map(|statistic| statistic.value)
    }
}

struct Process(Child);

impl Process {
    fn succeeds(&mut self) {
        let begun = Instant::now();
        while begun.elapsed() < 4 * PATIENCE {
            if let Some(status) = self.0.try_wait().expect("it is a child of ours") {
                assert!(status.success(), "it ended with {status}");
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("it does not end");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Arguments of DPDK for this or another process, with a device.
fn environment(device: &str) -> Vec<String> {
    // The device's socket lies in a directory of its own, whose name is nobody else's.
    let own: String = device.chars().filter(char::is_ascii_alphanumeric).collect();
    let prefix = format!("splinter-{}-{own}", std::process::id());
    let arguments = ["--no-pci", "--no-huge", "--no-telemetry", "-m", "256", "-l", "0"];
    let arguments =
        arguments.into_iter().chain(["--log-level", "warning", "--file-prefix", &prefix, "--vdev", device]);
    arguments.map(String::from).collect()
}

fn given(name: &str) -> String {
    env::var(name).expect("the role is given what it needs")
}

/// A client over DPDK, in its own process.
fn client() -> (Client, u32) {
    let config = DpdkConfig {
        queues: Some(given("RING_QUEUES").parse().expect("a number")),
        ..DpdkConfig::new(environment(&given("RING_DEVICE")), CLIENT, 1, Role::Asking)
    };
    let port = dpdk::open(&config).expect("DPDK begins").pop().expect("a port");
    let server: SocketAddr = given("RING_SERVER").parse().expect("an address");
    let cores = (0..4).map(|core| SocketAddr::from((SERVER, server.port() + core))).collect();
    let config = ClientConfig { core_addresses: cores, ..patient() };
    let session =
        Session::open_over(Box::new(port), &server.to_string(), "acme", &given("RING_SECRET"), config);
    (Client::over(session.expect("a session")), given("RING_TABLE").parse().expect("a number"))
}

#[test]
fn what_was_put_over_dpdk_is_read_over_dpdk() {
    let stage = Stage::new(1, 1);
    stage.start("role_writes_and_reads").succeeds();
    assert_eq!(stage.counter("steering_one_port"), Some(1));
    assert!(stage.counter("frames_received").is_some_and(|frames| frames > 0), "frames went over the ring");
}

#[test]
fn functions_run_over_dpdk_each_once() {
    let stage = Stage::new(1, 1);
    stage.start("role_invokes").succeeds();
}

#[test]
fn two_cores_have_a_queue_each() {
    let stage = Stage::new(2, 2);
    assert_eq!(stage.counter("steering_queue_per_port"), Some(2));
    stage.start("role_writes_and_reads").succeeds();
}

#[test]
fn two_cores_share_a_queue_in_software() {
    let stage = Stage::new(2, 1);
    assert_eq!(stage.counter("steering_software"), Some(2));
    stage.start("role_writes_and_reads").succeeds();
}

#[test]
fn a_server_outlives_clients_that_vanish() {
    let mut stage = Stage::new(1, 1);
    let heard = stage.directory.path().join("heard");
    for _ in 0..3 {
        let vanishing = stage.start("role_writes_forever");
        wait_for(&heard);
        // Killed in the middle of its writes.
        drop(vanishing);
        std::fs::remove_file(&heard).expect("it has been written");
    }
    stage.start("role_writes_and_reads").succeeds();
    assert!(stage.server.is_running());
}

fn wait_for(path: &Path) {
    let begun = Instant::now();
    while !path.exists() {
        assert!(begun.elapsed() < PATIENCE, "{} does not appear", path.display());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Random writes, deletes and reads against a model, values of all sizes that go by frame, in parts or by stream.
#[test]
#[ignore = "a role of the tests above"]
fn role_writes_and_reads() {
    let (mut client, table) = client();
    let (mut random, mut model) = (rng(), BTreeMap::new());
    for _ in 0..rounds(2_000, 20_000) {
        let key = format!("key {}", random.u32(..100)).into_bytes();
        match random.u32(..10) {
            0..4 => {
                let bytes =
                    if random.u32(..50) == 0 { random.usize(..200_000) } else { random.usize(..1_400) };
                let value: Vec<u8> = (0..bytes).map(|_| random.u8(..)).collect();
                client.put(table, &key, &value).expect("a put");
                model.insert(key, value);
            }
            4 => {
                let deleted = client.delete(table, &key).expect("a delete");
                assert_eq!(deleted.is_some(), model.remove(&key).is_some());
            }
            5 => {
                let keys: Vec<&[u8]> = model.keys().take(20).map(Vec::as_slice).collect();
                let found = client.multi_get(table, &keys).expect("a multi-get");
                let values = found.into_iter().map(|object| object.map(|object| object.value));
                assert!(values.eq(model.values().take(20).cloned().map(Some)));
            }
            _ => {
                let found = client.get(table, &key).expect("a get").map(|object| object.value);
                assert_eq!(found.as_ref(), model.get(&key));
            }
        }
    }
}

#[test]
#[ignore = "a role of the tests above"]
fn role_invokes() {
    let (mut client, table) = client();
    let files = vec![
        PackageFile { path: "Cargo.toml", bytes: MANIFEST.as_bytes() },
        PackageFile { path: "src/lib.rs", bytes: COUNTED.as_bytes() },
    ];
    client.extension_install("counted", files).expect("the extension is installed");
    for round in 1..=rounds(500, 5_000) as u64 {
        let arguments = vec![round as u8; (round as usize * 7) % 1_200];
        let reply = client.invoke("counted.counted", table, b"count", &arguments).expect("an answer");
        assert_eq!(reply, [&round.to_le_bytes()[..], &arguments].concat());
    }
}

#[test]
#[ignore = "a role of the tests above"]
fn role_writes_forever() {
    let (mut client, table) = client();
    for round in 0u64.. {
        client.put(table, b"forever", &round.to_le_bytes()).expect("a put");
        if round == 100 {
            std::fs::write(given("RING_HEARD"), "100").expect("a file");
        }
    }
}
