//! Tests of ports over DPDK in two processes, without huge pages or privileges: vhost with virtio-user, and memif.
//!
//! Each end is a separate process with a role. Needs only DPDK 22.11: no card, no network, no root.

mod ring {
    pub mod process;
}

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use net::dpdk::{self, DpdkConfig, DpdkPort, Role, Steering};
use net::{Batch, Outbox, Port, SharedPort};
use ring::process::{Process, given, wait_for};

const SERVER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 9, 0, 1), 7700);
const CLIENT: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 9, 0, 2), 40_000);
/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(60);
/// The file that tells an echo process to end.
const END: &str = "end";
/// Interval at which a frame that may have been lost is sent again.
const AGAIN: Duration = Duration::from_millis(20);

/// Both ends of a ring.
#[derive(Clone)]
struct Ring {
    directory: PathBuf,
    driver: &'static str,
    queues: usize,
    ports: usize,
    mtu_bytes: u16,
}

impl Ring {
    fn device(&self, serving: bool) -> String {
        let queues = self.queues;
        let socket = self.directory.join("ring").display().to_string();
        match (self.driver, serving) {
            ("vhost", true) => format!("net_vhost0,iface={socket},queues={queues}"),
            ("vhost", false) => format!("net_virtio_user0,path={socket},queues={queues}"),
            (_, serving) => {
                let role = if serving { "server" } else { "client" };
                format!("net_memif0,role={role},id=0,socket={socket},socket-abstract=no")
            }
        }
    }

    /// Starts this program in a role at one end.
    fn start(&self, role: &str, serving: bool) -> Process {
        let directory = self.directory.display().to_string();
        let needs = [
            ("RING_DEVICE", self.device(serving)),
            ("RING_QUEUES", self.queues.to_string()),
            ("RING_PORTS", self.ports.to_string()),
            ("RING_MTU", self.mtu_bytes.to_string()),
            ("RING_DIRECTORY", directory.clone()),
            ("XDG_RUNTIME_DIR", directory),
        ];
        Process::start(role, needs)
    }
}

fn number(name: &str) -> usize {
    given(name).parse().expect("a number")
}

fn directory() -> PathBuf {
    given("RING_DIRECTORY").into()
}

/// Opens the ports of this process's end.
fn open(role: Role, address: SocketAddrV4, ports: usize) -> Vec<DpdkPort> {
    let device = given("RING_DEVICE");
    let prefix = format!("splinter-{}", std::process::id());
    let arguments = [
        "--no-pci",
        "--no-huge",
        "--no-telemetry",
        "-m",
        "128",
        "-l",
        "0",
        "--file-prefix",
        &prefix,
        "--vdev",
        &device,
    ];
    let config = DpdkConfig {
        queues: Some(number("RING_QUEUES")),
        mtu_bytes: number("RING_MTU") as u16,
        packets_per_port: 2047,
        ..DpdkConfig::new(arguments.map(String::from).to_vec(), address, ports, role)
    };
    dpdk::open(&config).expect("DPDK begins")
}

/// Runs both ends until both have ended.
fn converse(driver: &'static str, (queues, ports): (usize, usize), mtu_bytes: u16, client: &str) {
    let directory = tempfile::tempdir().expect("a directory");
    let ring = Ring { directory: directory.path().to_owned(), driver, queues, ports, mtu_bytes };
    let mut echo = ring.start("role_echo", true);
    wait_for(&directory.path().join("ring"));
    ring.start(client, false).succeeds();
    fs::write(ring.directory.join(END), "").expect("a file");
    echo.succeeds();
}

#[test]
fn frames_come_back_over_vhost() {
    converse("vhost", (1, 1), 1500, "role_asks_all_sizes");
}

#[test]
fn frames_come_back_over_memif() {
    converse("memif", (1, 1), 1500, "role_asks_all_sizes");
}

#[test]
fn packets_of_9000_bytes_come_back_over_vhost() {
    converse("vhost", (1, 1), 9000, "role_asks_all_sizes");
}

#[test]
fn each_port_is_reached_by_a_queue_of_its_own() {
    converse("vhost", (2, 2), 1500, "role_asks_all_ports");
    converse("memif", (2, 2), 1500, "role_asks_all_ports");
}

#[test]
fn ports_that_share_a_queue_hand_each_other_their_frames() {
    converse("vhost", (1, 3), 1500, "role_asks_all_ports");
}

/// Clients come and go, some without a word; the same server continues. Over vhost, because in DPDK 22.11 a memif peer
/// that exits may crash its other end.
#[test]
fn a_server_outlives_clients_that_vanish() {
    let directory = tempfile::tempdir().expect("a directory");
    let ring = Ring {
        directory: directory.path().to_owned(),
        driver: "vhost",
        queues: 1,
        ports: 1,
        mtu_bytes: 1500,
    };
    let mut echo = ring.start("role_echo", true);
    wait_for(&directory.path().join("ring"));
    for _ in 0..3 {
        // The drop kills the client in the middle of its requests.
        let mut client = ring.start("role_asks_forever", false);
        let begun = Instant::now();
        let heard = directory.path().join("heard");
        wait_for(&heard);
        fs::remove_file(&heard).expect("it has been written");
        assert!(begun.elapsed() < PATIENCE && client.is_running());
    }
    ring.start("role_asks_all_sizes", false).succeeds();
    fs::write(ring.directory.join(END), "").expect("a file");
    echo.succeeds();
}

/// Echoes everything at all ports until told to end. Helps at other ports as workers do.
#[test]
#[ignore = "a role of the tests above"]
fn role_echo() {
    let ports = number("RING_PORTS");
    let mut all = open(Role::Serving, SERVER, ports);
    let attachment = all[0].attachment().clone();
    println!("{attachment:?}");
    let expected = match (ports, number("RING_QUEUES")) {
        (1, _) => Steering::OnePort,
        (ports, queues) if queues < ports => Steering::Software,
        _ => Steering::QueuePerPort,
    };
    assert_eq!(attachment.steering, expected);
    assert_eq!(all[0].frame_bytes_max(), number("RING_MTU") - 28);
    let handles: Vec<usize> = all.iter().map(SharedPort::handle).collect();
    let begun = Instant::now();
    let (mut batch, mut out) = (Batch::new(), Outbox::new(all[0].frame_bytes_max()));
    let (mut turn, end) = (0, directory().join(END));
    while begun.elapsed() < PATIENCE {
        // Receives and answers each frame at another port, like a worker that helps.
        turn += 1;
        let (helper, port) = (turn % ports, (turn / 3) % ports);
        let at = &handles[port];
        all[helper].receive_at(at, &mut batch, 32).expect("a working port");
        for (frame, peer) in batch.frames() {
            assert!(out.push(frame, peer), "as many fit as came");
        }
        all[helper].send_at(at, &mut out).expect("a working port");
        if turn % 4096 == 0 && end.exists() {
            return;
        }
    }
    panic!("nobody told it to end");
}

/// Sends `frame` to a peer until it comes back.
fn ask(port: &mut DpdkPort, to: SocketAddr, frame: &[u8], batch: &mut Batch, out: &mut Outbox) {
    let (begun, mut sent) = (Instant::now(), None);
    while begun.elapsed() < PATIENCE {
        if sent.is_none_or(|at: Instant| at.elapsed() > AGAIN) {
            assert!(out.push(frame, to));
            port.send(out).expect("a working port");
            sent = Some(Instant::now());
        }
        port.receive(batch).expect("a working port");
        if batch.frames().any(|(back, from)| back == frame && from == to) {
            return;
        }
    }
    panic!("{} bytes do not come back from {to}", frame.len());
}

fn asking() -> (DpdkPort, Batch, Outbox) {
    let mut port = open(Role::Asking, CLIENT, 1).pop().expect("a port");
    println!("{:?}", port.attachment());
    port.set_peer(SERVER.into()).expect("the server answers ARP");
    let out = Outbox::new(port.frame_bytes_max());
    (port, Batch::new(), out)
}

#[test]
#[ignore = "a role of the tests above"]
fn role_asks_all_sizes() {
    let (mut port, mut batch, mut out) = asking();
    let most = port.frame_bytes_max();
    for length in (1..most).step_by(97).chain([17, 18, 19, most]) {
        let frame: Vec<u8> = (0..length).map(|at| (at * 7 + length) as u8).collect();
        ask(&mut port, SERVER.into(), &frame, &mut batch, &mut out);
    }
}

#[test]
#[ignore = "a role of the tests above"]
fn role_asks_all_ports() {
    let (mut port, mut batch, mut out) = asking();
    for round in 0..200u64 {
        for index in 0..number("RING_PORTS") as u16 {
            let to = SocketAddrV4::new(*SERVER.ip(), SERVER.port() + index).into();
            let frame = [round.to_le_bytes(), u64::from(index).to_le_bytes()].concat();
            ask(&mut port, to, &frame, &mut batch, &mut out);
        }
    }
}

#[test]
#[ignore = "a role of the tests above"]
fn role_asks_forever() {
    let (mut port, mut batch, mut out) = asking();
    let heard = directory().join("heard");
    for round in 0u64.. {
        ask(&mut port, SERVER.into(), &round.to_le_bytes(), &mut batch, &mut out);
        if round == 100 {
            fs::write(&heard, "100").expect("a file");
        }
    }
}
