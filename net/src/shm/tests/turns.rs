//! Tests of turns at a port with channels and a socket: no sender keeps the others waiting, whatever it sends.

use std::net::SocketAddr;

use super::{FRAME_BYTES, House, port};
use crate::shm::is_link;
use crate::{Batch, HostPort, Outbox, Port, SharedPort, UdpConfig, UdpPort};

/// A client over a channel, one over UDP, and the server of both.
struct Crowd {
    house: House,
    near: HostPort,
    far: UdpPort,
    link: SocketAddr,
    socket: SocketAddr,
    out: Outbox,
    batch: Batch,
}

impl Crowd {
    /// Creates a server whose port of core 0 has received nothing from its socket for long.
    fn new(name: &str) -> Crowd {
        let house = House::new(name, 8);
        let mut near = port();
        let far = UdpPort::bind(([127, 0, 0, 1], 0).into(), UdpConfig::default()).expect("a port");
        let (link, socket) = (house.attach(&mut near, 0), house.ports[0].local());
        let (out, batch) = (Outbox::new(FRAME_BYTES), Batch::new());
        let mut crowd = Crowd { house, near, far, link, socket, out, batch };
        while !crowd.next_is_link() {}
        assert!((0..1_000).all(|_| crowd.next_is_link()));
        crowd
    }

    fn send_over_link(&mut self) {
        assert!(self.out.push(b"near", self.link));
        self.near.send(&mut self.out).expect("a port that works");
    }

    fn send_by_udp(&mut self) {
        assert!(self.out.push(b"far", self.socket));
        self.far.send(&mut self.out).expect("a port that works");
    }

    /// Sends a frame over the channel; returns whether the next turn is the channel's.
    fn next_is_link(&mut self) -> bool {
        self.send_over_link();
        self.house.ports[0].receive(&mut self.batch).expect("a port that works");
        !self.batch.is_empty() && is_link(self.batch.frame(0).1.ip())
    }
}

#[test]
fn who_comes_by_udp_waits_for_a_turn_where_turns_are_long() {
    let mut crowd = Crowd::new("long");
    for _ in 0..10 {
        crowd.send_by_udp();
        // As an owner with long turns does.
        crowd.house.ports[0].look_everywhere();
        let waited = (0..3).take_while(|_| crowd.next_is_link()).count();
        assert!(waited <= 1, "{waited} turns");
    }
}

#[test]
fn a_client_of_ipv4_may_fill_its_frames_at_a_server_of_both_families() {
    let Ok(server) = HostPort::bind("[::]:0".parse().expect("an address"), UdpConfig::default()) else {
        eprintln!("no IPv6 on this machine: nothing to show");
        return;
    };
    let mut house = House::over("families", 8, vec![server]);
    let (mut near, mut batch, mut out) = (port(), Batch::new(), Outbox::new(FRAME_BYTES));
    let link = house.attach(&mut near, 0);
    assert!(out.push(&[1; FRAME_BYTES], link));
    near.send(&mut out).expect("a port that works");
    house.ports[0].receive(&mut batch).expect("a port that works");
    assert_eq!((batch.len(), house.lies()), (1, 0));
}

#[test]
fn links_have_each_other_turn_whatever_comes_by_udp_and_whatever_is_said() {
    let mut crowd = Crowd::new("each other");
    let mut turns = Vec::new();
    for _ in 0..20 {
        for _ in 0..2 {
            crowd.send_by_udp();
        }
        crowd.house.ports[0].look_everywhere();
        turns.push(crowd.next_is_link());
    }
    let of_links = turns.iter().filter(|is_link| **is_link).count();
    assert!((9..=11).contains(&of_links), "{turns:?}");
}

#[test]
fn a_neighbour_takes_datagrams_too_where_a_link_is_never_empty() {
    let mut crowd = Crowd::new("never empty");
    let handle = crowd.house.ports[0].handle();
    for _ in 0..10 {
        crowd.send_by_udp();
        let mut found = (false, false);
        for _ in 0..2 {
            crowd.send_over_link();
            let (neighbour, batch) = (&mut crowd.house.ports[1], &mut crowd.batch);
            neighbour.receive_at(&handle, batch, 4).expect("a port that works");
            for (_, peer) in batch.frames() {
                if is_link(peer.ip()) { found.0 = true } else { found.1 = true }
            }
        }
        assert_eq!(found, (true, true));
    }
}
