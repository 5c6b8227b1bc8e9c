//! Peers whose frames leave one by one, because the kernel refused to merge them.
//!
//! Bounded: the newest peers are kept, so one more peer costs at most a refused call for each of its messages.

use std::net::SocketAddr;

/// Maximum peers kept: more than a host has interfaces and tunnels with a narrow path.
const PEERS_MAX: usize = 16;
/// Messages to such a peer until merging is tried again, because its path may have changed.
const MESSAGES_UNTIL_TRIED: u32 = 4_096;

/// Peers whose frames are not merged.
#[derive(Default)]
pub(super) struct Unmerged {
    /// Peers, each with the number of messages until merging is tried again.
    peers: Vec<(SocketAddr, u32)>,
    /// Where the next peer goes once all places are taken.
    oldest: usize,
}

impl Unmerged {
    /// Returns whether frames of `peer` leave one by one; counts a message to it.
    #[inline]
    pub(super) fn holds(&mut self, peer: SocketAddr) -> bool {
        !self.peers.is_empty() && self.count(peer)
    }

    /// Makes frames of `peer` leave one by one from now on.
    #[cold]
    pub(super) fn add(&mut self, peer: SocketAddr) {
        let entry = (peer, MESSAGES_UNTIL_TRIED);
        if let Some(known) = self.peers.iter_mut().find(|known| known.0 == peer) {
            *known = entry;
        } else if self.peers.len() < PEERS_MAX {
            self.peers.push(entry);
        } else {
            self.peers[self.oldest] = entry;
            self.oldest = (self.oldest + 1) % PEERS_MAX;
        }
    }

    #[cold]
    fn count(&mut self, peer: SocketAddr) -> bool {
        let Some(at) = self.peers.iter().position(|known| known.0 == peer) else { return false };
        let left = &mut self.peers[at].1;
        *left -= 1;
        if *left == 0 {
            self.peers.swap_remove(at);
            self.oldest = 0;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::{MESSAGES_UNTIL_TRIED, PEERS_MAX, Unmerged};

    fn peer(number: u16) -> SocketAddr {
        ([127, 0, 0, 1], number).into()
    }

    #[test]
    fn a_peer_is_tried_again_after_a_number_of_messages() {
        let mut unmerged = Unmerged::default();
        unmerged.add(peer(1));
        assert!((0..MESSAGES_UNTIL_TRIED).all(|_| unmerged.holds(peer(1)) && !unmerged.holds(peer(2))));
        assert!(!unmerged.holds(peer(1)));
    }

    #[test]
    fn the_newest_peers_are_kept() {
        let mut unmerged = Unmerged::default();
        (0..100).for_each(|number| unmerged.add(peer(number)));
        (0..100).for_each(|_| unmerged.add(peer(99)));
        let kept: Vec<u16> = (0..100).filter(|&number| unmerged.holds(peer(number))).collect();
        assert_eq!(kept, Vec::from_iter(100 - PEERS_MAX as u16..100));
    }
}
