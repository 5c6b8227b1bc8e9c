//! A port over a DPDK device: bursts of packets in, frames out, ARP beside them.
//!
//! An arriving packet is checked (except for checks by the device), its sender's hardware address is remembered, and
//! its frame is copied into the batch. This is the only copy; the packet then returns to its pool at once, so that
//! pending requests do not hold the device's memory. A leaving frame is copied once too, into memory that the device
//! reads. Packets for other ports of the device are handed to them.
//!
//! There is no descriptor to sleep on: [`Port::wait`] sleeps for a moment at a time, and wakers end it at once.

use std::cell::Cell;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use super::device::{Attachment, Device};
use super::mbuf::{BURST, Mbuf, SendList, free_all};
use super::sys;
use crate::packet::{self, Arp, ArpOperation, Datagram, Endpoint, Mac, Offloaded, Packet, PacketRefusal};
use crate::port::{Port, SharedPort};
use crate::wake::{Sleeper, Waker};
use crate::{Batch, Outbox};

/// Longest sleep between two polls of the device. With the timer's slack, a frame waits for 0.1 ms if none came for
/// longer than the worker spins; longer spinning avoids this.
const NAP: Duration = Duration::from_micros(50);
/// Minimum time between two requests for the same address.
const ASK_EVERY: Duration = Duration::from_millis(20);
/// Maximum time that [`Port::set_peer`] waits for a reply.
const ANSWER_PATIENCE: Duration = Duration::from_secs(3);
/// Receives between two queries of the device's losses, which may need an exchange with the card.
const RECEIVES_PER_LOOK: u32 = 1 << 16;
/// The checksums of handed-over packets, which were verified before.
const CHECKED: Offloaded = Offloaded { ipv4: true, udp: true };

/// One port of a DPDK device.
pub struct DpdkPort {
    index: usize,
    sleeper: Sleeper,
    received: Vec<Mbuf>,
    /// Processed packets, to be returned to their pools.
    done: Vec<Mbuf>,
    fresh: Vec<Mbuf>,
    leaving: SendList,
    asked: Option<(Ipv4Addr, Instant)>,
    receives: u32,
    missed: u64,
    registration: Option<Registration>,
    /// The last field, because those above use its memory.
    device: Arc<Device>,
}

impl DpdkPort {
    pub(super) fn new(device: Arc<Device>, index: usize, sleeper: Sleeper) -> Self {
        Self {
            index,
            sleeper,
            received: Vec::with_capacity(2 * BURST),
            done: Vec::with_capacity(2 * BURST),
            fresh: Vec::with_capacity(BURST),
            leaving: SendList::default(),
            asked: None,
            receives: 0,
            missed: 0,
            registration: None,
            device,
        }
    }

    /// Returns the setup of the device.
    #[must_use]
    pub fn attachment(&self) -> &Attachment {
        &self.device.attachment
    }

    /// Receives packets for port `port`: first those that other ports received for it, then those of its queues.
    fn receive_for(&mut self, port: usize, batch: &mut Batch) -> usize {
        batch.clear();
        if self.registration.is_none() {
            self.registration = Some(Registration::of_this_thread());
        }
        let device = Arc::clone(&self.device);
        let lane = device.lane(port);
        lane.take_letters(&mut self.received, BURST);
        let mut is_cut = self.received.len() == BURST;
        self.sort(&device, port, batch, Some(CHECKED));
        for &queue in lane.queues() {
            let Some(mut receiving) = device.receiving(queue) else { continue };
            let count = receiving.receive(&mut self.received);
            drop(receiving);
            is_cut |= count == BURST;
            if count > 0 {
                self.sort(&device, port, batch, None);
            }
        }
        batch.set_cut(is_cut);
        batch.len()
    }

    /// Puts frames for port `port` into the batch, hands other packets over, and returns the rest to their pools.
    fn sort(&mut self, device: &Device, port: usize, batch: &mut Batch, checked: Option<Offloaded>) {
        let mut received = std::mem::take(&mut self.received);
        for packet in received.drain(..) {
            match deliver(device, &packet, port, batch, checked) {
                Fate::Done => self.done.push(packet),
                Fate::Other(port) => device.hand_over(port, packet),
                Fate::Asks(question) => {
                    self.done.push(packet);
                    self.say(device, &question.reply(device.attachment.mac));
                }
            }
        }
        self.received = received;
        if !self.done.is_empty() {
            free_all(&mut self.done);
        }
    }

    /// Sends an ARP packet.
    fn say(&mut self, device: &Device, arp: &Arp) {
        let own = device.port_first + self.index as u16;
        if let Some(packet) = self.fresh_packet(device)
            && let Some(packet) = filled(packet, Offloaded::default(), |room| arp.write(room))
        {
            self.leaving.packets().push(packet);
            device.transmit(device.sending_queue(self.index, own), &mut self.leaving);
        }
    }

    /// Requests the hardware address of an IP address, unless this was requested just before.
    fn ask(&mut self, device: &Device, address: Ipv4Addr) {
        let just_asked = |(asked, at): (Ipv4Addr, Instant)| asked == address && at.elapsed() < ASK_EVERY;
        if self.asked.is_some_and(just_asked) {
            return;
        }
        self.asked = Some((address, Instant::now()));
        self.say(device, &Arp::request(device.attachment.mac, device.address, address));
    }

    #[inline]
    fn fresh_packet(&mut self, device: &Device) -> Option<Mbuf> {
        if self.fresh.is_empty() {
            device.pools[self.index].fill(&mut self.fresh, BURST);
        }
        self.fresh.pop()
    }

    /// Sends all frames of `out` from port `from`, and empties it.
    fn send_from(&mut self, from: usize, out: &mut Outbox) -> usize {
        let device = Arc::clone(&self.device);
        let fills = device.attachment.fills;
        let own = endpoint(&device, from);
        let (mut left, mut queue_before) = (0, None);
        for index in 0..out.len() {
            let (frame, peer) = out.frame(index);
            let (false, SocketAddr::V4(peer)) = (frame.is_empty(), peer) else { continue };
            let Some(mac) = device.neighbours.find(*peer.ip()) else {
                // The frame is lost, as a datagram may be; the reply will be here when the frame is sent again.
                left += queue_before.take().map_or(0, |queue| self.flush(&device, queue));
                self.ask(&device, *peer.ip());
                continue;
            };
            let queue = device.sending_queue(self.index, peer.port());
            if queue_before.is_some_and(|before| before != queue) || self.leaving.packets().len() == BURST {
                left += self.flush(&device, queue_before.unwrap_or(queue));
            }
            queue_before = Some(queue);
            let datagram = Datagram { from: own, to: Endpoint { mac, socket: peer }, payload: frame };
            // No fresh packet: the device has all of them, and is behind.
            let Some(packet) = self.fresh_packet(&device) else { continue };
            self.leaving.packets().extend(filled(packet, fills, |room| datagram.write(room, fills)));
        }
        if let Some(queue) = queue_before {
            left += self.flush(&device, queue);
        }
        out.clear();
        left
    }

    /// Passes the leaving packets to the device; returns the number that left.
    fn flush(&mut self, device: &Device, queue: usize) -> usize {
        let count = self.leaving.packets().len();
        count - device.transmit(queue, &mut self.leaving)
    }

    /// Counts the device's losses, for all its ports, at the first port.
    fn look_at_missed(&mut self) {
        if self.index == 0 {
            self.missed = self.device.missed();
        }
    }
}

impl Port for DpdkPort {
    fn receive(&mut self, batch: &mut Batch) -> io::Result<usize> {
        self.receives = self.receives.wrapping_add(1);
        if self.receives.is_multiple_of(RECEIVES_PER_LOOK) {
            self.look_at_missed();
        }
        Ok(self.receive_for(self.index, batch))
    }

    fn send(&mut self, out: &mut Outbox) -> io::Result<usize> {
        Ok(self.send_from(self.index, out))
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        if self.device.lane(self.index).has_letters() {
            return Ok(());
        }
        self.sleeper.sleep(timeout.min(NAP))
    }

    /// Finds the peer's hardware address, so that the first frame reaches it. Frames that arrive meanwhile are lost.
    fn set_peer(&mut self, peer: SocketAddr) -> io::Result<()> {
        let SocketAddr::V4(peer) = peer else { return Err(io::ErrorKind::AddrNotAvailable.into()) };
        let (device, begun) = (Arc::clone(&self.device), Instant::now());
        let mut batch = None;
        while device.neighbours.find(*peer.ip()).is_none() {
            if begun.elapsed() > ANSWER_PATIENCE {
                return Err(io::ErrorKind::HostUnreachable.into());
            }
            self.ask(&device, *peer.ip());
            self.receive_for(self.index, batch.get_or_insert_with(Batch::new));
            thread::yield_now();
        }
        Ok(())
    }

    fn waker(&self) -> Waker {
        self.sleeper.waker()
    }

    fn steering(&self) -> &'static str {
        self.device.attachment.steering.name()
    }

    fn frame_bytes_max(&self) -> usize {
        self.device.frame_bytes_max
    }

    fn local(&self) -> SocketAddr {
        SocketAddr::V4(endpoint(&self.device, self.index).socket)
    }

    fn drops(&self) -> u64 {
        self.device.lane(self.index).drops() + self.missed
    }
}

impl SharedPort for DpdkPort {
    /// The number of the port; all ports belong to one device.
    type Handle = usize;

    fn handle(&self) -> usize {
        self.index
    }

    /// A packet is a message. Receives more than requested, at most a burst of each queue.
    fn receive_at(&mut self, handle: &usize, batch: &mut Batch, _messages_max: usize) -> io::Result<usize> {
        Ok(self.receive_for(*handle, batch))
    }

    fn send_at(&mut self, handle: &usize, out: &mut Outbox) -> io::Result<usize> {
        Ok(self.send_from(*handle, out))
    }
}

/// The outcome for a received packet.
enum Fate {
    /// The packet is processed.
    Done,
    /// The packet is for another port.
    Other(usize),
    /// The packet requests this port's address.
    Asks(Arp),
}

/// Puts the frame of a packet into the batch if it is for port `port`; `checked` are the checksums verified before.
#[inline]
fn deliver(
    device: &Device,
    packet: &Mbuf,
    port: usize,
    batch: &mut Batch,
    checked: Option<Offloaded>,
) -> Fate {
    let seen = packet.look();
    let lost = || {
        device.lane(port).count_drop();
        Fate::Done
    };
    if !seen.is_whole || (seen.is_wrong && checked.is_none()) {
        return lost();
    }
    match packet::read(seen.bytes, device.address, checked.unwrap_or(seen.checked)) {
        Ok(Packet::Datagram(datagram)) => {
            let Some(addressee) = device.port_of(datagram.to.socket.port()) else { return Fate::Done };
            if addressee != port {
                return Fate::Other(addressee);
            }
            let Datagram { from, payload, .. } = datagram;
            device.neighbours.learn(*from.socket.ip(), from.mac);
            let fits = !payload.is_empty() && payload.len() <= device.frame_bytes_max;
            if fits && batch.push(payload, SocketAddr::V4(from.socket)) { Fate::Done } else { lost() }
        }
        Ok(Packet::Arp(arp)) => {
            device.neighbours.learn(arp.from, arp.from_mac);
            if arp.operation == ArpOperation::Request { Fate::Asks(arp) } else { Fate::Done }
        }
        Err(PacketRefusal::Foreign) => Fate::Done,
        Err(PacketRefusal::Malformed | PacketRefusal::Fragment | PacketRefusal::Checksum) => lost(),
    }
}

/// Returns a fresh packet with content.
#[inline]
fn filled(
    mut packet: Mbuf,
    offloaded: Offloaded,
    write: impl FnOnce(&mut [u8]) -> Option<usize>,
) -> Option<Mbuf> {
    packet.write(offloaded, write).then_some(packet)
}

fn endpoint(device: &Device, port: usize) -> Endpoint {
    let socket = SocketAddrV4::new(device.address, device.port_first + port as u16);
    let mac: Mac = device.attachment.mac;
    Endpoint { mac, socket }
}

thread_local! {
    /// The number of ports that this thread uses.
    static USED: Cell<usize> = const { Cell::new(0) };
}

/// Lets DPDK's pools keep packets ready for the thread, as long as it uses a port.
struct Registration(ThreadId);

impl Registration {
    fn of_this_thread() -> Self {
        USED.with(|used| {
            if used.get() == 0 {
                // With too many threads, this one stays unregistered, which is only slower.
                sys::register_thread();
            }
            used.set(used.get() + 1);
        });
        Self(thread::current().id())
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // If another thread drops the port, this thread's DPDK number stays taken until the process ends.
        if self.0 == thread::current().id() {
            USED.with(|used| {
                used.set(used.get() - 1);
                if used.get() == 0 {
                    sys::unregister_thread();
                }
            });
        }
    }
}
