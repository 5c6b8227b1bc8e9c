//! Messages by which a server that recovers a log fetches it from a backup, and their encoding: see *Replicas* in
//! docs/formats.md.
//!
//! ```text
//!   server ──── Ahead ────────► backup                  at a start, of its own log
//!          ◄─── Ahead ─────────
//!
//!   server ──── Find ─────────► backup, which takes nothing of that log any more
//!          ◄─── Found ─────────
//!          ──── Fragments ────►        of a segment
//!          ◄─── Fragments ─────
//!          ──── Want ─────────►        which hashes of which parts
//!          ──── Read ─────────►        of a replica
//!          ◄─── Length, Bytes, ... ──  of the entries that it wants, or Damaged
//! ```
//! Answers come in the order of the questions, over a stream opened with the cluster's secret; there is none to Want. Each is one
//! record, decoded as untrusted bytes.

use super::Item;
use super::message::{BadReplicaMessage, item_of, word_of};
use crate::fields::{Fields, NoField};

/// Bytes of a replica in [`FromHolder::Found`].
const FOUND_BYTES: usize = 4 + 8 + 1 + 8 + 4;

/// Bytes of a fragment in [`FromHolder::Fragments`].
const FRAGMENT_BYTES: usize = 4 * 8 + 5 * 4;

/// Bytes of an entry of [`ToHolder::Want`].
const WANTED_BYTES: usize = 4 + 1 + 8 + 8;

/// Hashes of a part of a log, or positions in a tagged table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WantedHashes {
    /// The number of the part in the log.
    pub part: u32,
    /// Whether they are positions of a tagged table ([`wire::position`]).
    pub is_tagged: bool,
    /// The first one.
    pub first: u64,
    /// The last one.
    pub last: u64,
}

/// A question to a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToHolder {
    /// What it has of a log. From then on it takes nothing of this log from this start, or an earlier one.
    Find {
        /// The log's random number.
        log: u64,
        /// The number of its latest start.
        start: u64,
    },
    /// Which fragments a replica of a segment has.
    Fragments {
        /// The number of the replica.
        replica: u64,
    },
    /// What the server wants of the first bytes of a segment, of a replica.
    Read {
        /// The number of the replica.
        replica: u64,
        /// How many.
        bytes: u32,
    },
    /// What the server recovers of the log, in place of what it has said before: what [`ToHolder::Read`] is answered with.
    Want(Vec<WantedHashes>),
    /// How much the backup has received of a log that its server may not have on its disk.
    Ahead {
        /// The log's random number.
        log: u64,
    },
}

/// A replica of a segment, or of digests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundReplica {
    /// What it is of.
    pub item: Item,
    /// Its number in the backup's file: later ones have higher numbers.
    pub replica: u64,
    /// Of a segment: 0 if a core writes it, else one more than the class of its survivors (`disk/src/block.rs`).
    pub class: u8,
    /// Its last cut.
    pub cut: u64,
    /// Its bytes.
    pub bytes: u32,
}

/// The header of a fragment: see `disk/src/replica.rs`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FragmentHeader {
    /// The cut that wrote it.
    pub cut: u64,
    /// The cut before.
    pub before: u64,
    /// The latest settled cut by then.
    pub settled: u64,
    /// The store's clock by then, in milliseconds.
    pub clock_ms: u64,
    /// Segments that the cut writes to.
    pub writes: u32,
    /// The latest digest by then.
    pub digest: u32,
    /// Where its bytes begin.
    pub at: u32,
    /// Where those of the cut end.
    pub end: u32,
    /// How many bytes it has.
    pub bytes: u32,
}

/// An answer of a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromHolder<'a> {
    /// What it has.
    Found {
        /// The random number of its file.
        file: u64,
        /// Whether its process has received some of this start of the log: what it was sent, and acknowledged, it has.
        has_received: bool,
        /// Each replica.
        replicas: Vec<FoundReplica>,
        /// The digests that are whole.
        digests: Vec<Vec<u8>>,
    },
    /// The fragments of a replica, from its beginning up to the first damage.
    Fragments(Vec<FragmentHeader>),
    /// A segment has so many bytes of what the server wants, header and completion records included, which follow.
    Length(u32),
    /// Some of them.
    Bytes(&'a [u8]),
    /// The replica does not have these bytes of the segment as they were written.
    Damaged,
    /// The latest cut that came to be received and not to be made stable, while the backup's process ran; 0 if there was none.
    Ahead(u64),
}

impl ToHolder {
    /// Returns the record.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Find { log, start } => [&[1][..], &log.to_le_bytes(), &start.to_le_bytes()].concat(),
            Self::Fragments { replica } => [&[2][..], &replica.to_le_bytes()].concat(),
            Self::Read { replica, bytes } => {
                [&[3][..], &replica.to_le_bytes(), &bytes.to_le_bytes()].concat()
            }
            Self::Want(wanted) => {
                let mut record = Vec::with_capacity(1 + 4 + WANTED_BYTES * wanted.len());
                record.push(4);
                record.extend((wanted.len() as u32).to_le_bytes());
                for WantedHashes { part, is_tagged, first, last } in wanted {
                    record.extend(part.to_le_bytes());
                    record.push((*is_tagged).into());
                    record.extend(first.to_le_bytes());
                    record.extend(last.to_le_bytes());
                }
                record
            }
            Self::Ahead { log } => [&[5][..], &log.to_le_bytes()].concat(),
        }
    }

    /// Decodes a record.
    ///
    /// # Errors
    /// [`BadReplicaMessage`].
    pub fn decode(record: &[u8]) -> Result<Self, BadReplicaMessage> {
        let mut fields = Fields::of(record);
        let message = match fields.byte()? {
            1 => Self::Find { log: fields.long()?, start: fields.long()? },
            2 => Self::Fragments { replica: fields.long()? },
            3 => Self::Read { replica: fields.long()?, bytes: fields.number()? },
            4 => {
                let count = fields.count(WANTED_BYTES)?;
                let wanted = (0..count).map(|_| {
                    let (part, is_tagged) = (fields.number()?, fields.flag()?);
                    Ok(WantedHashes { part, is_tagged, first: fields.long()?, last: fields.long()? })
                });
                Self::Want(wanted.collect::<Result<_, NoField>>()?)
            }
            5 => Self::Ahead { log: fields.long()? },
            _ => return Err(BadReplicaMessage),
        };
        if fields.is_empty() { Ok(message) } else { Err(BadReplicaMessage) }
    }
}

/// The length and the kind of a record of [`FromHolder::Bytes`], which so many bytes follow.
#[must_use]
pub fn bytes_head(count: usize) -> [u8; 5] {
    let [a, b, c, d] = (1 + count as u32).to_le_bytes();
    [a, b, c, d, 3]
}

impl<'a> FromHolder<'a> {
    /// Returns the record.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Found { file, has_received, replicas, digests } => {
                let mut record = vec![1];
                record.extend(file.to_le_bytes());
                record.push((*has_received).into());
                record.extend((replicas.len() as u32).to_le_bytes());
                for FoundReplica { item, replica, class, cut, bytes } in replicas {
                    record.extend(word_of(*item).to_le_bytes());
                    record.extend(replica.to_le_bytes());
                    record.push(*class);
                    record.extend(cut.to_le_bytes());
                    record.extend(bytes.to_le_bytes());
                }
                record.extend((digests.len() as u32).to_le_bytes());
                for digest in digests {
                    record.extend((digest.len() as u32).to_le_bytes());
                    record.extend_from_slice(digest);
                }
                record
            }
            Self::Fragments(fragments) => {
                let mut record = vec![2];
                record.extend((fragments.len() as u32).to_le_bytes());
                for header in fragments {
                    let FragmentHeader { cut, before, settled, clock_ms, .. } = header;
                    [cut, before, settled, clock_ms]
                        .iter()
                        .for_each(|long| record.extend(long.to_le_bytes()));
                    let FragmentHeader { writes, digest, at, end, bytes, .. } = header;
                    [writes, digest, at, end, bytes]
                        .iter()
                        .for_each(|word| record.extend(word.to_le_bytes()));
                }
                record
            }
            Self::Bytes(bytes) => [&[3][..], *bytes].concat(),
            Self::Length(bytes) => [&[4][..], &bytes.to_le_bytes()].concat(),
            Self::Damaged => vec![5],
            Self::Ahead(cut) => [&[6][..], &cut.to_le_bytes()].concat(),
        }
    }

    /// Decodes a record.
    ///
    /// # Errors
    /// [`BadReplicaMessage`].
    pub fn decode(record: &'a [u8]) -> Result<Self, BadReplicaMessage> {
        let mut fields = Fields::of(record);
        let message = match fields.byte()? {
            1 => {
                let (file, has_received) = (fields.long()?, fields.flag()?);
                let count = fields.count(FOUND_BYTES)?;
                let replicas = (0..count).map(|_| {
                    let (item, replica) = (item_of(fields.number()?), fields.long()?);
                    let class = fields.byte()?;
                    Ok(FoundReplica { item, replica, class, cut: fields.long()?, bytes: fields.number()? })
                });
                let replicas = replicas.collect::<Result<_, NoField>>()?;
                let count = fields.count(4)?;
                let digests = (0..count).map(|_| Ok(fields.blob(usize::MAX)?.to_vec()));
                let digests = digests.collect::<Result<_, NoField>>()?;
                Self::Found { file, has_received, replicas, digests }
            }
            2 => {
                let count = fields.count(FRAGMENT_BYTES)?;
                let fragments = (0..count).map(|_| {
                    Ok(FragmentHeader {
                        cut: fields.long()?,
                        before: fields.long()?,
                        settled: fields.long()?,
                        clock_ms: fields.long()?,
                        writes: fields.number()?,
                        digest: fields.number()?,
                        at: fields.number()?,
                        end: fields.number()?,
                        bytes: fields.number()?,
                    })
                });
                Self::Fragments(fragments.collect::<Result<_, NoField>>()?)
            }
            3 => Self::Bytes(fields.rest()),
            4 => Self::Length(fields.number()?),
            5 => Self::Damaged,
            6 => Self::Ahead(fields.long()?),
            _ => return Err(BadReplicaMessage),
        };
        if fields.is_empty() { Ok(message) } else { Err(BadReplicaMessage) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Item;
    use super::{FoundReplica, FragmentHeader, FromHolder, ToHolder, WantedHashes, bytes_head};

    #[test]
    fn messages_are_decoded_as_they_were_sent_and_nothing_longer_or_shorter_is() {
        let wanted = |is_tagged| WantedHashes { part: 3, is_tagged, first: 1 << 63, last: u64::MAX };
        let to_holder = [
            ToHolder::Find { log: 1 << 60, start: 3 },
            ToHolder::Ahead { log: 1 << 61 },
            ToHolder::Fragments { replica: 9 },
            ToHolder::Read { replica: 9, bytes: 1 << 23 },
            ToHolder::Want(vec![wanted(false), wanted(true)]),
            ToHolder::Want(Vec::new()),
        ];
        for message in to_holder {
            let record = message.encode();
            assert_eq!(ToHolder::decode(&record), Ok(message.clone()));
            assert!(ToHolder::decode(&record[..record.len() - 1]).is_err(), "{message:?}");
            assert!(ToHolder::decode(&[&record[..], &[0]].concat()).is_err(), "{message:?}");
        }
        let found = |item, replica| FoundReplica { item, replica, class: 2, cut: 1 << 40, bytes: 5 };
        let replicas = vec![found(Item::Segment(7), 1), found(Item::Digest, 2)];
        let from_holder = [
            FromHolder::Found {
                file: 5,
                has_received: true,
                replicas,
                digests: vec![b"some".to_vec(), Vec::new()],
            },
            FromHolder::Fragments(vec![FragmentHeader { cut: 8, bytes: 3, ..FragmentHeader::default() }; 2]),
            FromHolder::Length(1 << 23),
            FromHolder::Damaged,
            FromHolder::Ahead(1 << 40),
        ];
        for message in from_holder {
            let record = message.encode();
            assert_eq!(FromHolder::decode(&record), Ok(message.clone()));
            assert!(FromHolder::decode(&record[..record.len() - 1]).is_err(), "{message:?}");
            assert!(FromHolder::decode(&[&record[..], &[0]].concat()).is_err(), "{message:?}");
        }
        let bytes = FromHolder::Bytes(b"of a segment");
        let record = bytes.encode();
        assert_eq!(FromHolder::decode(&record), Ok(bytes));
        let length = (record.len() as u32).to_le_bytes();
        assert_eq!(bytes_head(record.len() - 1)[..], [&length[..], &record[..1]].concat());
        assert!(ToHolder::decode(&[]).is_err() && FromHolder::decode(&[9]).is_err());
    }
}
