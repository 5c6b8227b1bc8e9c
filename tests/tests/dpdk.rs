//! The real server over DPDK, and the client library over DPDK in another process: vhost with virtio-user, and memif.
//!
//! Neither has a card, huge pages or privileges. Each client is a process of its own, in a role. Streams go over the
//! kernel's loopback, frames through the ring. Compiled with the feature `dpdk` alone; `scripts/test --dpdk` runs it.

#[path = "../../net/tests/ring/process.rs"]
mod process;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use client::{Client, ClientConfig, PackageFile, Session};
use net::dpdk::{self, DpdkConfig, Role};
use process::{Process, given, wait_for};
use tempfile::TempDir;
use tests::effort::{rng, rounds};
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

/// What moves packets between the two processes.
#[derive(Clone, Copy)]
enum Driver {
    Vhost,
    Memif,
}

/// A server at one end of a ring.
struct Stage {
    driver: Driver,
    server: Server,
    tenant: Tenant,
    table: u32,
    directory: TempDir,
    queues: usize,
}

impl Stage {
    /// A server of so many cores, with so many queues.
    fn new(driver: Driver, (cores, queues): (usize, usize)) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let environment = environment(&driver.device(directory.path(), true, queues));
        let arguments = ["--dpdk", &environment.join(" "), "--dpdk-address", &SERVER.to_string()];
        let server = Server::start_with(Settings {
            cores,
            arguments: arguments.map(String::from).to_vec(),
            ..Settings::default()
        });
        let tenant = server.tenant("acme");
        // Administration goes over the stream: this client sends no frame.
        let table = server.client(&tenant).table_create(TABLE).expect("the table is created");
        Self { driver, server, tenant, table, directory, queues }
    }

    /// Starts a client in a role.
    fn start(&self, role: &str) -> Process {
        let needs = [
            ("RING_DEVICE", self.driver.device(self.directory.path(), false, self.queues)),
            ("RING_QUEUES", self.queues.to_string()),
            ("RING_SERVER", self.server.address().to_string()),
            ("RING_SECRET", self.tenant.secret.clone()),
            ("RING_TABLE", self.table.to_string()),
            ("RING_HEARD", self.heard().display().to_string()),
        ];
        Process::start(role, needs)
    }

    /// The file in which a role that goes on says that it has come so far.
    fn heard(&self) -> PathBuf {
        self.directory.path().join("heard")
    }

    fn counter(&self, name: &str) -> Option<u64> {
        let statistics = self.server.admin().statistics().expect("the server counts");
        statistics.into_iter().find(|statistic| statistic.name == name).map(|statistic| statistic.value)
    }
}

impl Driver {
    /// The device of one end of the ring in `directory`.
    fn device(self, directory: &Path, is_server: bool, queues: usize) -> String {
        let socket = directory.join("ring").display().to_string();
        match (self, is_server) {
            (Driver::Vhost, true) => format!("net_vhost0,iface={socket},queues={queues}"),
            (Driver::Vhost, false) => format!("net_virtio_user0,path={socket},queues={queues}"),
            (Driver::Memif, is_server) => {
                let role = if is_server { "server" } else { "client" };
                format!("net_memif0,role={role},id=0,socket={socket},socket-abstract=no")
            }
        }
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
    let stage = Stage::new(Driver::Vhost, (1, 1));
    stage.start("role_writes_and_reads").succeeds();
    assert_eq!(stage.counter("steering_one_port"), Some(1));
    assert!(stage.counter("frames_received").is_some_and(|frames| frames > 0), "frames went over the ring");
}

/// The client stays until the server has been asked: with DPDK 22.11 it may take the server along when it goes. See "A port
/// without a kernel" in docs/notes.md.
#[test]
fn what_was_put_over_memif_is_read_over_memif() {
    for (cores, steering) in [(1, "steering_one_port"), (2, "steering_queue_per_port")] {
        let mut stage = Stage::new(Driver::Memif, (cores, cores));
        let mut client = stage.start("role_writes_reads_and_stays");
        wait_for(&stage.heard());
        assert!(client.is_running() && stage.server.is_running());
        assert_eq!(stage.counter(steering), Some(cores as u64));
        assert!(
            stage.counter("frames_received").is_some_and(|frames| frames > 1_000),
            "they went over the ring"
        );
    }
}

#[test]
fn functions_run_over_dpdk_each_once() {
    let stage = Stage::new(Driver::Vhost, (1, 1));
    stage.start("role_invokes").succeeds();
}

#[test]
fn two_cores_have_a_queue_each() {
    let stage = Stage::new(Driver::Vhost, (2, 2));
    assert_eq!(stage.counter("steering_queue_per_port"), Some(2));
    stage.start("role_writes_and_reads").succeeds();
}

#[test]
fn two_cores_share_a_queue_in_software() {
    let stage = Stage::new(Driver::Vhost, (2, 1));
    assert_eq!(stage.counter("steering_software"), Some(2));
    stage.start("role_writes_and_reads").succeeds();
}

#[test]
fn a_server_outlives_clients_that_vanish() {
    let mut stage = Stage::new(Driver::Vhost, (1, 1));
    let heard = stage.heard();
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

#[test]
#[ignore = "a role of the tests above"]
fn role_writes_and_reads() {
    let (mut client, table) = client();
    writes_and_reads(&mut client, table);
}

#[test]
#[ignore = "a role of the tests above"]
fn role_writes_reads_and_stays() {
    let (mut client, table) = client();
    writes_and_reads(&mut client, table);
    std::fs::write(given("RING_HEARD"), "all").expect("a file");
    // Until it is killed.
    thread::sleep(Duration::from_secs(600));
}

/// Random writes, deletes and reads against a model, values of all sizes that go by frame, in parts or by stream.
fn writes_and_reads(client: &mut Client, table: u32) {
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
