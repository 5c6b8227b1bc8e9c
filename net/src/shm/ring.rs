//! A ring of slots with one producer and one consumer that do not trust each other.
//!
//! ```text
//!   producer: frame into the slot, then its word: sequence = position + 1, bytes
//!   consumer: the word of the slot at its own position: another sequence means "not yet"
//!             so many bytes are copied out; later, once for many frames: taken = position
//!   producer: never more than all slots ahead of `taken`
//! ```
//! Each end keeps its position to itself, so nothing that the other writes moves it. What the other can lie about is the
//! length of a frame and how much it has taken, and both are checked: [`Lie`]. A sequence that is wrong is "not yet",
//! frames that change while they are copied are the sender's own business: they are copied once, and decoded from there.
//!
//! Sleep: the consumer says that it sleeps, then looks once more; the producer publishes, then looks whether the consumer
//! sleeps. With a full fence between at both ends one of them sees the other.

/// What one end needs of the memory, with the orderings that the protocol rests on.
pub(super) trait RingMemory {
    /// Slots, a power of two.
    fn slots(&self) -> u32;
    /// The word of the slot at a position; acquires what was published with it.
    fn word(&self, position: u32) -> u64;
    /// Publishes what was written to the slot.
    fn publish(&self, position: u32, word: u64);
    /// Copies a frame behind the slot's word.
    fn write(&self, position: u32, frame: &[u8]);
    /// Copies as many bytes as `to` has from behind the slot's word.
    fn read(&self, position: u32, to: &mut [u8]);
    /// What the consumer has taken; acquires that it has read it.
    fn taken(&self) -> u32;
    /// Gives the slots before `position` back.
    fn set_taken(&self, position: u32);
    /// Whether the consumer says that it sleeps.
    fn is_asleep(&self) -> bool;
    /// Says so, or takes it back.
    fn set_asleep(&self, is_asleep: bool);
    /// Orders what this end wrote before it against what it reads behind it.
    fn fence(&self);
}

/// The other end has written what no honest one does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lie {
    /// A frame without bytes, or with more than frames have.
    Length,
    /// More was taken than was ever sent.
    Taken,
}

const fn word_of(position: u32, frame_bytes: usize) -> u64 {
    (position.wrapping_add(1) as u64) << 32 | frame_bytes as u64
}

/// The receiving end.
#[derive(Debug, Default)]
pub(super) struct Consumer {
    position: u32,
    /// What the producer was told.
    told: u32,
}

impl Consumer {
    /// Bytes of the frame that is next, if it is there; at most `frame_bytes_max`.
    #[inline]
    pub(super) fn next(
        &self,
        memory: &impl RingMemory,
        frame_bytes_max: usize,
    ) -> Result<Option<usize>, Lie> {
        let word = memory.word(self.position);
        if (word >> 32) as u32 != self.position.wrapping_add(1) {
            return Ok(None);
        }
        match word as u32 as usize {
            bytes if bytes == 0 || bytes > frame_bytes_max => Err(Lie::Length),
            bytes => Ok(Some(bytes)),
        }
    }

    /// Copies the frame that is next and passes it.
    #[inline]
    pub(super) fn take(&mut self, memory: &impl RingMemory, to: &mut [u8]) {
        memory.read(self.position, to);
        self.position = self.position.wrapping_add(1);
    }

    /// Gives back the slots of what was taken.
    #[inline]
    pub(super) fn release(&mut self, memory: &impl RingMemory) {
        if self.told != self.position {
            self.told = self.position;
            memory.set_taken(self.position);
        }
    }

    /// Says that this end sleeps from now on. False when it must not: something has come.
    pub(super) fn fall_asleep(&self, memory: &impl RingMemory) -> bool {
        memory.set_asleep(true);
        memory.fence();
        // A frame of a wrong length is something as well.
        matches!(self.next(memory, usize::MAX), Ok(None))
    }

    /// Takes it back.
    pub(super) fn wake_up(&self, memory: &impl RingMemory) {
        memory.set_asleep(false);
    }
}

/// The sending end.
#[derive(Debug, Default)]
pub(super) struct Producer {
    position: u32,
    /// What the consumer is known to have taken.
    taken: u32,
}

impl Producer {
    /// Sends one frame; false when the ring is full.
    #[inline]
    pub(super) fn push(&mut self, memory: &impl RingMemory, frame: &[u8]) -> Result<bool, Lie> {
        if self.position.wrapping_sub(self.taken) >= memory.slots() {
            self.taken = self.look(memory)?;
            if self.position.wrapping_sub(self.taken) >= memory.slots() {
                return Ok(false);
            }
        }
        memory.write(self.position, frame);
        memory.publish(self.position, word_of(self.position, frame.len()));
        self.position = self.position.wrapping_add(1);
        Ok(true)
    }

    #[cold]
    fn look(&self, memory: &impl RingMemory) -> Result<u32, Lie> {
        let taken = memory.taken();
        // In front of what was sent, or more than a ring behind it.
        if self.position.wrapping_sub(taken) > memory.slots() { Err(Lie::Taken) } else { Ok(taken) }
    }

    /// Whether the consumer is to be rung: it sleeps and nobody has rung yet. Who asks rings: it counts as rung from then on.
    /// Called behind what was pushed.
    #[inline]
    pub(super) fn has_to_ring(&self, memory: &impl RingMemory) -> bool {
        memory.fence();
        let has_to = memory.is_asleep();
        if has_to {
            memory.set_asleep(false);
        }
        has_to
    }
}

#[cfg(test)]
mod tests;
