//! Packets in DPDK's memory: their pools, and bursts that are received and sent.
//!
//! Of `dpdk`, only this file, `ethdev.rs` and `sys.rs` contain `unsafe`. An [`Mbuf`] owns its packet: after a send it
//! belongs to the device, on drop it returns to its pool. A received packet is one piece of memory, or refused
//! (`Seen::is_whole`): our packets fit one.

use std::ffi::CString;
use std::ptr::NonNull;
use std::slice;

use super::DpdkError;
use super::sys::bindings as d;
use super::sys::{self, Environment};
use crate::packet::Offloaded;

/// Maximum packets of one call.
pub(super) const BURST: usize = 32;

/// Packets that each thread keeps ready, so that most bursts do not touch shared memory.
const KEPT_PER_THREAD: u32 = 256;
/// Bytes that DPDK requires before a packet.
const HEADROOM_BYTES: u16 = 128;

/// Memory for packets. Lives as long as the environment.
pub(super) struct Pool(NonNull<d::rte_mempool>);

// SAFETY: any number of threads may use the pools created here (their ring is multi-threaded, and each thread has its
// own cache of ready packets).
unsafe impl Send for Pool {}
// SAFETY: as above.
unsafe impl Sync for Pool {}

impl Pool {
    pub(super) fn new(
        _: &Environment,
        index: usize,
        packets: u32,
        packet_bytes: u16,
    ) -> Result<Self, DpdkError> {
        let name = CString::new(format!("splinter-{index}")).unwrap_or_default();
        let room = HEADROOM_BYTES.saturating_add(packet_bytes);
        // SAFETY: the name lives across the call, which copies it.
        let pool =
            unsafe { d::rte_pktmbuf_pool_create(name.as_ptr(), packets, KEPT_PER_THREAD, 0, room, -1) };
        NonNull::new(pool).map(Self).ok_or_else(|| DpdkError::NoMemory(sys::last_error()))
    }

    pub(super) fn raw(&self) -> *mut d::rte_mempool {
        self.0.as_ptr()
    }

    /// Adds fresh packets to `packets` until there are `count`; false if the pool has too few.
    pub(super) fn fill(&self, packets: &mut Vec<Mbuf>, count: usize) -> bool {
        let missing = count.saturating_sub(packets.len());
        packets.reserve(missing);
        let free = packets.spare_capacity_mut().as_mut_ptr().cast();
        // SAFETY: the list has room for `missing` more, and an `Mbuf` is a pointer.
        let filled = unsafe { d::splinter_allocate(self.raw(), free, missing as u16) } == 0;
        if filled {
            // SAFETY: this many packets were written, and this process alone owns each of them.
            unsafe { packets.set_len(packets.len() + missing) };
        }
        filled
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: packets and devices that use the pool are gone: their owner also owns the pools, and drops them last.
        unsafe { d::rte_mempool_free(self.raw()) };
    }
}

/// A packet, owned by the process.
#[repr(transparent)]
pub(super) struct Mbuf(NonNull<d::rte_mbuf>);

// SAFETY: it has one owner, and pools take packets back from any thread.
unsafe impl Send for Mbuf {}

/// A received packet, opened for reading.
pub(super) struct Seen<'m> {
    pub(super) bytes: &'m [u8],
    /// Whether `bytes` is the whole packet.
    pub(super) is_whole: bool,
    /// Checksums that the device has verified.
    pub(super) checked: Offloaded,
    /// Whether the device has found a wrong checksum.
    pub(super) is_wrong: bool,
}

impl Mbuf {
    /// Returns a view of the received packet.
    #[inline]
    pub(super) fn look(&self) -> Seen<'_> {
        // SAFETY: this process owns the packet.
        let view = unsafe { d::splinter_look(self.0.as_ptr()) };
        // SAFETY: a packet's first segment has this many bytes at that place, which only its owner may write.
        let bytes = unsafe { slice::from_raw_parts(view.data, view.bytes as usize) };
        let is = |found: u8, sought: d::splinter_checksum::Type| u32::from(found) == sought;
        let (right, wrong) = (d::splinter_checksum::SPLINTER_RIGHT, d::splinter_checksum::SPLINTER_WRONG);
        Seen {
            bytes,
            is_whole: view.segments == 1,
            checked: Offloaded { ipv4: is(view.ipv4_checksum, right), udp: is(view.udp_checksum, right) },
            is_wrong: is(view.ipv4_checksum, wrong) || is(view.udp_checksum, wrong),
        }
    }

    /// Writes a packet into a fresh one.
    ///
    /// `write` gets the room and returns the length that it used, or that the room was too small. The device fills in
    /// the checksums of `offloaded`.
    #[inline]
    pub(super) fn write(
        &mut self,
        offloaded: Offloaded,
        write: impl FnOnce(&mut [u8]) -> Option<usize>,
    ) -> bool {
        let mut room = 0;
        // SAFETY: this process owns the packet; the number lives across the call.
        let first = unsafe { d::splinter_room(self.0.as_ptr(), &raw mut room) };
        // SAFETY: a fresh packet has this much room at that place, initialized by the pool and owned by `self` alone.
        let room = unsafe { slice::from_raw_parts_mut(first, room as usize) };
        let room_bytes = room.len();
        let Some(bytes) = write(room).filter(|bytes| *bytes <= room_bytes) else { return false };
        // SAFETY: this process owns the packet, which has room for `bytes`.
        unsafe { d::splinter_fill(self.0.as_ptr(), bytes as u16, offloaded.ipv4, offloaded.udp) };
        true
    }
}

impl Drop for Mbuf {
    fn drop(&mut self) {
        let mut packet = self.0.as_ptr();
        // SAFETY: this process owns the packet, which is no longer used.
        unsafe { d::rte_pktmbuf_free_bulk(&raw mut packet, 1) };
    }
}

/// Returns packets to their pools, in one call.
#[inline]
pub(super) fn free_all(packets: &mut Vec<Mbuf>) {
    let count = packets.len() as u32;
    // SAFETY: no `Mbuf` owns the packets any more, so each is returned only once.
    unsafe { packets.set_len(0) };
    // SAFETY: this process owns the packets, and an `Mbuf` is a pointer.
    unsafe { d::rte_pktmbuf_free_bulk(packets.as_mut_ptr().cast(), count) };
}

/// Packets to be sent by a device.
#[derive(Default)]
pub(super) struct SendList {
    all: Vec<Mbuf>,
    /// The number of first packets that belong to the device.
    sent: usize,
}

impl SendList {
    /// Returns the packets; none may have been sent.
    pub(super) fn packets(&mut self) -> &mut Vec<Mbuf> {
        assert_eq!(self.sent, 0, "what is sent is settled before more is added");
        &mut self.all
    }

    /// Returns the packets that the device has not taken.
    #[inline]
    pub(super) fn left(&mut self) -> &mut [Mbuf] {
        &mut self.all[self.sent..]
    }

    /// Counts `count` more packets as taken by the device.
    #[inline]
    pub(super) fn count_sent(&mut self, count: usize) {
        self.sent += count;
    }

    /// Returns whether all were sent.
    #[inline]
    pub(super) fn is_done(&self) -> bool {
        self.sent == self.all.len()
    }

    /// Empties the list and returns the untaken packets to their pool; returns their number.
    #[inline]
    pub(super) fn settle(&mut self) -> usize {
        let (count, sent) = (self.all.len(), std::mem::take(&mut self.sent));
        // SAFETY: the list gives up all packets: the first belong to the device, the others are returned once, below.
        unsafe { self.all.set_len(0) };
        let lost = count - sent;
        if lost > 0 {
            // SAFETY: these packets are within the filled part and still owned, and an `Mbuf` is a pointer.
            unsafe { d::rte_pktmbuf_free_bulk(self.all.as_mut_ptr().add(sent).cast(), lost as u32) };
        }
        lost
    }
}

impl Drop for SendList {
    fn drop(&mut self) {
        self.settle();
    }
}
