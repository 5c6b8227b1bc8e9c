//! What a client wants committed as one: objects with the versions that it read, ranges that it scanned, and writes.
//!
//! A borrowed list that is checked once, when it is decoded; a caller that builds a request lends slices instead, as with
//! [`crate::Keys`].

use core::ops::Range;

use super::range::{KeyRange, ScanHead};
use super::{at_most, within};
use crate::limits::{
    COMMIT_RANGES_MAX, COMMIT_READS_MAX, COMMIT_WRITES_MAX, KEY_BYTES_MAX, STREAM_BODY_BYTES_MAX, TTL_MS_MAX,
    VALUE_BYTES_MAX,
};
use crate::status::Status;

/// An object that was read: its key still has this version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CommitRead<'a> {
    /// The table's id.
    pub table: u32,
    /// The object's key.
    pub key: &'a [u8],
    /// The version that was read, 0 if there was no object.
    pub version: u64,
}

/// A range that was scanned: it has no keys but those of its reads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CommitRange<'a> {
    /// The table's id, of an ordered table.
    pub table: u32,
    /// The range; its hashes are `None`.
    pub range: KeyRange<'a>,
    /// The last key that was examined, if the scan ended before the range did.
    pub until: Option<&'a [u8]>,
    /// The reads of its keys, by their places among all reads, in the order in which the scan met them. Each read is of one range at
    /// most, and those of a range are behind those of the range before.
    pub reads: Range<u16>,
}

/// A write: of a value, or a removal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CommitWrite<'a> {
    /// The table's id.
    pub table: u32,
    /// The object's key.
    pub key: &'a [u8],
    /// The new value; `None` removes the object.
    pub value: Option<&'a [u8]>,
    /// The time to live in milliseconds from the commit on, from 1 to [`TTL_MS_MAX`]; `None` for ever. Without a meaning for a
    /// removal.
    pub ttl_ms: Option<u64>,
}

/// See the module's head.
#[derive(Clone, Copy, Debug)]
pub struct Changes<'a> {
    form: ItemsForm<'a>,
}

/// Two are equal if they have the same items, in either form.
impl PartialEq for Changes<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.counts() == other.counts() && self.items().eq(other.items())
    }
}

impl Eq for Changes<'_> {}

#[derive(Clone, Copy, Debug)]
enum ItemsForm<'a> {
    /// Numbers of reads, ranges and writes, and the items; checked.
    Encoded { counts: [u16; 3], bytes: &'a [u8] },
    /// The caller's own lists.
    Listed { reads: &'a [CommitRead<'a>], ranges: &'a [CommitRange<'a>], writes: &'a [CommitWrite<'a>] },
}

/// An item, in the order of the body.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CommitItem<'a> {
    /// The reads come first.
    Read(CommitRead<'a>),
    /// Then the ranges.
    Range(CommitRange<'a>),
    /// Then the writes.
    Write(CommitWrite<'a>),
}

/// Bytes of the numbers of items.
const COUNTS_BYTES: usize = 8;
const READ_HEAD_BYTES: usize = 14;
const RANGE_HEAD_BYTES: usize = 12;
const WRITE_HEAD_BYTES: usize = 12;
const TTL_BYTES: usize = 8;
/// Kinds of writes.
const PUT: u8 = 1;
const PUT_FOR: u8 = 2;
const REMOVE: u8 = 3;

impl<'a> Changes<'a> {
    /// Lends lists to a request.
    #[must_use]
    pub const fn listed(
        reads: &'a [CommitRead<'a>],
        ranges: &'a [CommitRange<'a>],
        writes: &'a [CommitWrite<'a>],
    ) -> Self {
        Self { form: ItemsForm::Listed { reads, ranges, writes } }
    }

    /// Checks a body, each item within the limits. Cost: one step per item.
    ///
    /// # Errors
    /// As [`Changes::check`], or [`Status::Malformed`].
    pub fn decode(body: &'a [u8]) -> Result<Self, Status> {
        let (head, bytes) = body.split_first_chunk::<COUNTS_BYTES>().ok_or(Status::Malformed)?;
        let counts = [0, 2, 4].map(|at| u16::from_le_bytes([head[at], head[at + 1]]));
        if head[6] | head[7] != 0 {
            return Err(Status::Malformed);
        }
        check_counts(counts.map(usize::from))?;
        let (mut items, mut behind) = (Items { left: counts, bytes, lists: None }, 0);
        for _ in 0..counts.iter().map(|count| u32::from(*count)).sum() {
            items.decode_next()?.check(counts[0], &mut behind)?;
        }
        if items.bytes.is_empty() {
            Ok(Self { form: ItemsForm::Encoded { counts, bytes } })
        } else {
            Err(Status::Malformed)
        }
    }

    /// Returns the items, in the order of the body.
    #[must_use]
    pub fn items(&self) -> Items<'a> {
        match self.form {
            ItemsForm::Encoded { counts, bytes } => Items { left: counts, bytes, lists: None },
            ItemsForm::Listed { reads, ranges, writes } => Items {
                left: [reads.len(), ranges.len(), writes.len()].map(|count| count as u16),
                bytes: &[],
                lists: Some((reads, ranges, writes)),
            },
        }
    }

    /// Returns the numbers of reads, ranges and writes.
    #[must_use]
    pub fn counts(&self) -> [usize; 3] {
        match self.form {
            ItemsForm::Encoded { counts, .. } => counts.map(usize::from),
            ItemsForm::Listed { reads, ranges, writes } => [reads.len(), ranges.len(), writes.len()],
        }
    }

    /// Returns the table and the key of the first item, by which the request is routed; of a range the lower bound or the prefix.
    #[must_use]
    pub fn first(&self) -> Option<(u32, &'a [u8])> {
        Some(match self.items().next()? {
            CommitItem::Read(CommitRead { table, key, .. })
            | CommitItem::Write(CommitWrite { table, key, .. }) => (table, key),
            CommitItem::Range(CommitRange { table, range, .. }) => (table, range.prefix.max(range.from)),
        })
    }

    /// Checks the items against the protocol's limits.
    ///
    /// # Errors
    /// [`Status::Malformed`] without an item, or if a range names reads that there are not; [`Status::LimitExceeded`];
    /// [`Status::KeyTooLarge`], [`Status::ValueTooLarge`]; [`Status::OutOfRange`] of a time.
    pub(super) fn check(&self) -> Result<(), Status> {
        let counts = self.counts();
        check_counts(counts)?;
        let mut behind = 0;
        self.items().try_for_each(|item| item.check(counts[0] as u16, &mut behind))?;
        if self.encoded_bytes() <= STREAM_BODY_BYTES_MAX { Ok(()) } else { Err(Status::LimitExceeded) }
    }

    pub(super) fn encoded_bytes(&self) -> usize {
        COUNTS_BYTES
            + match self.form {
                ItemsForm::Encoded { bytes, .. } => bytes.len(),
                ItemsForm::Listed { .. } => self.items().map(|item| item.encoded_bytes()).sum(),
            }
    }

    pub(super) fn encode(&self, body: &mut [u8]) {
        let (head, mut rest) = body.split_at_mut(COUNTS_BYTES);
        for (place, count) in head.chunks_exact_mut(2).zip(self.counts()) {
            place.copy_from_slice(&(count as u16).to_le_bytes());
        }
        head[6..].copy_from_slice(&[0; 2]);
        if let ItemsForm::Encoded { bytes, .. } = self.form {
            return rest.copy_from_slice(bytes);
        }
        for item in self.items() {
            rest = item.encode(rest);
        }
    }
}

fn check_counts([reads, ranges, writes]: [usize; 3]) -> Result<(), Status> {
    let walked = ranges * writes;
    if reads > COMMIT_READS_MAX || ranges > COMMIT_RANGES_MAX || writes.max(walked) > COMMIT_WRITES_MAX {
        return Err(Status::LimitExceeded);
    }
    if reads + ranges + writes > 0 { Ok(()) } else { Err(Status::Malformed) }
}

/// Lists of a caller.
type Lists<'a> = (&'a [CommitRead<'a>], &'a [CommitRange<'a>], &'a [CommitWrite<'a>]);

/// Iterates over the items.
#[derive(Clone, Debug)]
pub struct Items<'a> {
    left: [u16; 3],
    bytes: &'a [u8],
    lists: Option<Lists<'a>>,
}

impl<'a> Items<'a> {
    /// Decodes the next one; there is one.
    fn decode_next(&mut self) -> Result<CommitItem<'a>, Status> {
        let kind = self.left.iter().position(|left| *left > 0).ok_or(Status::Malformed)?;
        self.left[kind] -= 1;
        let (item, rest) = match kind {
            0 => decode_read(self.bytes)?,
            1 => decode_range(self.bytes)?,
            _ => decode_write(self.bytes)?,
        };
        self.bytes = rest;
        Ok(item)
    }

    fn next_listed(&mut self, (reads, ranges, writes): Lists<'a>) -> Option<CommitItem<'a>> {
        let (item, lists) = match (reads, ranges, writes) {
            ([read, reads @ ..], ..) => (CommitItem::Read(*read), (reads, ranges, writes)),
            (_, [range, ranges @ ..], _) => (CommitItem::Range(range.clone()), (reads, ranges, writes)),
            (.., [write, writes @ ..]) => (CommitItem::Write(*write), (reads, ranges, writes)),
            _ => return None,
        };
        self.lists = Some(lists);
        Some(item)
    }
}

impl<'a> Iterator for Items<'a> {
    type Item = CommitItem<'a>;

    fn next(&mut self) -> Option<CommitItem<'a>> {
        match self.lists {
            Some(lists) => self.next_listed(lists),
            // All were decoded before, so the last one is followed by nothing.
            None => self.decode_next().ok(),
        }
    }
}

impl<'a> CommitItem<'a> {
    /// Checks it; there are so many reads, of which those of earlier ranges end `behind` so many.
    fn check(&self, reads: u16, behind: &mut u16) -> Result<(), Status> {
        match self {
            Self::Read(read) => at_most(read.key, KEY_BYTES_MAX, Status::KeyTooLarge),
            Self::Range(CommitRange { range, until, reads: own, .. }) => {
                range.check()?;
                at_most(until.unwrap_or_default(), KEY_BYTES_MAX, Status::KeyTooLarge)?;
                let is_behind = (*behind..=own.end).contains(&own.start) && own.end <= reads;
                *behind = own.end;
                if is_behind && range.hashes.is_none() { Ok(()) } else { Err(Status::Malformed) }
            }
            Self::Write(CommitWrite { key, value, ttl_ms, .. }) => {
                at_most(key, KEY_BYTES_MAX, Status::KeyTooLarge)?;
                at_most(value.unwrap_or_default(), VALUE_BYTES_MAX, Status::ValueTooLarge)?;
                value.and(*ttl_ms).map_or(Ok(()), |ttl_ms| within(ttl_ms, TTL_MS_MAX))
            }
        }
    }

    fn encoded_bytes(&self) -> usize {
        match self {
            Self::Read(read) => READ_HEAD_BYTES + read.key.len(),
            Self::Range(CommitRange { range, until, .. }) => {
                RANGE_HEAD_BYTES + ScanHead::BYTES + range.bytes() + until.map_or(0, <[u8]>::len)
            }
            Self::Write(CommitWrite { key, value, ttl_ms, .. }) => {
                let ttl = if value.and(*ttl_ms).is_some() { TTL_BYTES } else { 0 };
                WRITE_HEAD_BYTES + ttl + key.len() + value.map_or(0, <[u8]>::len)
            }
        }
    }

    /// Writes it to the beginning of `body`; returns the rest.
    fn encode<'b>(&self, body: &'b mut [u8]) -> &'b mut [u8] {
        match self {
            Self::Read(CommitRead { table, key, version }) => {
                let (head, rest) = body.split_at_mut(READ_HEAD_BYTES);
                head[..4].copy_from_slice(&table.to_le_bytes());
                head[4..12].copy_from_slice(&version.to_le_bytes());
                head[12..].copy_from_slice(&(key.len() as u16).to_le_bytes());
                put(rest, key)
            }
            Self::Range(CommitRange { table, range, until, reads }) => {
                let (head, rest) = body.split_at_mut(RANGE_HEAD_BYTES);
                let until_bytes = until.unwrap_or_default();
                head[..4].copy_from_slice(&table.to_le_bytes());
                head[4..6].copy_from_slice(&reads.start.to_le_bytes());
                head[6..8].copy_from_slice(&reads.end.to_le_bytes());
                head[8..10].copy_from_slice(&(until_bytes.len() as u16).to_le_bytes());
                head[10..].copy_from_slice(&[u8::from(until.is_some()), 0]);
                let scan = ScanHead { range: *range, keys_only: false, objects_max: 0, bytes_max: 0 };
                put(scan.encode(rest), until_bytes)
            }
            Self::Write(CommitWrite { table, key, value, ttl_ms }) => {
                let (head, mut rest) = body.split_at_mut(WRITE_HEAD_BYTES);
                let kind = match (value, ttl_ms) {
                    (None, _) => REMOVE,
                    (_, None) => PUT,
                    (_, Some(_)) => PUT_FOR,
                };
                head[..4].copy_from_slice(&table.to_le_bytes());
                head[4..6].copy_from_slice(&(key.len() as u16).to_le_bytes());
                head[6..8].copy_from_slice(&[kind, 0]);
                head[8..].copy_from_slice(&(value.map_or(0, <[u8]>::len) as u32).to_le_bytes());
                if let Some(ttl_ms) = value.and(*ttl_ms) {
                    rest = put(rest, &ttl_ms.to_le_bytes());
                }
                put(put(rest, key), value.unwrap_or_default())
            }
        }
    }
}

fn put<'b>(body: &'b mut [u8], bytes: &[u8]) -> &'b mut [u8] {
    let (place, rest) = body.split_at_mut(bytes.len());
    place.copy_from_slice(bytes);
    rest
}

/// An item and what is behind it.
type Decoded<'a> = Result<(CommitItem<'a>, &'a [u8]), Status>;

fn decode_read(bytes: &[u8]) -> Decoded<'_> {
    let (head, rest) = bytes.split_first_chunk::<READ_HEAD_BYTES>().ok_or(Status::Malformed)?;
    let (table, behind) = split_number(head)?;
    let version = behind.first_chunk().map(|bytes| u64::from_le_bytes(*bytes)).ok_or(Status::Malformed)?;
    let (key, rest) = take(rest, [head[12], head[13]])?;
    Ok((CommitItem::Read(CommitRead { table, key, version }), rest))
}

fn decode_range(bytes: &[u8]) -> Decoded<'_> {
    let (head, rest) = bytes.split_first_chunk::<RANGE_HEAD_BYTES>().ok_or(Status::Malformed)?;
    let (table, _) = split_number(head)?;
    let short = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
    let (scan, rest) = ScanHead::decode(rest)?;
    let (until, rest) = take(rest, [head[8], head[9]])?;
    let is_plain = !scan.keys_only && scan.objects_max == 0 && scan.bytes_max == 0;
    let until = match head[10] {
        0 if until.is_empty() => None,
        1 => Some(until),
        _ => return Err(Status::Malformed),
    };
    if head[11] != 0 || !is_plain {
        return Err(Status::Malformed);
    }
    Ok((CommitItem::Range(CommitRange { table, range: scan.range, until, reads: short(4)..short(6) }), rest))
}

fn decode_write(bytes: &[u8]) -> Decoded<'_> {
    let (head, rest) = bytes.split_first_chunk::<WRITE_HEAD_BYTES>().ok_or(Status::Malformed)?;
    let (table, _) = split_number(head)?;
    let value_bytes = u32::from_le_bytes([head[8], head[9], head[10], head[11]]) as usize;
    let (ttl_ms, rest) = match head[6] {
        PUT_FOR => {
            let (ttl_ms, rest) = rest.split_first_chunk().ok_or(Status::Malformed)?;
            (Some(u64::from_le_bytes(*ttl_ms)), rest)
        }
        PUT => (None, rest),
        REMOVE if value_bytes == 0 => (None, rest),
        _ => return Err(Status::Malformed),
    };
    let (key, rest) = take(rest, [head[4], head[5]])?;
    let (value, rest) = rest.split_at_checked(value_bytes).ok_or(Status::Malformed)?;
    let value = (head[6] != REMOVE).then_some(value);
    if head[7] != 0 {
        return Err(Status::Malformed);
    }
    Ok((CommitItem::Write(CommitWrite { table, key, value, ttl_ms }), rest))
}

fn split_number(bytes: &[u8]) -> Result<(u32, &[u8]), Status> {
    let (number, rest) = bytes.split_first_chunk().ok_or(Status::Malformed)?;
    Ok((u32::from_le_bytes(*number), rest))
}

/// Splits off so many bytes.
fn take(bytes: &[u8], length: [u8; 2]) -> Result<(&[u8], &[u8]), Status> {
    bytes.split_at_checked(u16::from_le_bytes(length).into()).ok_or(Status::Malformed)
}
