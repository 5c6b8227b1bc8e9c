//! The backups that have a log, as a server sees them that recovers it.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use cluster::metadata::{DecidedCut, MetadataError, RecoveryRow, ReplicasRow};
use cluster::peer::Purpose;
use cluster::replication::Item;
use cluster::replication::fetch::{FoundReplica, FragmentHeader, FromHolder, ToHolder, WantedHashes};
use disk::{Digest, Fragment, OPEN_ENDED};
use net::Stream;
use store::NumberHash;

use crate::control_plane::Control;
use crate::durability::replicas::gathered::{GatherError, Gathered, SegmentReplica, gather_for};
use crate::limits::{REPLICAS_HELD_BYTES_MAX, REPLICAS_HELD_MS};
use crate::peer;

/// Segments that are asked for at a time, of each backup.
const SEGMENTS_AHEAD: usize = 2;

/// A backup, and the stream to it.
struct AskedBackup {
    server: u32,
    stream: Stream,
    has_received: bool,
    record: Vec<u8>,
    replicas: Vec<FoundReplica>,
    digests: Vec<Digest>,
    /// Replicas of which so many bytes were asked for: what is wanted of them comes in this order.
    asked: VecDeque<(u64, u32)>,
    /// What came before it was needed; `None` of a damaged one.
    arrived: BTreeMap<u64, Option<Vec<u8>>>,
}

/// A replica of a segment.
#[derive(Clone, Copy)]
struct SegmentPlace {
    /// The place of the backup in [`Holders::all`].
    holder: usize,
    replica: u64,
    bytes: u32,
}

/// The reason why nothing is known of a log.
#[derive(Debug)]
pub(super) enum NotFound {
    /// So many backups answer, of as many as are needed.
    Backups(usize, usize),
    /// What they have is not all of it.
    Log(GatherError),
    /// The metadata does not answer.
    Metadata(MetadataError),
    /// The stream to this backup has ended.
    Stream(u32),
    /// No backup that answers has a part of it as it was written, and others that count do not answer.
    Damaged,
}

impl From<GatherError> for NotFound {
    fn from(error: GatherError) -> Self {
        Self::Log(error)
    }
}

impl std::fmt::Display for NotFound {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Backups(found, needed) => write!(out, "{found} of at least {needed} backups answer"),
            Self::Log(error) => error.fmt(out),
            Self::Metadata(error) => error.fmt(out),
            Self::Stream(server) => write!(out, "the stream to server {server} has ended"),
            Self::Damaged => out.write_str("a part of it is damaged at all backups that answer"),
        }
    }
}

/// The backups of a log that answer: enough to find all that was acknowledged.
pub(super) struct Holders {
    all: Vec<AskedBackup>,
    /// Of each segment who has how many bytes of it, and in which replica, the latest first.
    places: HashMap<u32, Vec<SegmentPlace>, NumberHash>,
    /// Whether these are all that count.
    is_complete: bool,
}

impl Holders {
    /// Opens a stream to each backup that counts. Those that were started since may have forgotten what they had in memory: unless the
    /// caller has waited long enough for the others, they are enough only if no other one is there.
    ///
    /// # Errors
    /// [`NotFound`]: too few of them answer now.
    pub(super) fn open(control: &Control, row: &ReplicasRow, has_waited: bool) -> Result<Self, NotFound> {
        let members = control.metadata.members().map_err(NotFound::Metadata)?;
        let open = |&(server, file): &(u32, u64)| {
            let address = members.iter().find(|member| member.run.server == server)?.tcp;
            let migrations = control.migrations.as_ref()?;
            let purpose = Purpose::Recovery(row.server);
            let opened = peer::open(migrations.secret(), migrations.own(), (server, address), purpose);
            let opened =
                opened.inspect_err(|error| tracing::debug!(server, %error, "a backup does not answer"));
            AskedBackup::ask(server, opened.ok()?, file, row)
        };
        let all: Vec<AskedBackup> = row.backups.iter().filter_map(open).collect();
        let needed = (row.backups.len() + 1).saturating_sub(row.replicas).max(1);
        if all.len() < needed {
            return Err(NotFound::Backups(all.len(), needed));
        }
        let remember = all.iter().filter(|asked| asked.has_received).count();
        if remember < needed && !has_waited {
            let there = control.metadata.servers().map_err(NotFound::Metadata)?;
            let is_there = |server: u32| there.iter().any(|row| row.id == server);
            let is_asked = |server: u32| all.iter().any(|asked| asked.server == server);
            if row.backups.iter().any(|&(server, _)| is_there(server) && !is_asked(server)) {
                return Err(NotFound::Backups(remember, needed));
            }
        }
        let is_complete = all.len() == row.backups.len();
        let mut places: HashMap<u32, Vec<SegmentPlace>, NumberHash> = HashMap::default();
        for (holder, asked) in all.iter().enumerate() {
            for &FoundReplica { item, replica, bytes, .. } in asked.replicas.iter().rev() {
                let Item::Segment(sequence) = item else { continue };
                places.entry(sequence).or_default().push(SegmentPlace { holder, replica, bytes });
            }
        }
        // So that each begins with a different one.
        for (sequence, places) in &mut places {
            let first = *sequence as usize % places.len();
            places.rotate_left(first);
        }
        Ok(Self { all, places, is_complete })
    }

    /// Finds the log, as of the cut that is decided, or was when it was last recovered, unless it was written since.
    ///
    /// # Errors
    /// [`NotFound`]
    pub(super) fn gather(&mut self, recovery: &RecoveryRow) -> Result<(Gathered, DecidedCut), NotFound> {
        let digests: Vec<Digest> = self.all.iter().flat_map(|holder| holder.digests.clone()).collect();
        gather_for(recovery, &digests, |digest| self.copies(digest))
    }

    /// Returns what the backups have of each segment; of those that a digest has closed no more than their ends.
    fn copies(&mut self, digest: &Digest) -> Result<BTreeMap<u32, Vec<SegmentReplica>>, NotFound> {
        let is_closed = |sequence: u32| {
            let known = digest.segments.iter().find(|known| known.sequence == sequence);
            known.map_or(sequence <= digest.last, |known| known.bytes != OPEN_ENDED)
        };
        let mut copies: BTreeMap<u32, Vec<SegmentReplica>> = BTreeMap::new();
        for holder in &mut self.all {
            for replica in holder.replicas.clone() {
                let Item::Segment(sequence) = replica.item else { continue };
                let FoundReplica { class, cut, bytes, .. } = replica;
                let fragments = if is_closed(sequence) {
                    vec![(Fragment { cut, end: bytes, ..Fragment::default() }, bytes)]
                } else {
                    holder.fragments(replica.replica).ok_or(NotFound::Stream(holder.server))?
                };
                copies.entry(sequence).or_default().push(SegmentReplica { class, fragments });
            }
        }
        Ok(copies)
    }

    /// Tells all what is wanted of the log.
    pub(super) fn want(&mut self, wanted: Vec<WantedHashes>) {
        let question = ToHolder::Want(wanted);
        // If one does not answer, the reading shows it.
        self.all.iter_mut().for_each(|holder| _ = holder.send(&question));
    }

    /// Returns who has the first bytes of a segment, and in which replicas: each in the order in which they are to be asked.
    fn places_of(&self, (sequence, bytes): (u32, u32)) -> impl Iterator<Item = (usize, u64)> {
        let places = self.places.get(&sequence).into_iter().flatten();
        places.filter(move |place| place.bytes >= bytes).map(|place| (place.holder, place.replica))
    }

    /// Asks for what is wanted of segments that will be read soon, the first ones of these, so that all backups are at work.
    pub(super) fn ask_ahead<'s>(&mut self, segments: impl Iterator<Item = &'s (u32, u32)>) {
        for segment in segments.take(self.all.len() * SEGMENTS_AHEAD) {
            let Some((holder, replica)) = self.places_of(*segment).next() else { continue };
            let holder = &mut self.all[holder];
            if holder.asked.len() < SEGMENTS_AHEAD {
                // If it does not answer, the reading shows it.
                let _ = holder.ask_for(replica, segment.1);
            }
        }
    }

    /// Reads what is wanted of the first bytes of a segment from one backup after another, and hands it over until `is_sound`; returns
    /// false if nobody has them as they were written.
    ///
    /// # Errors
    /// [`NotFound`]: others that count may have them.
    pub(super) fn read(
        &mut self,
        (sequence, bytes): (u32, u32),
        mut is_sound: impl FnMut(&[u8]) -> bool,
    ) -> Result<bool, NotFound> {
        let places: Vec<(usize, u64)> = self.places_of((sequence, bytes)).collect();
        for (holder, replica) in places {
            let holder = &mut self.all[holder];
            let part = holder.read(replica, bytes).ok_or(NotFound::Stream(holder.server))?;
            if part.is_some_and(|part| is_sound(&part)) {
                return Ok(true);
            }
            tracing::warn!(server = holder.server, sequence, "a backup does not give a segment of a log");
        }
        if self.is_complete { Ok(false) } else { Err(NotFound::Damaged) }
    }
}

impl AskedBackup {
    /// Asks a backup what it has; `None` if it does not answer, or its file is another one.
    fn ask(server: u32, stream: Stream, file: u64, row: &ReplicasRow) -> Option<Self> {
        let (record, replicas, digests, asked, arrived) = Default::default();
        let has_received = false;
        let mut holder = Self { server, stream, has_received, record, replicas, digests, asked, arrived };
        let answer = holder.answer(&ToHolder::Find { log: row.log, start: row.start })?;
        let FromHolder::Found { file: found, has_received, replicas, digests } = answer else { return None };
        if found != file {
            return None;
        }
        holder.digests = digests.iter().filter_map(|digest| Digest::decode(digest).ok()).collect();
        (holder.replicas, holder.has_received) = (replicas, has_received);
        Some(holder)
    }

    fn send(&mut self, question: &ToHolder) -> Option<()> {
        let record = question.encode();
        self.stream.write_record(&(record.len() as u32).to_le_bytes(), &record).ok()
    }

    fn answer(&mut self, question: &ToHolder) -> Option<FromHolder<'_>> {
        self.send(question)?;
        self.next()
    }

    /// Asks for what is wanted of the first bytes of a replica, unless that was asked for.
    fn ask_for(&mut self, replica: u64, bytes: u32) -> Option<()> {
        if self.asked.contains(&(replica, bytes)) || self.arrived.contains_key(&replica) {
            return Some(());
        }
        self.send(&ToHolder::Read { replica, bytes })?;
        self.asked.push_back((replica, bytes));
        Some(())
    }

    fn next(&mut self) -> Option<FromHolder<'_>> {
        let patience = Duration::from_millis(REPLICAS_HELD_MS);
        self.stream.read_record(&mut self.record, patience, REPLICAS_HELD_BYTES_MAX).ok()?;
        FromHolder::decode(&self.record).ok()
    }

    fn fragments(&mut self, replica: u64) -> Option<Vec<(Fragment, u32)>> {
        let FromHolder::Fragments(all) = self.answer(&ToHolder::Fragments { replica })? else { return None };
        let fragment_of = |header: FragmentHeader| {
            let FragmentHeader { cut, before, settled, clock_ms, writes, digest, at, end, bytes } = header;
            (Fragment { cut, before, settled, clock_ms, writes, digest, at, end }, bytes)
        };
        Some(all.into_iter().map(fragment_of).collect())
    }

    /// Reads what is wanted of the first bytes of a replica, which is `None` if these are damaged; `None` if the stream has ended.
    fn read(&mut self, replica: u64, bytes: u32) -> Option<Option<Vec<u8>>> {
        self.ask_for(replica, bytes)?;
        while !self.arrived.contains_key(&replica) {
            let (next, bytes) = self.asked.pop_front()?;
            let part = self.receive(bytes)?;
            self.arrived.insert(next, part);
        }
        self.arrived.remove(&replica)
    }

    /// Receives the answer to the earliest question for a segment, which had so many bytes.
    fn receive(&mut self, of_bytes: u32) -> Option<Option<Vec<u8>>> {
        let bytes = match self.next()? {
            FromHolder::Length(bytes) if bytes <= of_bytes => bytes as usize,
            FromHolder::Damaged => return Some(None),
            _ => return None,
        };
        // No segment has more, whatever is said.
        let mut part = Vec::with_capacity(bytes.min(store::SEGMENT_BYTES_MAX));
        while part.len() < bytes {
            match self.next()? {
                FromHolder::Bytes(more) if more.is_empty() || part.len() + more.len() > bytes => return None,
                FromHolder::Bytes(more) => part.extend_from_slice(more),
                _ => return None,
            }
        }
        Some(Some(part))
    }
}
