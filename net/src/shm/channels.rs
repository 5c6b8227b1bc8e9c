//! The channels of one port: polled by its owner, used by helping neighbours, extended by the listener's thread.
//!
//! ```text
//!   listener ── joins ──▶ news ──┐            places 0 .. 63, an address each
//!                            ▼  owner     receiving: a consumer each  ◀─ owner, or a neighbour without work
//!   finder of an end ─────▶ news          sending:   a producer each  ◀─ owner, or a neighbour that answers from here
//! ```
//! Each of the two lists belongs to one thread at a time, by a lock that workers only try, for no longer than a
//! neighbour copies frames: a thread that does not get the receiving lock finds nothing this time; one that does not
//! get the sending lock loses the frames, as on a network. A port without channels costs its owner one load per turn.
//! Most ports have few channels and are polled constantly, so a poll follows the bits of the occupied places.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use super::channel::{Channel, ChannelCounts, End, Receiving, Sending};
use super::ring::{Consumer, Lie, Producer};
use super::{link_address, link_of};
use crate::lock::{attempt, lock};
use crate::wake::Watcher;
use crate::{Batch, Outbox, Waker};

/// Maximum channels of one port.
pub(super) const PLACES: usize = u64::BITS as usize;
/// Maximum frames of one channel per turn, so that none holds up the others.
const FRAMES_OF_LINK: usize = 32;
/// Attempts of a sender to get a lock that a neighbour holds; some microseconds.
const PATIENCE: u32 = 400;

/// The result of one poll.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LookOutcome {
    pub(crate) frames: usize,
    pub(crate) bytes: usize,
}

/// The occupied places and their contents.
#[derive(Debug)]
struct Places<T> {
    all: Vec<Option<T>>,
    /// The occupied places, as bits.
    taken: u64,
}

impl<T> Places<T> {
    fn new() -> Self {
        Self { all: (0..PLACES).map(|_| None).collect(), taken: 0 }
    }

    /// Returns the occupied places in turn, beginning at `first` or after it.
    #[inline]
    fn taken_from(&self, first: usize) -> impl Iterator<Item = usize> + use<T> {
        let mut left = self.taken.rotate_right(first as u32);
        std::iter::from_fn(move || {
            let next = (left != 0).then(|| (first + left.trailing_zeros() as usize) % PLACES);
            left &= left.wrapping_sub(1);
            next
        })
    }

    fn set(&mut self, place: usize, one: Option<T>) {
        let bit = 1 << place;
        self.taken = if one.is_some() { self.taken | bit } else { self.taken & !bit };
        self.all[place] = one;
    }

    fn in_use(&self) -> impl Iterator<Item = &T> {
        self.all.iter().flatten()
    }
}

#[derive(Debug)]
struct ChannelTable {
    /// Whether there are channels, or changes of the list.
    is_used: AtomicBool,
    has_news: AtomicBool,
    joining: Mutex<Vec<(usize, Arc<Channel>)>>,
    receiving: Mutex<Places<Receiving>>,
    sending: Mutex<Places<Sending>>,
    counts: ChannelCounts,
}

/// The channels of one port, for holders of its handle.
#[derive(Clone, Debug)]
pub(crate) struct Channels {
    shared: Arc<ChannelTable>,
    watcher: Watcher,
    waker: Waker,
    /// The place at which the next poll begins.
    first: usize,
    /// Whether a channel to a server was removed.
    has_lost: bool,
}

/// The attachment point of a port, for the listener.
#[derive(Clone, Debug)]
pub struct ChannelPoint {
    links: Channels,
}

impl ChannelPoint {
    /// Returns the counters of the port's channels.
    #[must_use]
    pub fn counts(&self) -> &ChannelCounts {
        &self.links.shared.counts
    }

    /// Adds a channel in a free place.
    pub(super) fn join(&self, place: usize, link: Arc<Channel>) -> std::io::Result<()> {
        self.links.watcher.watch(link.own_bell())?;
        lock(&self.links.shared.joining).push((place, link));
        self.links.shared.counts.links_made.fetch_add(1, Ordering::Relaxed);
        self.tell();
        Ok(())
    }

    /// Stops the wake-ups of a released channel, though its client keeps the doorbell.
    pub(super) fn forget(&self, link: &Channel) {
        self.links.watcher.forget(link.own_bell());
    }

    /// Tells the owner to look at its channels.
    pub(super) fn tell(&self) {
        self.links.shared.has_news.store(true, Ordering::Release);
        self.links.shared.is_used.store(true, Ordering::Release);
        self.links.waker.wake();
    }
}

impl Channels {
    pub(crate) fn new(watcher: Watcher, waker: Waker) -> Self {
        let shared = ChannelTable {
            is_used: AtomicBool::new(false),
            has_news: AtomicBool::new(false),
            joining: Mutex::default(),
            receiving: Mutex::new(Places::new()),
            sending: Mutex::new(Places::new()),
            counts: ChannelCounts::default(),
        };
        Self { shared: Arc::new(shared), watcher, waker, first: 0, has_lost: false }
    }

    pub(crate) fn point(&self) -> ChannelPoint {
        ChannelPoint { links: self.clone() }
    }

    pub(crate) fn lost(&self) -> u64 {
        self.shared.counts.frames_lost.load(Ordering::Relaxed)
    }

    /// Returns whether there may be channels.
    #[inline]
    pub(crate) fn are_used(&self) -> bool {
        self.shared.is_used.load(Ordering::Relaxed)
    }

    /// Returns whether a channel to a server was removed since the last call.
    pub(crate) fn take_lost(&mut self) -> bool {
        std::mem::take(&mut self.has_lost)
    }

    /// Adds a channel of the owner, at the client's end; returns its address.
    pub(crate) fn add(&mut self, link: Channel) -> std::io::Result<SocketAddr> {
        let place = {
            let receiving = lock(&self.shared.receiving);
            receiving.all.iter().position(Option::is_none).ok_or(std::io::ErrorKind::QuotaExceeded)?
        };
        let address = link_address(link.serial(), place);
        self.point().join(place, Arc::new(link))?;
        self.take_news();
        Ok(address)
    }

    /// Adds arrived frames to `batch`, up to `frames_max`.
    pub(crate) fn receive(
        &mut self,
        batch: &mut Batch,
        frame_bytes_max: usize,
        frames_max: usize,
    ) -> LookOutcome {
        if self.shared.has_news.load(Ordering::Acquire) {
            self.take_news();
        }
        let (received, cut) = self.take_frames(batch, frame_bytes_max, frames_max);
        batch.set_cut(cut);
        received
    }

    /// As [`Channels::receive`], by a thread that does not own the port.
    pub(crate) fn receive_beside(
        &self,
        batch: &mut Batch,
        frame_bytes_max: usize,
        frames_max: usize,
    ) -> LookOutcome {
        self.clone().take_frames(batch, frame_bytes_max, frames_max).0
    }

    fn take_frames(
        &mut self,
        batch: &mut Batch,
        frame_bytes_max: usize,
        frames_max: usize,
    ) -> (LookOutcome, bool) {
        let (mut found, mut cut) = (LookOutcome::default(), false);
        let Some(mut receiving) = attempt(&self.shared.receiving) else { return (found, cut) };
        for place in receiving.taken_from(self.first) {
            let Some(Receiving { link, consumer }) = &mut receiving.all[place] else { continue };
            let peer = link_address(link.serial(), place);
            let (memory, share) = (link.arriving(), FRAMES_OF_LINK.min(frames_max - found.frames));
            let before = found.frames;
            while found.frames - before < share {
                match consumer.next(&memory, frame_bytes_max) {
                    Ok(Some(bytes)) if batch.fill(bytes, peer, |to| consumer.take(&memory, to)) => {
                        found.frames += 1;
                        found.bytes += bytes;
                    }
                    Ok(Some(_)) => break,
                    Ok(None) => break,
                    Err(lie) => {
                        self.shared.ends_by(link, lie);
                        break;
                    }
                }
            }
            if found.frames > before {
                consumer.release(&memory);
                cut |= found.frames - before == share;
                if found.frames == frames_max {
                    self.first = (place + 1) % PLACES;
                    break;
                }
            } else if link.is_closed() && link.end(End::Left) {
                self.shared.has_news.store(true, Ordering::Release);
            }
        }
        let counts = &self.shared.counts;
        add_alone(&counts.frames_received, found.frames);
        (found, cut)
    }

    /// Sends the frames for channels and empties them. Returns the number that left, and whether frames for other
    /// peers remain.
    pub(crate) fn send(&self, out: &mut Outbox) -> (usize, bool) {
        let (mut sent, mut lost, mut to_ring, mut others) = (0, 0, 0u64, false);
        let mut held = None;
        for index in 0..out.len() {
            let (frame, peer) = out.frame(index);
            let Some((serial, place)) = link_of(&peer) else {
                others |= !frame.is_empty();
                continue;
            };
            if frame.is_empty() {
                continue;
            }
            if held.is_none() {
                held = attempt_for_long(&self.shared.sending);
            }
            match held.as_mut().and_then(|sending| sending.all.get_mut(place)) {
                Some(Some(Sending { link, producer })) if link.serial() == serial => {
                    match producer.push(&link.leaving(), frame) {
                        Ok(true) => (sent, to_ring) = (sent + 1, to_ring | 1 << place),
                        Ok(false) => lost += 1,
                        Err(lie) => self.shared.ends_by(link, lie),
                    }
                }
                Some(_) => {}
                None => lost += 1,
            }
            out.set_bytes(index, 0);
        }
        if let Some(sending) = &mut held {
            while to_ring != 0 {
                let place = to_ring.trailing_zeros() as usize;
                to_ring &= to_ring - 1;
                if let Some(Sending { link, producer }) = &mut sending.all[place]
                    && producer.has_to_ring(&link.leaving())
                {
                    link.ring_bell();
                }
            }
            add_alone(&self.shared.counts.frames_sent, sent);
        }
        if lost > 0 {
            self.shared.counts.frames_lost.fetch_add(lost, Ordering::Relaxed);
        }
        (sent, others)
    }

    /// Announces to all channels that the owner sleeps; false if it must not.
    pub(crate) fn fall_asleep(&mut self) -> bool {
        let receiving = attempt(&self.shared.receiving);
        let Some(receiving) = receiving.filter(|_| !self.shared.has_news.load(Ordering::Acquire)) else {
            return false;
        };
        receiving.in_use().all(|one| one.consumer.fall_asleep(&one.link.arriving()))
    }

    /// Withdraws the announcement of a sleep.
    pub(crate) fn wake_up(&mut self) {
        // If another thread holds the lock, it receives here; then each channel may ring its doorbell once in vain.
        let Some(receiving) = attempt(&self.shared.receiving) else { return };
        for Receiving { link, consumer } in receiving.in_use() {
            consumer.wake_up(&link.arriving());
            // Detects a server that died without ringing.
            link.take_bells();
            if link.is_closed() && link.end(End::Left) || link.has_ended() {
                self.shared.has_news.store(true, Ordering::Release);
            }
        }
    }

    /// Detects peers that have gone without a sign in the memory.
    #[cold]
    pub(crate) fn look_after(&self) {
        let Some(receiving) = attempt(&self.shared.receiving) else { return };
        for Receiving { link, .. } in receiving.in_use() {
            link.take_bells();
            if link.has_ended() {
                self.shared.has_news.store(true, Ordering::Release);
            }
        }
    }

    /// Returns whether a channel with this address exists.
    pub(crate) fn has(&self, address: &SocketAddr) -> bool {
        let Some((serial, place)) = link_of(address) else { return false };
        let sending = lock(&self.shared.sending);
        sending.all.get(place).is_some_and(|one| one.as_ref().is_some_and(|one| one.link.serial() == serial))
    }

    /// Adds joining channels and removes ended ones. Called only by the owner.
    #[cold]
    fn take_news(&mut self) {
        let shared = Arc::clone(&self.shared);
        let lists = (attempt(&shared.receiving), attempt(&shared.sending), attempt(&shared.joining));
        let (Some(mut receiving), Some(mut sending), Some(mut joining)) = lists else { return };
        // A swap, not a store, because the changes themselves are read after it.
        shared.has_news.swap(false, Ordering::AcqRel);
        for place in receiving.taken_from(0) {
            if let Some(one) = receiving.all[place].as_ref().filter(|one| one.link.has_ended()) {
                self.has_lost |= one.link.is_client();
                receiving.set(place, None);
                sending.set(place, None);
            }
        }
        for (place, link) in joining.drain(..) {
            receiving.set(place, Some(Receiving { link: Arc::clone(&link), consumer: Consumer::default() }));
            sending.set(place, Some(Sending { link, producer: Producer::default() }));
        }
        shared.counts.links.store(receiving.taken.count_ones().into(), Ordering::Relaxed);
        shared.is_used.store(receiving.taken != 0, Ordering::Relaxed);
    }
}

impl ChannelTable {
    #[cold]
    fn ends_by(&self, link: &Channel, _: Lie) {
        if link.end(End::Lied) {
            self.counts.lies.fetch_add(1, Ordering::Relaxed);
        }
        self.has_news.store(true, Ordering::Release);
    }
}

/// Adds to a number that only one thread at a time writes.
fn add_alone(number: &AtomicU64, amount: usize) {
    if amount > 0 {
        number.store(number.load(Ordering::Relaxed) + amount as u64, Ordering::Relaxed);
    }
}

/// Returns the lock, tried until a neighbour should be done.
#[inline]
fn attempt_for_long<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    attempt(mutex).or_else(|| {
        (0..PATIENCE).find_map(|_| {
            std::hint::spin_loop();
            attempt(mutex)
        })
    })
}
