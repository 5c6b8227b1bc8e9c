//! The links of one port: polled by its owner, used by neighbours that help out there, joined by the thread of the door.
//!
//! ```text
//!   door ── joins ──▶ news ──┐            places 0 .. 63, an address each
//!                            ▼  owner     receiving: a consumer each  ◀─ owner, or a neighbour without work
//!   whoever finds an end ─▶ news          sending:   a producer each  ◀─ owner, or a neighbour that answers from here
//! ```
//! Each of the two lists belongs to one thread at a time, by a lock that workers try and never wait for longer than a
//! neighbour copies frames: who does not get the one for receiving finds nothing this time; who does not get the one for
//! sending loses the frames, as on a network. A port without links costs its owner one load a turn.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use super::channel::{Channel, ChannelCounts, End, Receiving, Sending};
use super::permits::{PLACES, Places};
use super::ring::{Consumer, Lie, Producer};
use super::{link_address, link_of};
use crate::lock::{attempt, lock};
use crate::wake::Watcher;
use crate::{Batch, Outbox, Waker};

/// Frames that one link brings in a turn, so that none of them holds up the others.
const FRAMES_OF_LINK: usize = 32;
/// How often who wants to send looks whether a neighbour is done; some microseconds.
const PATIENCE: u32 = 400;

/// What one look brought.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LookOutcome {
    pub(crate) frames: usize,
    pub(crate) bytes: usize,
}

#[derive(Debug)]
struct ChannelTable {
    /// There are links, or news of some.
    is_used: AtomicBool,
    has_news: AtomicBool,
    joining: Mutex<Vec<(usize, Arc<Channel>)>>,
    receiving: Mutex<Places<Receiving>>,
    sending: Mutex<Places<Sending>>,
    counts: ChannelCounts,
}

/// The links of one port, for those who have a handle of it.
#[derive(Clone, Debug)]
pub(crate) struct Channels {
    shared: Arc<ChannelTable>,
    watcher: Watcher,
    waker: Waker,
    /// Where the next look begins.
    first: usize,
    /// A link to a server has been taken off.
    has_lost: bool,
}

/// What a door needs of a port.
#[derive(Clone, Debug)]
pub struct ChannelPoint {
    links: Channels,
}

impl ChannelPoint {
    /// What has passed the port's links.
    #[must_use]
    pub fn counts(&self) -> &ChannelCounts {
        &self.links.shared.counts
    }

    /// Lets a link join in a place that is free.
    pub(super) fn join(&self, place: usize, link: Arc<Channel>) -> std::io::Result<()> {
        self.links.watcher.watch(link.own_bell())?;
        lock(&self.links.shared.joining).push((place, link));
        self.links.shared.counts.links_made.fetch_add(1, Ordering::Relaxed);
        self.tell();
        Ok(())
    }

    /// A link that was let go of wakes the owner no more, though its client keeps the bell.
    pub(super) fn forget(&self, link: &Channel) {
        self.links.watcher.forget(link.own_bell());
    }

    /// The owner has to look at its links.
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

    /// Whether there may be links.
    #[inline]
    pub(crate) fn are_used(&self) -> bool {
        self.shared.is_used.load(Ordering::Relaxed)
    }

    /// Whether a link to a server has been taken off since the last call.
    pub(crate) fn take_lost(&mut self) -> bool {
        std::mem::take(&mut self.has_lost)
    }

    /// Adds a link of the owner's own, which is the client's end; its address.
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

    /// Adds what has arrived to `batch`, up to `frames_max` frames.
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

    /// The same by somebody who does not own the port.
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

    /// Sends the frames for links, which are empty afterwards. How many left, and whether frames for others are there.
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

    /// Says to all that the owner sleeps; false when it must not.
    pub(crate) fn fall_asleep(&mut self) -> bool {
        let receiving = attempt(&self.shared.receiving);
        let Some(receiving) = receiving.filter(|_| !self.shared.has_news.load(Ordering::Acquire)) else {
            return false;
        };
        receiving.in_use().all(|one| one.consumer.fall_asleep(&one.link.arriving()))
    }

    /// Takes it back.
    pub(crate) fn wake_up(&mut self) {
        // Whoever has it instead receives here: then the links that still ring will ring once for nothing.
        let Some(receiving) = attempt(&self.shared.receiving) else { return };
        for Receiving { link, consumer } in receiving.in_use() {
            consumer.wake_up(&link.arriving());
            // A server that died has rung no bell.
            link.take_bells();
            if link.is_closed() && link.end(End::Left) || link.has_ended() {
                self.shared.has_news.store(true, Ordering::Release);
            }
        }
    }

    /// Looks whether the other ends are still there, where nothing in the memory says so.
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

    /// Whether a link of this address is there.
    pub(crate) fn has(&self, address: &SocketAddr) -> bool {
        let Some((serial, place)) = link_of(address) else { return false };
        let sending = lock(&self.shared.sending);
        sending.all.get(place).is_some_and(|one| one.as_ref().is_some_and(|one| one.link.serial() == serial))
    }

    /// Lets those join that want to, and takes those off that have ended. Only the owner does.
    #[cold]
    fn take_news(&mut self) {
        let shared = Arc::clone(&self.shared);
        let lists = (attempt(&shared.receiving), attempt(&shared.sending), attempt(&shared.joining));
        let (Some(mut receiving), Some(mut sending), Some(mut joining)) = lists else { return };
        // Not only a store: what the news are is looked at behind it.
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

/// Adds to a number that one thread at a time writes.
fn add_alone(number: &AtomicU64, amount: usize) {
    if amount > 0 {
        number.store(number.load(Ordering::Relaxed) + amount as u64, Ordering::Relaxed);
    }
}

/// The lock, looked for until a neighbour should be done.
#[inline]
fn attempt_for_long<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    attempt(mutex).or_else(|| {
        (0..PATIENCE).find_map(|_| {
            std::hint::spin_loop();
            attempt(mutex)
        })
    })
}
