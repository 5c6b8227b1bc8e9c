//! Replies whose parts are arriving.
//!
//! There is one assembly per awaited sequence, of one execution: a part of another execution starts again. Memory: at
//! most [`crate::limits::REPLY_PARTS_BYTES_MAX`] per outstanding request, freed when it is complete.

use crate::limits::REPLY_PARTS_MAX;
use crate::reply::Part;

/// Buffers that are kept for the next answers.
const SPARE_BUFFERS: usize = 16;

#[derive(Debug)]
struct Assembly {
    sequence: u64,
    stamp: u32,
    count: u16,
    /// A bit for each piece that is here.
    here: u64,
    body: Vec<u8>,
}

const _: () = assert!(REPLY_PARTS_MAX <= u64::BITS as usize);

/// The assemblies of a session.
#[derive(Debug, Default)]
pub(super) struct Assemblies {
    open: Vec<Assembly>,
    spare: Vec<Vec<u8>>,
}

impl Assemblies {
    /// Stores a part; returns the reply if it was the last missing one.
    #[inline]
    pub(super) fn add(&mut self, sequence: u64, part: &Part<'_>) -> Option<Vec<u8>> {
        // Searches from the end: most parts belong to the latest request.
        let found = self.open.iter().rposition(|assembly| assembly.sequence == sequence);
        let index = found.unwrap_or_else(|| {
            let body = self.spare.pop().unwrap_or_default();
            self.open.push(Assembly { sequence, stamp: part.stamp, count: 0, here: 0, body });
            self.open.len() - 1
        });
        let assembly = &mut self.open[index];
        let is_same = assembly.stamp == part.stamp
            && assembly.count == part.count
            && assembly.body.len() == part.whole_bytes as usize;
        if !is_same {
            (assembly.stamp, assembly.count, assembly.here) = (part.stamp, part.count, 0);
            assembly.body.resize(part.whole_bytes as usize, 0);
        }
        let place = assembly.body.get_mut(part.first()..)?.get_mut(..part.bytes.len())?;
        place.copy_from_slice(part.bytes);
        assembly.here |= 1 << part.index;
        let is_whole = assembly.here.count_ones() == u32::from(part.count);
        is_whole.then(|| self.open.swap_remove(index).body)
    }

    /// Discards the parts of a sequence.
    #[inline]
    pub(super) fn forget(&mut self, sequence: u64) {
        if !self.open.is_empty()
            && let Some(index) = self.open.iter().position(|assembly| assembly.sequence == sequence)
        {
            let body = self.open.swap_remove(index).body;
            self.give_back(body);
        }
    }

    /// Takes back the memory of a reply.
    pub(super) fn give_back(&mut self, body: Vec<u8>) {
        if self.spare.len() < SPARE_BUFFERS {
            self.spare.push(body);
        }
    }
}
