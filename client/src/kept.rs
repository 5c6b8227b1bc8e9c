//! A copy of each outstanding request, by sequence.
//!
//! A request may have to be made again in another way than a retransmission: over the stream,
//! in a session that replaces a lost one, or to another server. The copies lie in a ring like the requester's, in buffers
//! that only grow; keeping one costs a copy of a body that is in cache anyway.

use wire::{Request, opcode};

/// How long a request is on its way, over all servers that it went to.
#[derive(Clone, Copy, Default)]
pub(crate) struct Journey {
    /// When the caller submitted it.
    pub(crate) accepted_us: u64,
    /// Servers that have answered that it is another one's.
    pub(crate) moves: u32,
}

impl Journey {
    #[inline]
    pub(crate) fn begin(now_us: u64) -> Journey {
        Journey { accepted_us: now_us, moves: 0 }
    }
}

/// One request.
#[derive(Default)]
pub(crate) struct KeptRequest {
    pub(crate) tag: u64,
    pub(crate) journey: Journey,
    /// When it was submitted to this session.
    pub(crate) submitted_us: u64,
    pub(crate) code: u8,
    body_bytes: u32,
    buffer: Vec<u8>,
}

impl KeptRequest {
    pub(crate) fn body(&self) -> &[u8] {
        &self.buffer[..self.body_bytes as usize]
    }

    /// Whether executing it twice changes nothing.
    pub(crate) fn is_read(&self) -> bool {
        is_read(self.code)
    }
}

/// Whether requests of this number only read. An invocation may write.
pub(crate) fn is_read(code: u8) -> bool {
    opcode::is_read(code)
}

/// The ring.
pub(crate) struct Kept {
    slots: Box<[KeptRequest]>,
}

impl Kept {
    /// A ring for a window of `credits` sequences.
    pub(crate) fn new(credits: u16) -> Kept {
        let slots = usize::from(credits).next_power_of_two();
        Kept { slots: (0..slots).map(|_| KeptRequest::default()).collect() }
    }

    /// Keeps a request under its sequence.
    #[inline]
    pub(crate) fn keep(
        &mut self,
        sequence: u64,
        (now_us, journey): (u64, Journey),
        tag: u64,
        request: &Request<'_>,
    ) {
        let index = sequence as usize & (self.slots.len() - 1);
        let slot = &mut self.slots[index];
        let body_bytes = request.body_bytes();
        if slot.buffer.len() < body_bytes {
            slot.buffer.resize(body_bytes, 0);
        }
        request.encode(&mut slot.buffer[..body_bytes]);
        slot.body_bytes = body_bytes as u32;
        slot.code = request.opcode();
        slot.tag = tag;
        slot.submitted_us = now_us;
        slot.journey = journey;
    }

    /// The request of an outstanding sequence, or of one that has just been completed.
    #[inline]
    pub(crate) fn get(&self, sequence: u64) -> &KeptRequest {
        &self.slots[sequence as usize & (self.slots.len() - 1)]
    }
}
