//! Archives under way: what of a snapshot of the log a tenant may read, how far it has, and how fast.
//!
//! ```text
//!   begin ── a snapshot as of one cut ──► pieces of keys ──► pieces of objects ──► end, or nobody reads for minutes
//! ```
//! Positions stay here: a client names a piece by its number, so it never says where in a segment the server looks for
//! an entry, and what another tenant wrote is never read as if it were an entry of the client's tables. Keys are hashed
//! with a secret of the archive, so that nobody writes two keys with one hash.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use control::{ArchivePiece, ByteString};
use store::{DamagedEntry, SegmentEntries, SegmentEntry};
use wire::{Status, TenantId};

use super::Refusal;
use crate::durability::log_reader::SegmentBytes;
use crate::durability::log_writer::{Snapshot, SnapshotError};
use crate::limits::{ARCHIVE_BYTES_PER_SECOND, ARCHIVE_IDLE_MS, ARCHIVE_PIECE_BYTES, ARCHIVES_MAX};
use crate::sync::lock;
use crate::tablet::Range;

/// Marks the end of a key in a record's word.
const ENDS: u64 = 1 << 63;

/// The archives that a server reads.
#[derive(Default)]
pub struct Archives {
    running: Mutex<Vec<Arc<Archive>>>,
    last_id: AtomicU64,
    pace: Mutex<Option<Instant>>,
}

/// An archive of one tenant.
pub struct Archive {
    /// Its number.
    pub id: u64,
    /// The tenant.
    pub tenant: TenantId,
    /// Whether the administrator reads it.
    by_administrator: bool,
    parts: ArchivedParts,
    hashers: [RandomState; 2],
    reading: Mutex<Reading>,
}

/// Parts that an archive has, by the numbers that the log has for them.
pub type ArchivedParts = BTreeMap<u32, ArchivedPart>;

/// What an archive has of a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchivedPart {
    /// The number of its table.
    pub table: u32,
    /// Whether the table is tagged.
    pub is_tagged: bool,
    /// Positions of the keys.
    pub owned: Vec<Range>,
}

impl ArchivedPart {
    /// The part of a table that is here as a whole.
    #[must_use]
    pub fn whole(table: u32) -> Self {
        Self { table, is_tagged: false, owned: vec![(0, u64::MAX)] }
    }

    fn has(&self, key: &[u8]) -> bool {
        if self.owned == [(0, u64::MAX)] {
            return true;
        }
        let position = wire::position(key, store::hash(key), self.is_tagged, store::hash);
        self.owned.iter().any(|&(first, last)| (first..=last).contains(&position))
    }
}

/// Where a piece begins: a segment, and a byte in it.
#[derive(Clone, Copy, Default)]
struct Place {
    segment: usize,
    offset: usize,
    done_bytes: u64,
}

/// What pieces consist of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Keys, with hashes that only this archive has.
    Keys,
    /// Objects.
    Objects,
    /// Keys, with the hashes that clients know, but for what is damaged.
    Check,
}

impl Content {
    /// Returns what a request asks for.
    #[must_use]
    pub const fn of(keys_only: bool, check: bool) -> Self {
        match (keys_only, check) {
            (_, true) => Self::Check,
            (true, false) => Self::Keys,
            (false, false) => Self::Objects,
        }
    }
}

struct Reading {
    snapshot: Snapshot,
    /// The segment that was read last: its place, its number, its bytes.
    segment: Option<(usize, u32, SegmentBytes)>,
    content: Content,
    /// Where the last piece began, and where the next one does, with its number.
    last: Place,
    next: Place,
    number: u32,
    used: Instant,
}

impl Archives {
    /// Begins an archive of these parts for the administrator or the tenant; ends an earlier one of the tenant that the same
    /// reads.
    ///
    /// # Errors
    /// `LimitExceeded` if the server reads as many as it may, for the administrator or for tenants.
    pub fn begin(
        &self,
        (tenant, by_administrator): (TenantId, bool),
        parts: ArchivedParts,
        snapshot: Snapshot,
    ) -> Result<Arc<Archive>, Refusal> {
        let mut running = lock(&self.running);
        let is_same =
            |archive: &Archive| (archive.tenant, archive.by_administrator) == (tenant, by_administrator);
        running.retain(|archive| !is_same(archive) && !archive.is_idle());
        let others = running.iter().filter(|archive| archive.by_administrator == by_administrator);
        if others.count() >= ARCHIVES_MAX {
            let text = format!("the server reads {ARCHIVES_MAX} archives already: repeat this later");
            return Err(Refusal::new(Status::LimitExceeded, text));
        }
        let (last, next) = Default::default();
        let (segment, used) = (None, Instant::now());
        let reading = Reading { snapshot, segment, content: Content::Keys, last, next, number: 0, used };
        let archive = Archive {
            id: self.last_id.fetch_add(1, Ordering::Relaxed) + 1,
            tenant,
            by_administrator,
            parts,
            hashers: [RandomState::new(), RandomState::new()],
            reading: Mutex::new(reading),
        };
        let archive = Arc::new(archive);
        running.push(Arc::clone(&archive));
        Ok(archive)
    }

    /// Returns the archive of this number.
    ///
    /// # Errors
    /// `NotFound`; also of another tenant than `tenant`, if one is given.
    pub fn find(&self, id: u64, tenant: Option<TenantId>) -> Result<Arc<Archive>, Refusal> {
        let may_read = |archive: &&Arc<Archive>| tenant.is_none_or(|tenant| archive.tenant == tenant);
        let running = lock(&self.running);
        let found = running.iter().filter(may_read).find(|archive| archive.id == id);
        found.cloned().ok_or_else(|| {
            let text = "the archive has ended: it was not read for five minutes, or another one was begun";
            Refusal::new(Status::NotFound, text)
        })
    }

    /// Ends an archive.
    pub fn end(&self, archive: &Arc<Archive>) {
        lock(&self.running).retain(|other| !Arc::ptr_eq(other, archive));
    }

    /// Ends archives that nobody reads.
    pub fn end_idle(&self) {
        lock(&self.running).retain(|archive| !archive.is_idle());
    }

    /// Waits until these bytes of the log may be read.
    fn wait_for(&self, bytes: u64) {
        let now = Instant::now();
        let from = {
            let mut pace = lock(&self.pace);
            let from = pace.map_or(now, |pace| pace.max(now));
            *pace = Some(from + Duration::from_micros(bytes * 1_000_000 / ARCHIVE_BYTES_PER_SECOND));
            from
        };
        thread::sleep(from - now);
    }
}

impl Archive {
    /// Returns whether nobody has read it for long. An archive that is being read now is not.
    fn is_idle(&self) -> bool {
        let Ok(reading) = self.reading.try_lock() else { return false };
        reading.used.elapsed() >= Duration::from_millis(ARCHIVE_IDLE_MS)
    }

    /// Notes that somebody reads it.
    pub fn touch(&self) {
        lock(&self.reading).used = Instant::now();
    }

    /// Reads the next piece, or the last one again. Piece 0 begins anew. Reads a segment at most, after waiting until all
    /// archives together have read little enough.
    ///
    /// # Errors
    /// `OutOfRange` for another number, `StorageFull` if the server needs the frames, `StorageFailed` if they cannot be
    /// read or are damaged.
    pub fn read(
        &self,
        archives: &Archives,
        (number, content): (u32, Content),
    ) -> Result<ArchivePiece, Refusal> {
        let mut reading = lock(&self.reading);
        reading.used = Instant::now();
        if number == 0 {
            (reading.last, reading.next) = Default::default();
        } else if content != reading.content || (number != reading.number && number + 1 != reading.number) {
            let text = format!("the next piece of the archive is {}, not {number}", reading.number);
            return Err(Refusal::new(Status::OutOfRange, text));
        } else if number == reading.number {
            reading.last = reading.next;
        }
        let (from, all_bytes) = (reading.last, reading.all_bytes());
        if from.segment >= reading.snapshot.segments() {
            return Ok(ArchivePiece {
                records: ByteString::default(),
                segment: 0,
                is_last: true,
                done_bytes: all_bytes,
                all_bytes,
                damaged_blocks: 0,
                damaged_bytes: 0,
            });
        }
        reading.load(archives, from.segment, content)?;
        let (_, sequence, read) = reading.segment.as_ref().expect("it was loaded");
        let clock_ms = reading.snapshot.clock_ms;
        let piece = self.piece((*sequence, read), from.offset, (content, clock_ms));
        let Piece { records, offset, damaged_bytes } =
            piece.map_err(|DamagedEntry(at)| damaged(*sequence, Some(at)))?;
        let damaged_blocks = if from.offset == 0 { read.blocks_damaged } else { 0 };
        let (segment, segment_bytes) = (*sequence, read.bytes.len());
        reading.next = match offset {
            offset if offset >= segment_bytes => Place {
                segment: from.segment + 1,
                offset: 0,
                done_bytes: from.done_bytes + (segment_bytes - from.offset) as u64,
            },
            offset => Place { offset, done_bytes: from.done_bytes + (offset - from.offset) as u64, ..from },
        };
        (reading.number, reading.content, reading.used) = (number + 1, content, Instant::now());
        let is_last = reading.next.segment >= reading.snapshot.segments();
        let done_bytes = reading.next.done_bytes;
        Ok(ArchivePiece {
            records: ByteString(records),
            segment,
            is_last,
            done_bytes,
            all_bytes,
            damaged_blocks,
            damaged_bytes,
        })
    }

    /// Returns a piece of a segment.
    fn piece(
        &self,
        (sequence, read): (u32, &SegmentBytes),
        offset: usize,
        (content, clock_ms): (Content, u64),
    ) -> Result<Piece, DamagedEntry> {
        let (bytes, is_check) = (&read.bytes[..], content == Content::Check);
        let mut entries = match SegmentEntries::new(sequence, bytes, offset) {
            Err(_) if is_check => SegmentEntries::within(bytes, offset),
            entries => entries?,
        };
        let (mut records, mut damaged_bytes) = (Vec::new(), 0);
        while records.len() < ARCHIVE_PIECE_BYTES {
            let entry = match entries.next() {
                None => break,
                Some(Ok(entry)) => entry,
                Some(Err(damaged)) if is_check => {
                    damaged_bytes += entries.go_on_behind(damaged, &read.starts) as u64;
                    continue;
                }
                Some(Err(damaged)) => return Err(damaged),
            };
            // An object that has expired ends its key, as at a start.
            let object = entry.object.filter(|_| entry.expires_ms > clock_ms);
            let part = self.parts.get(&entry.table).filter(|part| part.has(entry.key));
            let Some(&ArchivedPart { table, .. }) = part else { continue };
            if content != Content::Objects || object.is_some() {
                self.append(&mut records, &SegmentEntry { table, ..entry }, (object, content));
            }
        }
        Ok(Piece { records, offset: entries.offset(), damaged_bytes })
    }

    fn append(
        &self,
        records: &mut Vec<u8>,
        entry: &SegmentEntry<'_>,
        (object, content): (Option<&[u8]>, Content),
    ) {
        match content {
            Content::Check => records.extend(u128::from(store::hash(entry.key)).to_le_bytes()),
            Content::Keys | Content::Objects => self.hashers.iter().for_each(|hasher| {
                records.extend(hasher.hash_one((entry.table, entry.key)).to_le_bytes());
            }),
        }
        records.extend(entry.table.to_le_bytes());
        let ends = if object.is_none() { ENDS } else { 0 };
        records.extend((entry.version | ends).to_le_bytes());
        if let Some(object) = object.filter(|_| content == Content::Objects) {
            records.extend((object.len() as u32).to_le_bytes());
            // The copy of the object out of its segment.
            records.extend(object);
        }
    }
}

/// A piece, the offset behind it, and the bytes in it that were left out.
struct Piece {
    records: Vec<u8>,
    offset: usize,
    damaged_bytes: u64,
}

impl Reading {
    fn all_bytes(&self) -> u64 {
        (0..self.snapshot.segments()).map(|index| self.snapshot.segment_bytes(index)).sum()
    }

    /// Reads a segment, unless it is the one that was read last.
    fn load(&mut self, archives: &Archives, index: usize, content: Content) -> Result<(), Refusal> {
        let refuse = |sequence: u32, read: &SegmentBytes| match read.blocks_damaged {
            1.. if content != Content::Check => Err(damaged(sequence, None)),
            _ => Ok(()),
        };
        if let Some((known, sequence, read)) = &self.segment
            && *known == index
        {
            return refuse(*sequence, read);
        }
        self.segment = None;
        archives.wait_for(self.snapshot.segment_bytes(index));
        let (sequence, read) = self.snapshot.read(index).map_err(|error| match error {
            SnapshotError::Ended => Refusal::new(
                Status::StorageFull,
                "the archive was ended, because the server's disk needs the room: repeat it with more room (--disk)",
            ),
            SnapshotError::Disk(error) => {
                tracing::error!(%error, "cannot read the log for an archive");
                Refusal::new(Status::StorageFailed, format!("the server cannot read its log: {error}"))
            }
        })?;
        refuse(sequence, &read)?;
        self.segment = Some((index, sequence, read));
        Ok(())
    }
}

fn damaged(sequence: u32, at: Option<usize>) -> Refusal {
    tracing::error!(sequence, at, "a segment of the log is damaged: an archive was ended");
    let text =
        format!("segment {sequence} of the log on the server's disk is damaged: there is no archive of it");
    Refusal::new(Status::StorageFailed, text)
}
