//! Replicas of other servers' logs in the frames of a disk.
//!
//! ```text
//!   begin ── append ... append ──► flush: what was appended is stable          forget: the frames are free
//! ```
//! A replica's frames are filled one after another with fragments (`disk/src/replica.rs`): a frame is opened only when the
//! ones before are stable. So a replica that a start finds is whole but for its end, and its end is told by its last frame.
//! To one that was found nothing is added: whoever wants to go on begins another one, and both can be read.
//!
//! The frames of a forgotten replica stay as they are until they are used again. A start may find it, or its first frames.

mod frames;
mod placed;
mod speed;
#[cfg(test)]
mod tests;

pub use self::placed::PlacedReplica;

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{BuildHasher, RandomState};

use cluster::replication::Item;
use disk::{
    BLOCK_BYTES, Buffer, Disk, DiskError, FRAGMENT_HEADER_BYTES, Fragment, FrameId, REPLICA_HEADER_BYTES,
    ReplicaHeader,
};

use self::frames::{SpareFrames, write};
use crate::durability::each_first_block;

/// The log of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogId {
    /// The number of the server.
    pub server: u32,
    /// The log's random number: a server that begins with an empty disk has another one.
    pub number: u64,
}

/// The reason why nothing was appended.
#[derive(Debug)]
pub enum ReplicaError {
    /// There is no frame for it.
    Full,
    /// No replica of this was begun, or the bytes do not follow those that it has.
    NotNext,
    /// The disk failed: nothing becomes stable any more.
    Disk(DiskError),
}

impl fmt::Display for ReplicaError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => formatter.write_str("there is no room for more replicas"),
            Self::NotNext => formatter.write_str("these bytes do not follow those of the replica"),
            Self::Disk(error) => error.fmt(formatter),
        }
    }
}

impl std::error::Error for ReplicaError {}

impl From<DiskError> for ReplicaError {
    fn from(error: DiskError) -> Self {
        match error {
            DiskError::Full => Self::Full,
            error => Self::Disk(error),
        }
    }
}

/// A replica as it lies on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldReplica {
    /// What it is of.
    pub item: Item,
    /// See [`ReplicaHeader::number`].
    pub number: u64,
    /// See [`disk::Trailer::class`].
    pub class: u8,
    /// Its last cut.
    pub cut: u64,
    /// Its bytes: of a segment from its beginning, of a digest all or fewer.
    pub bytes: u32,
}

/// The end of a replica that grows.
struct ReplicaEnd {
    /// Bytes of the last frame from this block's border on, up to the end of the last fragment.
    from: usize,
    bytes: Vec<u8>,
    /// See [`Fragment::decode`].
    chain: u32,
    is_stable: bool,
}

impl ReplicaEnd {
    fn filled(&self) -> usize {
        self.from + self.bytes.len()
    }
}

struct Replica {
    class: u8,
    frames: Vec<FrameId>,
    /// The place of the first of the frames in the replica: those of earlier digests are gone.
    first: u32,
    /// Bytes of the segment, or of the digest that is under way.
    bytes: u32,
    /// `None` for one that was found.
    tail: Option<ReplicaEnd>,
    /// The frame in which the last digest begins, by its place.
    newest: u32,
    /// The last cut, and the bytes from the first one on; `None` of one that was found, until it is read.
    end: Option<(u64, u32)>,
}

/// The replicas on a disk.
pub struct ReplicaFile {
    disk: Box<dyn Disk>,
    frames_max: u32,
    free: Vec<FrameId>,
    /// The highest number of a replica.
    number: u64,
    replicas: BTreeMap<(LogId, Item), BTreeMap<u64, Replica>>,
    /// What fills frames to their ends, and is not stable: the frame, the offset, and the bytes from there on.
    filled: Vec<(FrameId, usize, Vec<u8>)>,
    spare: SpareFrames,
    /// Replicas with something that is not stable.
    unstable: Vec<(LogId, Item, u64)>,
    buffer: Buffer,
    /// Keyed at random: what makes salts.
    salts: RandomState,
}

impl ReplicaFile {
    /// Finds the replicas on a disk, which grows to so many frames. Reads a block of each frame.
    ///
    /// # Errors
    /// If the disk does not read.
    pub fn open(mut disk: Box<dyn Disk>, frames_max: u32) -> Result<Self, DiskError> {
        let mut found: BTreeMap<(LogId, Item, u64, u32), (FrameId, u8)> = BTreeMap::new();
        let (mut free, mut number) = (Vec::new(), 0);
        let all: Vec<FrameId> = (0..disk.frames()).map(FrameId).collect();
        each_first_block(&mut *disk, &all, |_, frame, block| -> Result<(), DiskError> {
            let Some((header, _)) = ReplicaHeader::decode(block) else {
                free.push(frame);
                return Ok(());
            };
            number = number.max(header.number);
            let log = LogId { server: header.owner, number: header.log };
            let place = (log, item_of(&header), header.number, header.index);
            if let Some((other, _)) = found.insert(place, (frame, header.class)) {
                free.push(other);
            }
            Ok(())
        })?;
        let buffer = Buffer::new(disk.frame_bytes());
        let mut replicas: BTreeMap<(LogId, Item), BTreeMap<u64, Replica>> = BTreeMap::new();
        for ((log, item, number, index), (frame, class)) in found {
            let (frames, tail) = (Vec::new(), None);
            let first = if item == Item::Digest { index } else { 0 };
            let begun = Replica { class, frames, first, bytes: 0, tail, newest: 0, end: None };
            let replica = replicas.entry((log, item)).or_default().entry(number).or_insert(begun);
            let next = replica.first + replica.frames.len() as u32;
            if item == Item::Digest && index != next {
                // Before a gap lies what is left of earlier digests.
                free.append(&mut replica.frames);
                replica.first = index;
            }
            if item == Item::Digest || index == next {
                replica.frames.push(frame);
            } else {
                // Behind a gap lies what is left of one that was forgotten.
                free.push(frame);
            }
        }
        for numbered in replicas.values_mut() {
            numbered.retain(|_, replica| !replica.frames.is_empty());
        }
        replicas.retain(|_, numbered| !numbered.is_empty());
        let (filled, spare, unstable) = Default::default();
        Ok(Self {
            disk,
            frames_max,
            free,
            number,
            replicas,
            filled,
            spare,
            unstable,
            buffer,
            salts: RandomState::new(),
        })
    }

    /// Begins a replica, to which bytes from the first one on can be appended. Another one of the same stays.
    pub fn begin(&mut self, log: LogId, item: Item, class: u8) {
        self.number += 1;
        let tail = Some(ReplicaEnd { from: 0, bytes: Vec::new(), chain: 0, is_stable: true });
        let (frames, end) = (Vec::new(), Some((0, 0)));
        let replica = Replica { class, frames, first: 0, bytes: 0, tail, newest: 0, end };
        self.replicas.entry((log, item)).or_default().insert(self.number, replica);
    }

    /// Appends bytes of the log to the replica that was begun last. They follow those that it has; a digest follows a whole
    /// one, or the beginning of the same.
    ///
    /// # Errors
    /// [`ReplicaError`]; unless the disk failed, nothing has changed.
    pub fn append(
        &mut self,
        log: LogId,
        item: Item,
        fragment: &Fragment,
        mut bytes: &[u8],
    ) -> Result<(), ReplicaError> {
        let frame_bytes = self.disk.frame_bytes();
        let (number, missing) = {
            let latest = self.replicas.get(&(log, item)).and_then(|numbered| numbered.last_key_value());
            let (number, replica) = latest.ok_or(ReplicaError::NotNext)?;
            let tail = replica.tail.as_ref().ok_or(ReplicaError::NotNext)?;
            let fits = fragment.at.checked_add(bytes.len() as u32).is_some_and(|end| end <= fragment.end);
            if fragment.at != replica.bytes || bytes.is_empty() || !fits {
                return Err(ReplicaError::NotNext);
            }
            let room = if replica.frames.is_empty() { 0 } else { frame_bytes - tail.filled() };
            (*number, frames_for(bytes.len(), room, frame_bytes))
        };
        let mut frames = self.take_frames(missing)?.into_iter();
        let replica = self.replicas.get_mut(&(log, item)).and_then(|numbered| numbered.get_mut(&number));
        let (replica, mut fragment) = (replica.expect("it was found"), *fragment);
        let tail = replica.tail.as_mut().expect("it grows");
        let mut is_first = fragment.at == 0;
        let is_full = frame_bytes - tail.filled() <= FRAGMENT_HEADER_BYTES;
        if tail.is_stable && !replica.frames.is_empty() && !is_full {
            let mut room = self.spare.take(frame_bytes);
            room.append(&mut tail.bytes);
            tail.bytes = room;
        }
        while !bytes.is_empty() {
            if replica.frames.is_empty() || frame_bytes - tail.filled() <= FRAGMENT_HEADER_BYTES {
                // One that ends with a block may be stable already.
                if let Some(last) = replica.frames.last().filter(|_| !tail.bytes.is_empty()) {
                    let content = std::mem::take(&mut tail.bytes);
                    self.filled.push((*last, tail.from, content));
                }
                let index = replica.first + replica.frames.len() as u32;
                let header = ReplicaHeader {
                    number,
                    log: log.number,
                    owner: log.server,
                    segment: segment_of(item),
                    class: replica.class,
                    index,
                    salt: self.salts.hash_one((number, index)) as u32,
                };
                replica.frames.push(frames.next().expect("as many as it takes"));
                let (head, chain) = header.encode();
                (tail.from, tail.chain) = (0, chain);
                tail.bytes = self.spare.take(frame_bytes);
                tail.bytes.extend_from_slice(&head);
            }
            if std::mem::take(&mut is_first) {
                replica.newest = replica.first + replica.frames.len() as u32 - 1;
            }
            let room = frame_bytes - tail.filled() - FRAGMENT_HEADER_BYTES;
            let (now, rest) = bytes.split_at(bytes.len().min(room));
            tail.chain = fragment.encode(now, tail.chain, &mut tail.bytes);
            fragment.at += now.len() as u32;
            bytes = rest;
        }
        if std::mem::take(&mut tail.is_stable) {
            self.unstable.push((log, item, number));
        }
        replica.end = Some((fragment.cut, fragment.at));
        let is_digest_whole = item == Item::Digest && fragment.at == fragment.end;
        replica.bytes = if is_digest_whole { 0 } else { fragment.at };
        Ok(())
    }

    /// Takes frames that nothing needs, or new ones of the file.
    fn take_frames(&mut self, count: usize) -> Result<Vec<FrameId>, ReplicaError> {
        let mut frames = self.free.split_off(self.free.len().saturating_sub(count));
        while frames.len() < count {
            let added = match self.disk.frames() {
                frames if frames >= self.frames_max => Err(DiskError::Full),
                _ => self.disk.grow(),
            };
            match added {
                Ok(frame) => frames.push(frame),
                Err(error) => {
                    self.free.append(&mut frames);
                    return Err(error.into());
                }
            }
        }
        Ok(frames)
    }

    /// Makes stable what was appended. Takes one write of the disk, and another one for each frame that is full.
    ///
    /// # Errors
    /// If the disk fails: nothing becomes stable any more.
    pub fn flush(&mut self) -> Result<(), DiskError> {
        // One after another, so that a frame of a replica is stable before any later one of it.
        for (frame, from, bytes) in std::mem::take(&mut self.filled) {
            write(&mut *self.disk, &mut self.buffer, vec![(frame, from, &bytes)])?;
            self.spare.keep(bytes);
        }
        let unstable = std::mem::take(&mut self.unstable);
        let replica_of = |(log, item, number): &(LogId, Item, u64)| {
            self.replicas.get(&(*log, *item)).and_then(|numbered| numbered.get(number))
        };
        let tails = unstable.iter().filter_map(replica_of).filter_map(|replica| {
            let tail = replica.tail.as_ref()?;
            replica.frames.last().map(|frame| (*frame, tail.from, tail.bytes.as_slice()))
        });
        write(&mut *self.disk, &mut self.buffer, tails.collect())?;
        for (log, item, number) in unstable {
            let numbered = self.replicas.get_mut(&(log, item));
            let Some(replica) = numbered.and_then(|numbered| numbered.get_mut(&number)) else { continue };
            let tail = replica.tail.as_mut().expect("it grows");
            let stable = tail.bytes.len() / BLOCK_BYTES * BLOCK_BYTES;
            // What waits for more is less than a block: it takes no frame of memory.
            let rest = tail.bytes[stable..].to_vec();
            let room = std::mem::replace(&mut tail.bytes, rest);
            self.spare.keep(room);
            (tail.from, tail.is_stable) = (tail.from + stable, true);
            if item == Item::Digest && replica.bytes == 0 {
                let earlier = (replica.newest - replica.first) as usize;
                self.free.extend(replica.frames.drain(..earlier));
                replica.first = replica.newest;
            }
        }
        Ok(())
    }

    /// Forgets the replica of an item that was begun last, and has nothing.
    pub fn withdraw(&mut self, log: LogId, item: Item) {
        let Some(numbered) = self.replicas.get_mut(&(log, item)) else { return };
        numbered.pop_last();
        if numbered.is_empty() {
            self.replicas.remove(&(log, item));
        }
    }

    /// Forgets all replicas of an item.
    pub fn forget(&mut self, log: LogId, item: Item) {
        for (_, replica) in self.replicas.remove(&(log, item)).into_iter().flatten() {
            self.release(replica);
        }
    }

    /// Forgets all replicas of a log.
    pub fn forget_log(&mut self, log: LogId) {
        for item in self.placed(log).into_iter().map(|replica| replica.item) {
            self.forget(log, item);
        }
    }

    /// Forgets the replicas of an item but for the one that was begun last.
    pub fn forget_earlier(&mut self, log: LogId, item: Item) {
        let Some(numbered) = self.replicas.get_mut(&(log, item)) else { return };
        let Some((latest, _)) = numbered.last_key_value() else { return };
        let later = numbered.split_off(&latest.clone());
        let earlier = std::mem::replace(numbered, later);
        earlier.into_values().for_each(|replica| self.release(replica));
    }

    fn release(&mut self, replica: Replica) {
        // What is under way for its frames would end in those of others.
        self.filled.retain(|(frame, ..)| !replica.frames.contains(frame));
        self.free.extend(replica.frames);
    }

    /// Returns how many frames are full and not stable.
    #[must_use]
    pub fn filled_frames(&self) -> usize {
        self.filled.len()
    }

    /// Returns how many more frames replicas may take.
    #[must_use]
    pub fn room(&self) -> u32 {
        self.frames_max.saturating_sub(self.disk.frames()) + self.free.len() as u32
    }

    /// Returns the logs of which there are replicas.
    pub fn logs(&self) -> Vec<LogId> {
        let mut logs: Vec<LogId> = self.replicas.keys().map(|(log, _)| *log).collect();
        logs.dedup();
        logs
    }

    /// Returns the replicas of a log, if all of it is stable. Reads the last frame of each that a start found, once.
    ///
    /// # Errors
    /// If the disk does not read.
    pub fn held(&mut self, log: LogId) -> Result<Vec<HeldReplica>, DiskError> {
        let mut held = Vec::new();
        for replica in self.placed(log) {
            let (cut, bytes) = replica.end(&mut *self.disk, &mut self.buffer)?;
            let PlacedReplica { item, number, class, .. } = replica;
            let numbered = self.replicas.get_mut(&(log, item));
            if let Some(replica) = numbered.and_then(|numbered| numbered.get_mut(&number)) {
                replica.end = Some((cut, bytes));
            }
            held.push(HeldReplica { item, number, class, cut, bytes });
        }
        Ok(held)
    }

    /// Reads what is stable of the replicas of an item, the earliest first: calls `visit` with each fragment and its bytes. Of
    /// each segment's replica those up to the first damage are read; of a digest, some may lack their beginning or their end.
    ///
    /// # Errors
    /// If the disk does not read.
    pub fn read(
        &mut self,
        log: LogId,
        item: Item,
        visit: &mut dyn FnMut(Fragment, &[u8]),
    ) -> Result<(), DiskError> {
        for replica in self.placed(log).into_iter().filter(|replica| replica.item == item) {
            replica.read(&mut *self.disk, &mut self.buffer, visit)?;
        }
        Ok(())
    }

    /// Returns the replicas of a log, the earlier ones of an item first. Their frames stay as they are until any of them is
    /// forgotten, or a later digest comes.
    #[must_use]
    pub fn placed(&self, log: LogId) -> Vec<PlacedReplica> {
        let items = (log, Item::Digest)..=(log, Item::Segment(u32::MAX));
        let placed = self.replicas.range(items).flat_map(|((_, item), numbered)| {
            numbered.iter().map(|(number, replica)| PlacedReplica {
                item: *item,
                number: *number,
                class: replica.class,
                frames: replica.frames.clone(),
                first: replica.first,
                end: replica.end,
            })
        });
        placed.collect()
    }

    /// Returns another handle of the disk, for a reader on another thread.
    ///
    /// # Errors
    /// If the kernel has no resources for it.
    pub fn disk(&self) -> Result<Box<dyn Disk>, DiskError> {
        self.disk.another()
    }
}

/// Returns how many more frames so many bytes take behind one with this room.
fn frames_for(bytes: usize, room: usize, frame_bytes: usize) -> usize {
    let rest = bytes.saturating_sub(room.saturating_sub(FRAGMENT_HEADER_BYTES));
    rest.div_ceil(frame_bytes - REPLICA_HEADER_BYTES - FRAGMENT_HEADER_BYTES)
}

fn segment_of(item: Item) -> Option<u32> {
    match item {
        Item::Digest => None,
        Item::Segment(sequence) => Some(sequence),
    }
}

fn item_of(header: &ReplicaHeader) -> Item {
    header.segment.map_or(Item::Digest, Item::Segment)
}
