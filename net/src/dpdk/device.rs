//! The state shared by all ports of a device: its queues, the hardware addresses of peers, and a hand-off queue per port.
//!
//! ```text
//!   queue 0, 1 ... of the device     each under a lock that is only ever tried, for one burst
//!       │ burst: packets for port 0, 1, 2 ...
//!       ▼
//!   hand-off queue of port i              packets that other ports received for it, bounded; its waker
//! ```
//! No thread waits here. A thread that finds a receiving queue locked leaves it to the thread that polls it. A thread
//! that finds a sending queue or a hand-off queue locked tries again for the time of a burst, and then loses its packets,
//! as on a full queue.

use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use super::ethdev::{Ethdev, Queue, Setup};
use super::mbuf::{Mbuf, Pool, SendList};
use super::steering::{self, Steering};
use super::sys::Environment;
use super::{DpdkConfig, DpdkError, Role};
use crate::Waker;
use crate::lock::attempt;
use crate::packet::{IP_HEADERS_BYTES, Mac, Neighbours, Offloaded};

/// Maximum packets that wait in a port's hand-off queue; further ones are lost and counted. Far below the size of a pool,
/// so that a port that stops polling does not leave the others without packets.
const LETTERS: usize = 1024;
/// Bytes of a packet besides its MTU: the Ethernet header, a tag and the check sequence, with some to spare.
const PACKET_BESIDE_MTU_BYTES: u16 = 64;
/// Minimum bytes of a packet buffer, which drivers rely on.
const PACKET_BYTES_MIN: u16 = 2048;
/// Attempts to lock a sending queue or a hand-off queue that another thread uses: a burst of a device takes some
/// microseconds.
const QUEUE_ATTEMPTS: usize = 4096;
/// Attempts to pass packets to a device whose queue is full.
const SEND_ATTEMPTS: usize = 256;

/// The setup of a device, for people.
#[derive(Clone, Debug)]
pub struct Attachment {
    /// The driver's name.
    pub driver: String,
    /// The hardware address.
    pub mac: Mac,
    /// Pairs of queues.
    pub queues: usize,
    /// The way in which packets reach their port.
    pub steering: Steering,
    /// The reason why the card has no rules, if they were tried.
    pub no_rules: Option<DpdkError>,
    /// Checksums that the device verifies.
    pub checks: Offloaded,
    /// Checksums that the device fills in.
    pub fills: Offloaded,
}

/// One port, as the other ports use it.
pub(super) struct Lane {
    /// Allocated for the maximum number of packets.
    letters: Mutex<VecDeque<Mbuf>>,
    has_letters: AtomicBool,
    waker: Waker,
    drops: AtomicU64,
    /// The receiving queues that the port polls.
    queues: Box<[usize]>,
}

/// A device with its queues and ports. Dropped in the order of the fields: packets, the device, their memory, the
/// environment.
pub(super) struct Device {
    lanes: Box<[Lane]>,
    receiving: Box<[Mutex<Queue>]>,
    sending: Box<[Mutex<Queue>]>,
    ethdev: Ethdev,
    pub(super) pools: Box<[Pool]>,
    pub(super) neighbours: Neighbours,
    pub(super) address: Ipv4Addr,
    pub(super) port_first: u16,
    pub(super) frame_bytes_max: usize,
    pub(super) attachment: Attachment,
    role: Role,
    _environment: Environment,
}

impl Device {
    /// Sets up the first device of the environment; each port is woken by one of `wakers`.
    pub(super) fn open(config: &DpdkConfig, wakers: Vec<Waker>) -> Result<Self, DpdkError> {
        config.check()?;
        let environment = Environment::begin(&config.environment)?;
        let mut ethdev = Ethdev::first(&environment)?;
        let description = ethdev.describe()?;
        if config.mtu_bytes > description.mtu_bytes_max {
            let (asked, most) = (config.mtu_bytes, description.mtu_bytes_max);
            return Err(DpdkError::Configuration(format!(
                "an MTU of {asked} bytes: the device takes {most}"
            )));
        }
        let packet_bytes = (config.mtu_bytes + PACKET_BESIDE_MTU_BYTES).max(PACKET_BYTES_MIN);
        let pools = (0..config.ports)
            .map(|index| Pool::new(&environment, index, config.packets_per_port, packet_bytes))
            .collect::<Result<Box<[_]>, _>>()?;
        let wanted = config.queues.unwrap_or(config.ports);
        let queues = wanted.min(usize::from(description.queues_max)).max(1);
        let of_queues: Vec<&Pool> = (0..queues).map(|queue| &pools[queue % config.ports]).collect();
        ethdev.start(&Setup {
            mtu_bytes: config.mtu_bytes,
            pools: &of_queues,
            description: &description,
            isolate: config.isolate,
        })?;
        let (port_first, driver) = (config.address.port(), description.driver.as_str());
        let (steering, no_rules) = steering::choose(&ethdev, driver, (port_first, config.ports, queues));
        let ends =
            |ethdev: &Ethdev| (0..queues).map(|queue| Mutex::new(Queue::of(ethdev, queue as u16))).collect();
        Ok(Self {
            lanes: lanes(config, queues, wakers),
            receiving: ends(&ethdev),
            sending: ends(&ethdev),
            ethdev,
            pools,
            neighbours: Neighbours::new(),
            address: *config.address.ip(),
            port_first,
            frame_bytes_max: usize::from(config.mtu_bytes) - IP_HEADERS_BYTES,
            attachment: Attachment {
                driver: description.driver,
                mac: description.mac,
                queues,
                steering,
                no_rules,
                checks: description.checks,
                fills: description.fills,
            },
            role: config.role,
            _environment: environment,
        })
    }

    pub(super) fn lane(&self, port: usize) -> &Lane {
        &self.lanes[port]
    }

    /// Returns the port of a UDP port.
    #[inline]
    pub(super) fn port_of(&self, udp_port: u16) -> Option<usize> {
        let index = usize::from(udp_port.checked_sub(self.port_first)?);
        (index < self.lanes.len()).then_some(index)
    }

    /// Returns a receiving queue, unless another thread uses it.
    #[inline]
    pub(super) fn receiving(&self, queue: usize) -> Option<MutexGuard<'_, Queue>> {
        attempt(&self.receiving[queue])
    }

    /// Returns the queue in which the port sends to the UDP port `to`.
    #[inline]
    pub(super) fn sending_queue(&self, port: usize, to: u16) -> usize {
        let serving = match self.role {
            Role::Serving => self.port_first + port as u16,
            Role::Asking => to,
        };
        steering::queue_of(serving, self.sending.len())
    }

    /// Sends the packets of a list and empties it. Returns the number of lost packets.
    pub(super) fn transmit(&self, queue: usize, packets: &mut SendList) -> usize {
        let Some(mut queue) = attempt_for_long(&self.sending[queue]) else { return packets.settle() };
        for _ in 0..SEND_ATTEMPTS {
            queue.send(packets);
            if packets.is_done() {
                break;
            }
            std::hint::spin_loop();
        }
        packets.settle()
    }

    /// Hands a packet to its port.
    #[inline]
    pub(super) fn hand_over(&self, port: usize, packet: Mbuf) {
        let lane = &self.lanes[port];
        match attempt_for_long(&lane.letters) {
            Some(mut letters) if letters.len() < LETTERS => letters.push_back(packet),
            _ => return lane.count_drop(),
        }
        lane.has_letters.store(true, Ordering::Release);
        lane.waker.wake();
    }

    /// Returns the number of packets that the device lost, of all its ports.
    pub(super) fn missed(&self) -> u64 {
        self.ethdev.missed()
    }
}

impl Lane {
    /// Returns the receiving queues that the port polls.
    pub(super) fn queues(&self) -> &[usize] {
        &self.queues
    }

    /// Moves up to `count` packets that others received for the port to `packets`.
    #[inline]
    pub(super) fn take_letters(&self, packets: &mut Vec<Mbuf>, count: usize) {
        if !self.has_letters.load(Ordering::Relaxed) {
            return;
        }
        let Some(mut letters) = attempt(&self.letters) else { return };
        let taken = letters.len().min(count);
        packets.extend(letters.drain(..taken));
        if letters.is_empty() {
            // A thread that adds a packet later sets the flag after this.
            self.has_letters.store(false, Ordering::Relaxed);
        }
    }

    pub(super) fn has_letters(&self) -> bool {
        self.has_letters.load(Ordering::Relaxed)
    }

    pub(super) fn count_drop(&self) {
        self.drops.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn drops(&self) -> u64 {
        self.drops.load(Ordering::Relaxed)
    }
}

/// Returns the lock, tried for the time of a burst.
#[inline]
fn attempt_for_long<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    (0..QUEUE_ATTEMPTS).find_map(|before| {
        if before > 0 {
            std::hint::spin_loop();
        }
        attempt(mutex)
    })
}

fn lanes(config: &DpdkConfig, queues: usize, wakers: Vec<Waker>) -> Box<[Lane]> {
    let lane = |(index, waker): (usize, Waker)| Lane {
        letters: Mutex::new(VecDeque::with_capacity(LETTERS)),
        has_letters: AtomicBool::new(false),
        waker,
        drops: AtomicU64::new(0),
        queues: (0..queues).filter(|queue| polls(config, queues, index, *queue)).collect(),
    };
    wakers.into_iter().enumerate().map(lane).collect()
}

/// Returns whether port `index` polls a queue. A client's replies arrive in any queue; a serving port has its own, or
/// shares one.
fn polls(config: &DpdkConfig, queues: usize, index: usize, queue: usize) -> bool {
    let queue_of = |index: usize| steering::queue_of(config.address.port() + index as u16, queues);
    let is_nobodys = || (0..config.ports).all(|index| queue_of(index) != queue);
    config.role == Role::Asking || queue_of(index) == queue || (index == 0 && is_nobodys())
}
