//! Finds a log among its replicas: which segments it has, and up to where each counts.
//!
//! Cuts are sent one behind another, and each backup is a part of them ahead of others. So a part says which cut came
//! before its own, how many parts that has, and which cut was settled by then. What was settled is at enough backups, as long
//! as enough of them are asked; behind that the cuts of which all parts are found count, in order, up to the first one that
//! lacks anything. So each cut that was ever acknowledged counts, and a whole number of them.
//!
//! ```text
//!   newest digest ──► latest settled cut ──► whole cuts behind it, without a gap ──► bytes of each open-ended segment
//! ```

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;

use cluster::metadata::{DecidedCut, RecoveryRow};
use disk::{Digest, Fragment, OPEN_ENDED};

use crate::durability::log_reader::{follows, leave_out_survivors};
use crate::durability::log_writer::Segment;
use crate::limits::LATER_START_CUTS;

/// What one replica has of a segment: its bytes from the beginning on.
#[derive(Clone, Debug, Default)]
pub struct SegmentReplica {
    /// See [`disk::Trailer::class`].
    pub class: u8,
    /// Its fragments in order, each with the number of its bytes.
    pub fragments: Vec<(Fragment, u32)>,
}

impl SegmentReplica {
    fn bytes(&self) -> u32 {
        self.fragments.last().map_or(0, |(fragment, bytes)| fragment.at + bytes)
    }
}

/// A log as its replicas have it.
#[derive(Debug)]
pub struct Gathered {
    /// The newest digest.
    pub digest: Digest,
    /// The latest cut that counts.
    pub cut: u64,
    /// Whether the log's own disk has all of it for certain.
    pub is_on_own_disk: bool,
    /// The latest time of the store's clock, in milliseconds.
    pub clock_ms: u64,
    /// The bytes of each segment that count.
    pub segments: BTreeMap<u32, u32>,
    /// See [`Digest::left_out`].
    pub left_out: Vec<(u32, Vec<u32>)>,
}

/// The reason why a log cannot be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GatherError {
    /// No replica has a digest.
    NoDigest,
    /// So many bytes of a segment are missing behind those that are there: more backups are needed.
    Missing {
        /// The number of the segment.
        sequence: u32,
        /// The bytes that are there.
        bytes: u32,
        /// The bytes that should be there.
        of_bytes: u32,
    },
    /// The log was decided to count up to a cut that is not whole here.
    LacksCut {
        /// The decided cut.
        decided: u64,
        /// The latest one that is whole.
        whole: u64,
    },
}

impl fmt::Display for GatherError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoDigest => formatter.write_str("no backup has a digest of the log"),
            Self::Missing { sequence, bytes, of_bytes } => {
                write!(formatter, "the backups have {bytes} of {of_bytes} bytes of segment {sequence}")
            }
            Self::LacksCut { decided, whole } => {
                write!(formatter, "the backups have all up to cut {whole}, and cut {decided} was decided")
            }
        }
    }
}

impl std::error::Error for GatherError {}

/// Returns the newest of digests.
#[must_use]
pub fn newest(digests: impl IntoIterator<Item = Digest>) -> Option<Digest> {
    let newer = |one: Digest, other: Digest| if follows(other.number, one.number) { other } else { one };
    digests.into_iter().reduce(newer)
}

/// Finds the log that is recovered: as of the cut that is decided, or was when it was last recovered, unless another start wrote it
/// since; returns what may be decided. `copies` are read by a digest.
///
/// # Errors
/// [`GatherError`], or that of `copies`.
pub fn gather_for<E: From<GatherError>>(
    recovery: &RecoveryRow,
    digests: &[Digest],
    mut copies: impl FnMut(&Digest) -> Result<BTreeMap<u32, Vec<SegmentReplica>>, E>,
) -> Result<(Gathered, DecidedCut), E> {
    let latest = newest(digests.iter().cloned()).ok_or(GatherError::NoDigest)?;
    let earlier = recovery.replicas.decided.filter(|earlier| earlier.start == latest.start);
    let mut gather_as = |known: Option<DecidedCut>| -> Result<(Gathered, DecidedCut), E> {
        // A later start may have fixed more in its digest than was decided.
        let start = known.map_or(latest.start, |known| known.start);
        let of_start: Vec<Digest> = digests.iter().filter(|digest| digest.start == start).cloned().collect();
        let lacks = |decided: DecidedCut| GatherError::LacksCut { decided: decided.cut, whole: 0 };
        let Some(digest) = newest(of_start.iter().cloned()) else {
            return Err(known.map_or(GatherError::NoDigest, lacks).into());
        };
        let found = gather(of_start, &copies(&digest)?, known.map(|known| known.cut))?;
        let Gathered { cut, is_on_own_disk, .. } = found;
        Ok((found, known.unwrap_or(DecidedCut { start, cut, is_on_own_disk })))
    };
    let known = recovery.decided.or(earlier);
    if recovery.decided.is_none() || recovery.is_in_use {
        return gather_as(known);
    }
    // If a backup that had the rest does not answer: nobody has been told of that cut yet.
    gather_as(known).or_else(|_| gather_as(None))
}

/// Finds the log of which replicas have these digests, and these copies of segments; as of this cut, if that is `decided`.
///
/// # Errors
/// [`GatherError`]: too few replicas are here.
pub fn gather(
    digests: impl IntoIterator<Item = Digest>,
    copies: &BTreeMap<u32, Vec<SegmentReplica>>,
    decided: Option<u64>,
) -> Result<Gathered, GatherError> {
    let digest = newest(digests).ok_or(GatherError::NoDigest)?;
    let reach = |sequence: u32| {
        copies.get(&sequence).into_iter().flatten().map(SegmentReplica::bytes).max().unwrap_or(0)
    };
    let mut segments: BTreeMap<u32, Segment> = BTreeMap::new();
    for known in &digest.segments {
        let segment = Segment { frames: Vec::new(), bytes: known.bytes, class: known.class };
        segments.insert(known.sequence, segment);
    }
    // Opened behind the digest.
    for (&sequence, copies) in copies.range(digest.last.saturating_add(1)..) {
        let class = copies.first().map_or(0, |copy| copy.class);
        segments.entry(sequence).or_insert(Segment { frames: Vec::new(), bytes: OPEN_ENDED, class });
    }
    let open: Vec<u32> = segments
        .iter()
        .filter(|(_, segment)| segment.bytes == OPEN_ENDED)
        .map(|(&sequence, _)| sequence)
        .collect();
    let parts_of = |sequence: u32| {
        let copies = copies.get(&sequence).into_iter().flatten();
        copies.flat_map(move |copy| copy.fragments.iter().map(move |(fragment, _)| (sequence, *fragment)))
    };
    // What a later start has copied says nothing of the cuts of this one.
    let is_of_this = |part: &Fragment| part.cut < digest.cut.saturating_add(LATER_START_CUTS);
    let parts: Vec<(u32, Fragment)> =
        open.iter().flat_map(|&sequence| parts_of(sequence)).filter(|(_, part)| is_of_this(part)).collect();
    let settled = parts.iter().map(|(_, part)| part.settled).max().unwrap_or(0).max(digest.cut);
    let whole = latest_whole(&parts, settled, (&digest, &reach));
    let cut = match decided {
        Some(decided) if whole < decided => return Err(GatherError::LacksCut { decided, whole }),
        Some(decided) => decided,
        None => whole,
    };
    for sequence in open {
        let counting = parts.iter().filter(|(of, part)| *of == sequence && part.cut <= cut);
        let bytes = counting.map(|(_, part)| part.end).max().unwrap_or(0);
        segments.get_mut(&sequence).expect("it is open").bytes = bytes;
    }
    let mut left_out = digest.left_out.clone();
    for (&sequence, segment) in &mut segments {
        let bytes = reach(sequence);
        if bytes < segment.bytes {
            return Err(GatherError::Missing { sequence, bytes, of_bytes: segment.bytes });
        }
        leave_out_survivors(sequence, segment, &digest, &mut left_out);
    }
    segments.retain(|_, segment| segment.bytes > 0);
    left_out.retain(|(_, sources)| sources.iter().any(|source| segments.contains_key(source)));
    let counting = parts.iter().filter(|(_, part)| part.cut <= cut);
    let clock_ms = counting.map(|(_, part)| part.clock_ms).max().unwrap_or(0).max(digest.clock_ms);
    let segments = segments.into_iter().map(|(sequence, segment)| (sequence, segment.bytes)).collect();
    Ok(Gathered { digest, cut, is_on_own_disk: cut <= settled, clock_ms, segments, left_out })
}

/// Returns the latest cut up to which nothing is missing.
fn latest_whole(
    parts: &[(u32, Fragment)],
    settled: u64,
    (digest, reach): (&Digest, &dyn Fn(u32) -> u32),
) -> u64 {
    // One part for each segment, whatever pieces of it the replicas have.
    let mut cuts: BTreeMap<u64, BTreeMap<u32, Fragment>> = BTreeMap::new();
    for (sequence, part) in parts.iter().filter(|(_, part)| part.cut > settled) {
        cuts.entry(part.cut).or_default().insert(*sequence, *part);
    }
    let mut latest = settled;
    for (number, parts) in cuts {
        let is_there = |(sequence, part): (&u32, &Fragment)| {
            let follows_what_counts = part.before <= latest && !follows(part.digest, digest.number);
            follows_what_counts && part.writes as usize == parts.len() && reach(*sequence) >= part.end
        };
        if !parts.iter().all(is_there) {
            break;
        }
        latest = number;
    }
    latest
}
