//! The way of frames between a client and servers, over real UDP: it loses, doubles, delays and reorders, both ways.

use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use fastrand::Rng;
use wire::limits::FRAME_BYTES_LIMIT;

/// Of a hundred frames so many are lost, and so many late.
const LOST: u8 = 4;
const LATE: u8 = 10;
const LATE_US_MAX: u64 = 30_000;

/// See the file's head.
pub struct Path {
    socket: UdpSocket,
    random: Rng,
    /// By the time at which it is due, and the order of sending: whether it came from there, the other end, the frame.
    travelling: BTreeMap<(Instant, u64), (bool, SocketAddr, Vec<u8>)>,
    order: u64,
    buffer: Vec<u8>,
}

impl Path {
    pub fn new(random: Rng) -> Path {
        let socket = UdpSocket::bind(("127.0.0.1", 0)).expect("a port");
        let buffer = vec![0; FRAME_BYTES_LIMIT];
        Path { socket, random, travelling: BTreeMap::new(), order: 0, buffer }
    }

    pub fn send(&mut self, to: SocketAddr, frame: &[u8]) {
        self.travel(false, to, frame.to_vec());
    }

    fn travel(&mut self, is_answer: bool, other: SocketAddr, frame: Vec<u8>) {
        for _ in 0..if self.random.u8(0..12) == 0 { 2 } else { 1 } {
            let fate = self.random.u8(0..100);
            if fate < LOST {
                continue;
            }
            let late_us = if fate < LOST + LATE { self.random.u64(0..LATE_US_MAX) } else { 0 };
            self.order += 1;
            let due = (Instant::now() + Duration::from_micros(late_us), self.order);
            self.travelling.insert(due, (is_answer, other, frame.clone()));
        }
    }

    /// Sends what is due, and gives an answer that has come; waits for one until then at most.
    pub fn receive(&mut self, until: Instant) -> Option<(SocketAddr, Vec<u8>)> {
        let mut has_looked = false;
        loop {
            let now = Instant::now();
            while let Some(first) = self.travelling.first_entry().filter(|first| first.key().0 <= now) {
                let (is_answer, other, frame) = first.remove();
                if is_answer {
                    return Some((other, frame));
                }
                // A server that is dead takes nothing.
                let _ = self.socket.send_to(&frame, other);
            }
            if now >= until && std::mem::replace(&mut has_looked, true) {
                return None;
            }
            let next = self.travelling.first_key_value().map_or(until, |first| first.0.0.min(until));
            let wait = next.saturating_duration_since(now).max(Duration::from_micros(100));
            self.socket.set_read_timeout(Some(wait)).expect("a time to wait");
            if let Ok((bytes, from)) = self.socket.recv_from(&mut self.buffer) {
                let frame = self.buffer[..bytes].to_vec();
                self.travel(true, from, frame);
            }
        }
    }
}
