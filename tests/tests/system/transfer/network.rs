//! A network that loses, doubles and reorders datagrams, between clients and the cores of a real server.
//!
//! Each link has a socket that its client sends to and one that sends to a core, whichever the test chose. A
//! thread moves the datagrams; a seed says what becomes of each. Streams do not pass here.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use fastrand::Rng;

/// Larger than any frame on loopback.
const DATAGRAM_BYTES: usize = 65_536;
/// A sleep when nothing has moved.
const IDLE: Duration = Duration::from_micros(100);
/// Longest time that a datagram is held back: longer than the first retransmissions take.
const HELD_US_MAX: u64 = 15_000;

/// Of each thousand datagrams, how many are lost, doubled, and held back while others pass.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    pub lost: u32,
    pub doubled: u32,
    pub held: u32,
}

/// What became of the datagrams.
#[derive(Clone, Copy, Debug, Default)]
pub struct Traffic {
    pub moved: u64,
    pub lost: u64,
    pub doubled: u64,
    pub held: u64,
}

/// The network, until it is dropped or ended.
pub struct Network {
    addresses: Vec<SocketAddr>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Traffic>>,
}

struct LinkSockets {
    front: UdpSocket,
    back: UdpSocket,
    /// Where the client sends from, once it has.
    client: Option<SocketAddr>,
}

/// A datagram that is held back.
struct Held {
    until: Instant,
    link: usize,
    to_server: bool,
    bytes: Vec<u8>,
}

struct Mover {
    links: Vec<LinkSockets>,
    faults: Faults,
    random: Rng,
    held: Vec<Held>,
    traffic: Traffic,
}

impl Network {
    /// A link to each of the given addresses of cores.
    pub fn to(cores: &[SocketAddr], faults: Faults, random: Rng) -> Self {
        let socket = || {
            let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
            socket.set_nonblocking(true).expect("a socket may be so");
            socket
        };
        let link = |core: &SocketAddr| {
            let (front, back) = (socket(), socket());
            back.connect(core).expect("loopback is there");
            LinkSockets { front, back, client: None }
        };
        let links: Vec<LinkSockets> = cores.iter().map(link).collect();
        let addresses = links.iter().map(|link| link.front.local_addr().expect("it is bound")).collect();
        let stop = Arc::new(AtomicBool::new(false));
        let told = stop.clone();
        let mut mover = Mover { links, faults, random, held: Vec::new(), traffic: Traffic::default() };
        let thread = thread::spawn(move || {
            while !told.load(Ordering::Relaxed) {
                if !mover.step() {
                    thread::sleep(IDLE);
                }
            }
            mover.traffic
        });
        Self { addresses, stop, thread: Some(thread) }
    }

    /// Where the client of a link sends its datagrams.
    pub fn address(&self, link: usize) -> SocketAddr {
        self.addresses[link]
    }

    /// Moves nothing any more; says what was moved.
    pub fn end(mut self) -> Traffic {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().expect("it is ended once");
        thread.join().expect("the network does not panic")
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Mover {
    /// Moves what has arrived and what was held long enough; whether there was any.
    fn step(&mut self) -> bool {
        let mut buffer = [0; DATAGRAM_BYTES];
        let mut moved = false;
        for index in 0..self.links.len() {
            while let Ok((bytes, client)) = self.links[index].front.recv_from(&mut buffer) {
                self.links[index].client = Some(client);
                self.pass(index, true, &buffer[..bytes]);
                moved = true;
            }
            while let Ok(bytes) = self.links[index].back.recv(&mut buffer) {
                self.pass(index, false, &buffer[..bytes]);
                moved = true;
            }
        }
        let now = Instant::now();
        let due: Vec<Held> = self.held.extract_if(.., |held| held.until <= now).collect();
        for held in &due {
            self.deliver(held.link, held.to_server, &held.bytes);
        }
        moved || !due.is_empty()
    }

    /// Decides what becomes of a datagram.
    fn pass(&mut self, link: usize, to_server: bool, bytes: &[u8]) {
        let Faults { lost, doubled, held } = self.faults;
        let drawn = self.random.u32(0..1_000);
        if drawn < lost {
            self.traffic.lost += 1;
        } else if drawn < lost + held {
            self.traffic.held += 1;
            let until = Instant::now() + Duration::from_micros(self.random.u64(0..HELD_US_MAX));
            self.held.push(Held { until, link, to_server, bytes: bytes.to_vec() });
        } else {
            self.deliver(link, to_server, bytes);
            if drawn < lost + held + doubled {
                self.traffic.doubled += 1;
                self.deliver(link, to_server, bytes);
            }
        }
    }

    fn deliver(&mut self, link: usize, to_server: bool, bytes: &[u8]) {
        self.traffic.moved += 1;
        let LinkSockets { front, back, client } = &self.links[link];
        // A full queue loses datagrams, as a network may.
        let _ = match (to_server, client) {
            (true, _) => back.send(bytes),
            (false, Some(client)) => front.send_to(bytes, client),
            (false, None) => Ok(0),
        };
    }
}
