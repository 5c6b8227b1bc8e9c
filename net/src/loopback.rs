//! A network inside one process, with faults from a seed.
//!
//! Every port of a [`LoopbackNetwork`] has an address in 127.0.0.0/8 that exists nowhere else. For each send the
//! seeded generator decides whether the frame is lost, doubled, or delayed. The frame enters the receiver's queue
//! with the time at which it is due; frames overtake each other if their delays differ. The same seed and the same
//! order of sends give the same faults for the same frames.
//!
//! Time is real, or virtual: then it moves only by [`LoopbackNetwork::advance_us`] and by waiting, and a single
//! thread replays a run exactly. For tests and simulations; one lock guards the whole network.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::port::{FRAME_BYTES_MAX_V4, Port, SharedPort};
use crate::wake::{Sleeper, Waker};
use crate::{Batch, Outbox};

/// Maximum frames that wait for one port; further ones are lost and counted.
const QUEUE_FRAMES_MAX: usize = 16_384;

/// Faults of a network. Probabilities are in parts per million.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// Probability that the frame is lost.
    pub drop_ppm: u32,
    /// Probability that a second copy arrives, with a delay of its own.
    pub duplicate_ppm: u32,
    /// Probability that the frame is held for up to `delay_us_max` beyond `delay_us_min`, so that others overtake it.
    pub reorder_ppm: u32,
    /// Minimum delay of every frame.
    pub delay_us_min: u64,
    /// Maximum additional delay of a reordered frame.
    pub delay_us_max: u64,
}

/// The source of a network's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoopbackClock {
    /// Real time passes.
    Real,
    /// Time passes only when a thread waits or advances it.
    Virtual,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Travelling {
    due_us: u64,
    /// The order of sending, in which frames due at the same time are delivered.
    order: u64,
    from: SocketAddr,
    frame: Vec<u8>,
}

struct Inbox {
    frames: BinaryHeap<Reverse<Travelling>>,
    waker: Waker,
    drops: u64,
}

struct State {
    random: fastrand::Rng,
    faults: Faults,
    inboxes: HashMap<SocketAddr, Inbox>,
    next_host: u32,
    order: u64,
    virtual_us: u64,
    /// Frame buffers for reuse.
    spare: Vec<Vec<u8>>,
}

struct LoopbackState {
    state: Mutex<State>,
    clock: LoopbackClock,
    started: Instant,
}

/// The network that connects its ports. Cheap to clone.
#[derive(Clone)]
pub struct LoopbackNetwork {
    shared: Arc<LoopbackState>,
}

/// One end of a [`LoopbackNetwork`].
pub struct LoopbackPort {
    network: LoopbackNetwork,
    sleeper: Sleeper,
    local: SocketAddr,
}

impl LoopbackNetwork {
    /// Creates a network without ports.
    #[must_use]
    pub fn new(seed: u64, faults: Faults, clock: LoopbackClock) -> Self {
        let state = State {
            random: fastrand::Rng::with_seed(seed),
            faults,
            inboxes: HashMap::new(),
            next_host: 1,
            order: 0,
            virtual_us: 0,
            spare: Vec::new(),
        };
        Self { shared: Arc::new(LoopbackState { state: Mutex::new(state), clock, started: Instant::now() }) }
    }

    /// Adds a port with an address of its own.
    ///
    /// # Errors
    /// If the process is out of descriptors (a port sleeps on one).
    pub fn port(&self) -> io::Result<LoopbackPort> {
        let sleeper = Sleeper::new(None)?;
        let mut state = self.state();
        let host = Ipv4Addr::from(0x7f00_0000 | (state.next_host & 0x00ff_ffff));
        let local = SocketAddr::V4(SocketAddrV4::new(host, 1));
        state.next_host += 1;
        state.inboxes.insert(local, Inbox { frames: BinaryHeap::new(), waker: sleeper.waker(), drops: 0 });
        drop(state);
        Ok(LoopbackPort { network: self.clone(), sleeper, local })
    }

    /// Replaces the faults from now on.
    pub fn set_faults(&self, faults: Faults) {
        self.state().faults = faults;
    }

    /// Returns the microseconds since the network was created.
    #[must_use]
    pub fn now_us(&self) -> u64 {
        self.now_of(&self.state())
    }

    /// Advances virtual time by `us` microseconds; no effect on real time.
    pub fn advance_us(&self, us: u64) {
        self.state().virtual_us += us;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic of a test thread leaves the state usable: every change under the lock is complete.
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves up to `frames_max` frames that are due at `address` into the batch.
    fn deliver(&self, address: SocketAddr, batch: &mut Batch, frames_max: usize) -> usize {
        batch.clear();
        let mut state = self.state();
        let now_us = self.now_of(&state);
        let State { inboxes, spare, .. } = &mut *state;
        let Some(inbox) = inboxes.get_mut(&address) else { return 0 };
        while inbox.frames.peek().is_some_and(|Reverse(next)| next.due_us <= now_us) {
            if batch.len() == frames_max {
                batch.set_cut(true);
                break;
            }
            let Some(Reverse(next)) = inbox.frames.pop() else { break };
            if next.frame.is_empty() || next.frame.len() > FRAME_BYTES_MAX_V4 {
                inbox.drops += 1;
            } else if !batch.push(&next.frame, next.from) {
                inbox.frames.push(Reverse(next));
                batch.set_cut(true);
                break;
            }
            spare.push(next.frame);
        }
        batch.len()
    }

    /// Sends all frames of `out` through the faults and empties it.
    fn carry_all(&self, from: SocketAddr, out: &mut Outbox) -> usize {
        let mut state = self.state();
        let now_us = self.now_of(&state);
        let mut sent = 0;
        for index in 0..out.len() {
            let (frame, peer) = out.frame(index);
            if !frame.is_empty() {
                state.carry(now_us, from, peer, frame);
                sent += 1;
            }
        }
        out.clear();
        sent
    }

    fn now_of(&self, state: &State) -> u64 {
        match self.shared.clock {
            LoopbackClock::Real => self.shared.started.elapsed().as_micros() as u64,
            LoopbackClock::Virtual => state.virtual_us,
        }
    }
}

impl State {
    /// Sends one frame through the faults.
    fn carry(&mut self, now_us: u64, from: SocketAddr, to: SocketAddr, frame: &[u8]) {
        let faults = self.faults;
        if self.random.u32(0..1_000_000) < faults.drop_ppm {
            return;
        }
        let copies = 1 + usize::from(self.random.u32(0..1_000_000) < faults.duplicate_ppm);
        for _ in 0..copies {
            let mut due_us = now_us + faults.delay_us_min;
            if self.random.u32(0..1_000_000) < faults.reorder_ppm {
                due_us += self.random.u64(0..=faults.delay_us_max);
            }
            self.enqueue(due_us, from, to, frame);
        }
    }

    fn enqueue(&mut self, due_us: u64, from: SocketAddr, to: SocketAddr, frame: &[u8]) {
        // No port has this address: the frame is lost, as on any network.
        let Some(inbox) = self.inboxes.get_mut(&to) else { return };
        if inbox.frames.len() == QUEUE_FRAMES_MAX {
            inbox.drops += 1;
            return;
        }
        let mut copy = self.spare.pop().unwrap_or_default();
        copy.clear();
        copy.extend_from_slice(frame);
        self.order += 1;
        inbox.frames.push(Reverse(Travelling { due_us, order: self.order, from, frame: copy }));
        inbox.waker.wake();
    }
}

impl Port for LoopbackPort {
    fn receive(&mut self, batch: &mut Batch) -> io::Result<usize> {
        Ok(self.network.deliver(self.local, batch, usize::MAX))
    }

    fn send(&mut self, out: &mut Outbox) -> io::Result<usize> {
        Ok(self.network.carry_all(self.local, out))
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        let mut state = self.network.state();
        let now_us = self.network.now_of(&state);
        let due_us = state
            .inboxes
            .get(&self.local)
            .and_then(|inbox| inbox.frames.peek())
            .map(|Reverse(next)| next.due_us.saturating_sub(now_us));
        let timeout_us = timeout.as_micros() as u64;
        let sleep_us = due_us.map_or(timeout_us, |due_us| due_us.min(timeout_us));
        if self.network.shared.clock == LoopbackClock::Virtual {
            state.virtual_us += sleep_us;
            return Ok(());
        }
        drop(state);
        if sleep_us == 0 {
            return Ok(());
        }
        self.sleeper.sleep(Duration::from_micros(sleep_us))
    }

    fn waker(&self) -> Waker {
        self.sleeper.waker()
    }

    fn frame_bytes_max(&self) -> usize {
        FRAME_BYTES_MAX_V4
    }

    fn local(&self) -> SocketAddr {
        self.local
    }

    fn drops(&self) -> u64 {
        self.network.state().inboxes.get(&self.local).map_or(0, |inbox| inbox.drops)
    }
}

impl SharedPort for LoopbackPort {
    /// The port's address.
    type Handle = SocketAddr;

    fn handle(&self) -> SocketAddr {
        self.local
    }

    fn receive_at(
        &mut self,
        handle: &SocketAddr,
        batch: &mut Batch,
        messages_max: usize,
    ) -> io::Result<usize> {
        Ok(self.network.deliver(*handle, batch, messages_max))
    }

    fn send_at(&mut self, handle: &SocketAddr, out: &mut Outbox) -> io::Result<usize> {
        Ok(self.network.carry_all(*handle, out))
    }
}

impl Drop for LoopbackPort {
    fn drop(&mut self) {
        self.network.state().inboxes.remove(&self.local);
    }
}
