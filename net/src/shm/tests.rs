//! Tests of ports over channels within this process: frames, admission, and clients that forge numbers, stall or die.

mod turns;

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::layout::{Direction, SLOTS};
use super::region::Region;
use super::ring::RingMemory;
use super::{
    Admission, AttachError, Attacher, ChannelPoint, Entry, ListenerAddress, ListenerLimits, ShmListener,
    descriptor, is_link,
};
use crate::listener::StopHandle;
use crate::{Batch, HostPort, Outbox, Port, SharedPort, UdpConfig, UdpPort};

const PATIENCE: Duration = Duration::from_secs(60);
/// Longer than the interval of the listener's checks.
const LOOK: Duration = Duration::from_millis(150);
const FRAME_BYTES: usize = 1_472;

/// Admits every client that names a core, until its words are revoked.
#[derive(Clone, Default)]
struct Everybody {
    over: Arc<Mutex<Vec<u8>>>,
}

impl Admission for Everybody {
    fn admit(&mut self, knocker: Attacher<'_>) -> Result<usize, String> {
        match knocker.words {
            [core, ..] if *core < 2 => Ok(usize::from(*core)),
            _ => Err("there is no such core".to_owned()),
        }
    }

    fn is_over(&mut self, words: &[u8]) -> bool {
        *self.over.lock().expect("nobody panics with it") == words
    }

    fn note(&mut self, _: &str) {}
}

/// A server with two cores and a listener.
struct House {
    ports: Vec<HostPort>,
    points: Vec<ChannelPoint>,
    address: ListenerAddress,
    admission: Everybody,
    stop: StopHandle,
    listener: Option<JoinHandle<()>>,
}

impl House {
    fn new(name: &str, of_user: usize) -> House {
        House::over(name, of_user, (0..2).map(|_| port()).collect())
    }

    fn over(name: &str, of_user: usize, ports: Vec<HostPort>) -> House {
        let points: Vec<ChannelPoint> = ports.iter().map(HostPort::link_point).collect();
        let path = std::env::temp_dir().join(format!("splinter-{}-{name}", std::process::id()));
        let limits = ListenerLimits { of_core: 8, of_user };
        let listener = ShmListener::open(&path, points.clone(), limits).expect("a path that is free");
        let (own, _) = UnixStream::pair().expect("two sockets");
        let user = descriptor::peer_user(own.as_fd()).expect("a socket has a peer");
        let (stop, admission) = (listener.stop_handle(), Everybody::default());
        let mut deciding = admission.clone();
        let listener = thread::spawn(move || listener.run(&mut deciding).expect("a listener that works"));
        let address = ListenerAddress { path, user };
        House { ports, points, address, admission, stop, listener: Some(listener) }
    }

    fn attach(&self, client: &mut HostPort, core: u8) -> SocketAddr {
        attach(client, &self.address, &[core, 7]).expect("there is room")
    }

    /// Attaches a hostile client; returns the memory, the socket and the server's doorbell.
    fn intrude(&self) -> (Region, UnixStream, OwnedFd) {
        let socket = UnixStream::from(descriptor::connect(&self.address.path).expect("a listener"));
        descriptor::send(socket.as_fd(), &[0, 9], &[]).expect("a listener that listens");
        let (bytes, passed) = loop {
            match descriptor::receive(socket.as_fd(), &mut [0; 300]) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => thread::yield_now(),
                answer => break answer.expect("an answer"),
            }
        };
        socket.set_nonblocking(false).expect("a socket that works");
        let [Some(memory), Some(doorbell)] = passed else {
            panic!("no memory in an answer of {bytes} bytes")
        };
        (Region::map(memory.as_fd()).expect("memory"), socket, doorbell)
    }

    /// Echoes at core 0 until `is_done`.
    fn serve_until(&mut self, mut is_done: impl FnMut() -> bool) {
        let (mut batch, mut out) = (Batch::new(), Outbox::new(FRAME_BYTES));
        let deadline = Instant::now() + PATIENCE;
        while !is_done() {
            assert!(Instant::now() < deadline, "it is never done");
            echo(&mut self.ports[0], &mut batch, &mut out);
        }
    }

    fn lies(&self) -> u64 {
        self.points[0].counts().lies.load(Ordering::Relaxed)
    }
}

impl Drop for House {
    fn drop(&mut self) {
        self.stop.stop();
        self.listener.take().into_iter().for_each(|listener| drop(listener.join()));
    }
}

fn port() -> HostPort {
    HostPort::bind(([127, 0, 0, 1], 0).into(), UdpConfig::default()).expect("a port on loopback")
}

fn echo(port: &mut HostPort, batch: &mut Batch, out: &mut Outbox) {
    port.receive(batch).expect("a server's port does not break for its clients");
    for (frame, peer) in batch.frames() {
        if out.is_full() {
            port.send(out).expect("nor here");
        }
        assert!(out.push(frame, peer));
    }
    port.send(out).expect("nor here");
}

/// Attaches a client, and waits for the result.
fn attach(
    client: &mut HostPort,
    listener: &ListenerAddress,
    words: &[u8],
) -> Result<SocketAddr, AttachError> {
    let attaching = client.attach(listener, words)?;
    match client.enter(attaching, PATIENCE)? {
        Entry::Attached(address) => Ok(address),
        Entry::Waiting(_) => panic!("the listener says nothing"),
    }
}

/// Checks one exchange of a well-behaved client.
fn is_served(house: &mut House, client: &mut HostPort, server: SocketAddr) {
    let (mut batch, mut out) = (Batch::new(), Outbox::new(FRAME_BYTES));
    assert!(out.push(b"question", server));
    client.send(&mut out).expect("a port that works");
    house.serve_until(|| client.receive(&mut batch).expect("the server is there") > 0);
    assert_eq!(batch.frame(0), (&b"question"[..], server));
}

#[test]
fn frames_of_all_lengths_pass_in_order_over_links_and_udp_side_by_side() {
    let mut house = House::new("all", 8);
    let (mut near, mut far) =
        (port(), UdpPort::bind(([127, 0, 0, 1], 0).into(), UdpConfig::default()).expect("a port"));
    let server = house.attach(&mut near, 0);
    assert!(is_link(server.ip()) && near.is_attached(server));
    near.set_peer(server).expect("it is attached");
    let lengths: Vec<usize> = (1..=FRAME_BYTES).step_by(7).chain([FRAME_BYTES]).collect();
    let mut out = Outbox::new(FRAME_BYTES);
    let (mut batch, mut back, mut from_far) = (Batch::new(), Vec::new(), 0);
    let udp = house.ports[0].local();
    for lengths in lengths.chunks(50) {
        for &length in lengths {
            assert!(out.push(&vec![length as u8; length], server));
        }
        assert_eq!(near.send(&mut out).expect("a port that works"), lengths.len());
        assert!(out.push(b"far", udp));
        far.send(&mut out).expect("a port that works");
        let until = (back.len() + lengths.len(), from_far + 1);
        house.serve_until(|| {
            near.receive(&mut batch).expect("the server is there");
            back.extend(batch.frames().map(|(frame, peer)| (frame.to_vec(), peer)));
            from_far += far.receive(&mut batch).expect("a port that works");
            (back.len(), from_far) == until
        });
    }
    let expected: Vec<_> = lengths.iter().map(|&length| (vec![length as u8; length], server)).collect();
    assert!(back == expected);
}

#[test]
fn who_sleeps_is_woken_by_a_frame_at_either_end() {
    let mut house = House::new("sleep", 8);
    let mut client = port();
    let server = house.attach(&mut client, 0);
    let mut worker = house.ports.remove(0);
    let serving = thread::spawn(move || {
        let (mut batch, mut out, mut served) = (Batch::new(), Outbox::new(FRAME_BYTES), 0);
        while served < 50 {
            worker.receive(&mut batch).expect("a port that works");
            if batch.is_empty() {
                // Lasts an hour if no doorbell rings.
                worker.wait(Duration::from_secs(3_600)).expect("a port that works");
            }
            served += batch.len();
            batch.frames().for_each(|(frame, peer)| assert!(out.push(frame, peer)));
            worker.send(&mut out).expect("a port that works");
        }
    });
    let (mut batch, mut out) = (Batch::new(), Outbox::new(FRAME_BYTES));
    for number in 0..50u8 {
        assert!(out.push(&[number], server));
        client.send(&mut out).expect("a port that works");
        while client.receive(&mut batch).expect("the server is there") == 0 {
            client.wait(Duration::from_secs(3_600)).expect("a port that works");
        }
        assert_eq!(batch.frame(0).0, [number]);
    }
    serving.join().expect("the server does not panic");
}

#[test]
fn a_neighbour_takes_from_links_and_answers_there() {
    let mut house = House::new("neighbour", 8);
    let mut client = port();
    let server = house.attach(&mut client, 0);
    let (mut batch, mut out) = (Batch::new(), Outbox::new(FRAME_BYTES));
    is_served(&mut house, &mut client, server);
    let handle = house.ports[0].handle();
    assert!(out.push(b"for whoever", server));
    client.send(&mut out).expect("a port that works");
    let neighbour = &mut house.ports[1];
    assert_eq!(neighbour.receive_at(&handle, &mut batch, 8).expect("a port that works"), 1);
    let (frame, peer) = batch.frame(0);
    assert!(out.push(frame, peer));
    assert_eq!(neighbour.send_at(&handle, &mut out).expect("a port that works"), 1);
    assert_eq!(client.receive(&mut batch).expect("the server is there"), 1);
    assert_eq!(batch.frame(0), (&b"for whoever"[..], server));
}

#[test]
fn a_full_ring_loses_frames_and_goes_on() {
    let mut house = House::new("full", 8);
    let mut client = port();
    let server = house.attach(&mut client, 0);
    let mut out = Outbox::with_frames(SLOTS as usize + 10, FRAME_BYTES);
    while out.push(b"many", server) {}
    assert_eq!(client.send(&mut out).expect("a port that works"), SLOTS as usize);
    assert_eq!(client.drops(), 10);
    let (mut batch, mut back) = (Batch::new(), 0);
    house.serve_until(|| {
        back += client.receive(&mut batch).expect("the server is there");
        back == SLOTS as usize
    });
    is_served(&mut house, &mut client, server);
}

#[test]
fn who_may_not_in_hears_why_and_a_place_comes_back_when_its_holder_leaves() {
    let mut house = House::new("places", 2);
    let mut clients: Vec<HostPort> = (0..2).map(|_| port()).collect();
    let addresses: Vec<SocketAddr> = clients.iter_mut().map(|client| house.attach(client, 0)).collect();
    let mut late = port();
    let refused = attach(&mut late, &house.address, &[0, 7]);
    assert!(
        matches!(&refused, Err(AttachError::Refused(reason)) if reason.contains("maximum number")),
        "{refused:?}"
    );
    let refused = attach(&mut late, &house.address, &[5]);
    assert!(
        matches!(&refused, Err(AttachError::Refused(reason)) if reason.contains("no such core")),
        "{refused:?}"
    );
    let other = ListenerAddress { user: house.address.user + 1, ..house.address.clone() };
    assert!(matches!(attach(&mut late, &other, &[0]), Err(AttachError::OtherUser { .. })));
    let absent = ListenerAddress { path: "/nowhere/at/all".into(), ..house.address.clone() };
    assert!(matches!(attach(&mut late, &absent, &[0]), Err(AttachError::Unreachable(_))));
    clients.remove(0);
    let address = house.address.clone();
    let mut attached = None;
    house.serve_until(|| {
        attached = attach(&mut late, &address, &[0, 7]).ok();
        attached.is_some()
    });
    is_served(&mut house, &mut late, attached.expect("it was let in"));
    is_served(&mut house, &mut clients[0], addresses[1]);
}

#[test]
fn a_door_that_says_nothing_holds_nobody_up_and_its_answer_counts_when_it_comes() {
    let mut house = House::new("hushed", 8);
    let over = Arc::clone(&house.admission.over);
    let (mut inside, mut client) = (port(), port());
    house.attach(&mut inside, 1);
    // With an admitted client, the listener checks whether its channel is over; the held lock stops it there.
    let held = over.lock().expect("nobody panics with it");
    thread::sleep(2 * LOOK);
    let began = Instant::now();
    let mut attaching = client.attach(&house.address, &[0, 7]).expect("the listener is there");
    for patience in [Duration::ZERO, LOOK, Duration::ZERO] {
        let before = Instant::now();
        let Ok(Entry::Waiting(still)) = client.enter(attaching, patience) else {
            panic!("who has answered?")
        };
        assert!(before.elapsed() >= patience);
        attaching = still;
    }
    // On a busy machine this takes longer than requested.
    assert!(began.elapsed() < PATIENCE);
    drop(held);
    let Ok(Entry::Attached(server)) = client.enter(attaching, PATIENCE) else { panic!("it answers again") };
    is_served(&mut house, &mut client, server);
}

#[test]
fn a_client_hears_once_that_its_link_is_over() {
    let mut house = House::new("over", 8);
    let (mut ended, mut other) = (port(), port());
    let gone = attach(&mut ended, &house.address, &[0, 1]).expect("there is room");
    let server = house.attach(&mut other, 0);
    is_served(&mut house, &mut ended, gone);
    *house.admission.over.lock().expect("nobody panics with it") = vec![0, 1];
    let (mut batch, mut heard) = (Batch::new(), None);
    house.serve_until(|| {
        heard = ended.receive(&mut batch).err();
        heard.is_some()
    });
    assert_eq!(heard.map(|error| error.kind()), Some(ErrorKind::ConnectionReset));
    assert!(!ended.is_attached(gone));
    assert_eq!(ended.receive(&mut batch).expect("it goes on"), 0);
    is_served(&mut house, &mut other, server);
    drop(house);
    while other.receive(&mut batch).is_ok() {
        // A server that stops marks the memory as closed, in whatever state it is.
        other.wait(Duration::from_millis(1)).expect("a port that works");
    }
}

#[test]
fn a_client_that_sleeps_hears_of_a_server_that_died_without_a_word() {
    let mut client = port();
    let (mine, theirs) = UnixStream::pair().expect("two sockets");
    let region = Region::map(descriptor::memory().expect("memory").as_fd()).expect("memory");
    let doorbell = crate::sys::eventfd().expect("a descriptor");
    mine.set_nonblocking(true).expect("a socket that works");
    let link = super::channel::Channel::of_client(region, mine.into(), doorbell, 1);
    let server = client.add_link(link).expect("a place");
    client.set_peer(server).expect("it is attached");
    drop(theirs);
    let (mut batch, mut waits) = (Batch::new(), 0);
    let error = loop {
        match client.receive(&mut batch) {
            Ok(_) => client.wait(Duration::from_secs(3_600)).expect("a port that works"),
            Err(error) => break error,
        }
        waits += 1;
    };
    assert_eq!((error.kind(), waits <= 3), (ErrorKind::ConnectionReset, true), "{waits} waits");
}

#[test]
fn a_length_that_is_a_lie_ends_the_link_of_the_liar_alone() {
    let mut house = House::new("length", 8);
    let mut client = port();
    let server = house.attach(&mut client, 0);
    for bytes in [0u64, FRAME_BYTES as u64 + 1, 1_528, u64::from(u32::MAX)] {
        let (memory, _socket, _) = house.intrude();
        let before = house.lies();
        memory.ring(Direction::Requests).publish(0, 1 << 32 | bytes);
        let points = house.points.clone();
        house.serve_until(|| points[0].counts().lies.load(Ordering::Relaxed) > before);
        is_served(&mut house, &mut client, server);
        assert!(memory.is_closed());
    }
}

#[test]
fn who_says_that_it_took_answers_which_nobody_sent_is_cut_off() {
    let mut house = House::new("taken", 8);
    let mut client = port();
    let server = house.attach(&mut client, 0);
    let (memory, _socket, _) = house.intrude();
    memory.ring(Direction::Replies).set_taken(u32::MAX / 2);
    // The server reads this number when it has filled the ring.
    let (requests, points) = (memory.ring(Direction::Requests), house.points.clone());
    let mut sent = 0u64;
    house.serve_until(|| {
        let given_back = u64::from(requests.taken());
        if sent < given_back + u64::from(SLOTS) {
            requests.write(sent as u32, b"again");
            requests.publish(sent as u32, (sent + 1) << 32 | 5);
            sent += 1;
        }
        points[0].counts().lies.load(Ordering::Relaxed) > 0
    });
    is_served(&mut house, &mut client, server);
}

#[test]
fn a_client_that_never_takes_its_answers_loses_them_and_no_one_else_does() {
    let mut house = House::new("stall", 8);
    let mut client = port();
    let server = house.attach(&mut client, 0);
    let (memory, _socket, _) = house.intrude();
    let (requests, points) = (memory.ring(Direction::Requests), house.points.clone());
    let mut sent = 0u64;
    house.serve_until(|| {
        if sent < u64::from(requests.taken()) + u64::from(SLOTS) {
            // The client always announces its sleep and never reads a doorbell.
            memory.ring(Direction::Replies).set_asleep(true);
            requests.write(sent as u32, &[3; FRAME_BYTES]);
            requests.publish(sent as u32, (sent + 1) << 32 | FRAME_BYTES as u64);
            sent += 1;
        }
        points[0].counts().frames_lost.load(Ordering::Relaxed) > 1_000
    });
    is_served(&mut house, &mut client, server);
    assert_eq!(house.lies(), 0);
}

#[test]
fn whatever_is_written_into_the_memory_others_are_served() {
    let seed = std::env::var("SPLINTER_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    println!("SPLINTER_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut house = House::new("random", 8);
    let mut client = port();
    let server = house.attach(&mut client, 0);
    for _ in 0..20 {
        let (memory, socket, _) = house.intrude();
        for round in 0..100u32 {
            for way in [Direction::Requests, Direction::Replies] {
                let ring = memory.ring(way);
                let near = round.wrapping_add(random.u32(0..4));
                match random.u8(0..5) {
                    0 => ring.publish(near, u64::from(near + 1) << 32 | random.u64(0..1_600)),
                    1 => ring.publish(random.u32(..), random.u64(..)),
                    2 => ring.set_taken(if random.bool() { near } else { random.u32(..) }),
                    3 => ring.set_asleep(random.bool()),
                    _ => drop(descriptor::send(socket.as_fd(), &[random.u8(..); 9], &[])),
                }
            }
            if round % 25 == 0 {
                is_served(&mut house, &mut client, server);
            }
        }
        // The client dies, and leaves the memory as it is.
        drop((memory, socket));
    }
    is_served(&mut house, &mut client, server);
}

#[test]
fn a_bell_that_is_kept_rings_nobody_when_its_link_is_over() {
    let mut house = House::new("kept", 1);
    let (_, _, doorbell) = house.intrude();
    // The next client gets a place when the first one's is released.
    let (mut client, mut attached, address) = (port(), None, house.address.clone());
    house.serve_until(|| {
        attached = attach(&mut client, &address, &[0, 7]).ok();
        attached.is_some()
    });
    is_served(&mut house, &mut client, attached.expect("it was let in"));
    let server = &mut house.ports[0];
    // Consumes earlier wake-ups.
    for _ in 0..4 {
        server.wait(Duration::from_millis(1)).expect("a port that works");
    }
    crate::sys::eventfd_raise(doorbell.as_fd());
    let began = Instant::now();
    server.wait(Duration::from_millis(20)).expect("a port that works");
    assert!(began.elapsed() >= Duration::from_millis(19));
}

#[test]
fn who_connects_and_says_nothing_keeps_nobody_out() {
    let mut house = House::new("silent", 8);
    // Three times as many as may attach at once.
    let silent: Vec<_> = (0..100).map(|_| UnixStream::connect(&house.address.path)).collect();
    assert!(silent.iter().all(Result::is_ok));
    let mut client = port();
    let server = house.attach(&mut client, 0);
    is_served(&mut house, &mut client, server);
}
