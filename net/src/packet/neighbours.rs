//! The hardware addresses of peers: written and read by all workers without a lock.
//!
//! ```text
//!   address  a.b.c.d     c.d says which word     word: | a.b, 16 bits | hardware address, 48 bits |
//! ```
//! One word holds a whole entry, so it is read and replaced in one piece. Two addresses with the same last two bytes
//! share a word: the later one wins, and the earlier one is learned again from its next packet. The size does not
//! depend on the number of peers: 512 KiB, of which only touched pages are backed.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Mac;

const WORDS: usize = 1 << 16;
const MAC_BITS: u32 = 48;

/// The table of hardware addresses.
pub struct Neighbours {
    words: Box<[AtomicU64]>,
}

impl Default for Neighbours {
    fn default() -> Self {
        Self::new()
    }
}

impl Neighbours {
    /// Creates an empty table.
    #[must_use]
    pub fn new() -> Self {
        Self { words: (0..WORDS).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Stores the address pair of a packet. Does not wait.
    #[inline]
    pub fn learn(&self, address: Ipv4Addr, mac: Mac) {
        if !mac.is_station() {
            return;
        }
        let [a, b, c, d, e, f] = mac.0;
        let entry = tag(address) << MAC_BITS | u64::from_be_bytes([0, 0, a, b, c, d, e, f]);
        let word = self.word(address);
        // Most packets bring nothing new; without a write the cache line stays shared among the cores.
        if word.load(Ordering::Relaxed) != entry {
            word.store(entry, Ordering::Relaxed);
        }
    }

    /// Returns the hardware address of an IP address, if known.
    #[must_use]
    #[inline]
    pub fn find(&self, address: Ipv4Addr) -> Option<Mac> {
        let entry = self.word(address).load(Ordering::Relaxed);
        let [_, _, a, b, c, d, e, f] = entry.to_be_bytes();
        let mac = Mac([a, b, c, d, e, f]);
        (entry >> MAC_BITS == tag(address) && mac.is_station()).then_some(mac)
    }

    #[inline]
    fn word(&self, address: Ipv4Addr) -> &AtomicU64 {
        &self.words[address.to_bits() as usize & (WORDS - 1)]
    }
}

#[inline]
fn tag(address: Ipv4Addr) -> u64 {
    u64::from(address.to_bits() >> 16)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::{Mac, Neighbours};

    #[test]
    fn what_was_learned_last_is_found_and_nobody_else() {
        let neighbours = Neighbours::new();
        let (one, same_end, other) =
            (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 1, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        let (first, second) = (Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2]));
        assert_eq!(neighbours.find(one), None);
        neighbours.learn(one, first);
        assert_eq!((neighbours.find(one), neighbours.find(other)), (Some(first), None));
        neighbours.learn(one, second);
        assert_eq!(neighbours.find(one), Some(second), "it has new hardware");
        neighbours.learn(same_end, first);
        assert_eq!((neighbours.find(same_end), neighbours.find(one)), (Some(first), None));
        neighbours.learn(other, Mac::BROADCAST);
        assert_eq!(neighbours.find(other), None, "many are nobody");
        assert_eq!(Neighbours::new().find(Ipv4Addr::UNSPECIFIED), None);
    }
}
