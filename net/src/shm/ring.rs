//! A ring of slots with one producer and one consumer that do not trust each other.
//!
//! ```text
//!   producer: frame into the slot, then its word: sequence = position + 1, bytes
//!   consumer: the word of the slot at its own position: another sequence means "not yet"
//!             copies that many bytes out; later, once for many frames: taken = position
//!   producer: never more than all slots ahead of `taken`
//! ```
//! Each end keeps its own position privately, so the other end cannot move it. The other end can forge only the
//! length of a frame and the number of taken slots, and both are checked: [`Lie`]. A wrong sequence means "not yet".
//! Frames that change while they are copied harm only their sender: they are copied once, and decoded from the copy.
//!
//! Sleep: the consumer announces its sleep, then polls once more; the producer publishes, then checks the
//! announcement. With a full fence in between at both ends, one of them sees the other.

/// The memory access of one end, with the orderings that the protocol requires.
pub(super) trait RingMemory {
    /// Returns the number of slots, a power of two.
    fn slots(&self) -> u32;
    /// Returns the word of the slot at a position; acquires the content published with it.
    fn word(&self, position: u32) -> u64;
    /// Publishes the content of the slot.
    fn publish(&self, position: u32, word: u64);
    /// Copies a frame into the slot, after its word.
    fn write(&self, position: u32, frame: &[u8]);
    /// Copies as many bytes as `to` has out of the slot, after its word.
    fn read(&self, position: u32, to: &mut [u8]);
    /// Returns the consumer's taken position; acquires its reads.
    fn taken(&self) -> u32;
    /// Frees the slots before `position`.
    fn set_taken(&self, position: u32);
    /// Returns whether the consumer has announced its sleep.
    fn is_asleep(&self) -> bool;
    /// Announces the consumer's sleep, or withdraws it.
    fn set_asleep(&self, is_asleep: bool);
    /// Orders the earlier writes of this end before its later reads.
    fn fence(&self);
}

/// A violation of the protocol by the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lie {
    /// A frame without bytes, or longer than the maximum.
    Length,
    /// More was taken than was ever sent.
    Taken,
}

const fn word_of(position: u32, frame_bytes: usize) -> u64 {
    (position.wrapping_add(1) as u64) << 32 | frame_bytes as u64
}

/// The receiving end of a ring.
#[derive(Debug, Default)]
pub(super) struct Consumer {
    position: u32,
    /// The position that the producer was last told.
    told: u32,
}

impl Consumer {
    /// Returns the bytes of the next frame, if present; at most `frame_bytes_max`.
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

    /// Copies the next frame and advances past it.
    #[inline]
    pub(super) fn take(&mut self, memory: &impl RingMemory, to: &mut [u8]) {
        memory.read(self.position, to);
        self.position = self.position.wrapping_add(1);
    }

    /// Frees the slots of taken frames.
    #[inline]
    pub(super) fn release(&mut self, memory: &impl RingMemory) {
        if self.told != self.position {
            self.told = self.position;
            memory.set_taken(self.position);
        }
    }

    /// Announces that this end sleeps from now on. Returns false if it must not, because a frame has come.
    pub(super) fn fall_asleep(&self, memory: &impl RingMemory) -> bool {
        memory.set_asleep(true);
        memory.fence();
        // A frame of invalid length counts as a frame too.
        matches!(self.next(memory, usize::MAX), Ok(None))
    }

    /// Withdraws the announcement of a sleep.
    pub(super) fn wake_up(&self, memory: &impl RingMemory) {
        memory.set_asleep(false);
    }
}

/// The sending end of a ring.
#[derive(Debug, Default)]
pub(super) struct Producer {
    position: u32,
    /// The last known position of the consumer.
    taken: u32,
}

impl Producer {
    /// Sends one frame; false if the ring is full.
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
        // Ahead of the last sent frame, or more than a ring behind it.
        if self.position.wrapping_sub(taken) > memory.slots() { Err(Lie::Taken) } else { Ok(taken) }
    }

    /// Returns whether the caller must ring the doorbell of the consumer, which sleeps and was not woken yet. A result
    /// of true counts as rung. Called after the frame was pushed.
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
