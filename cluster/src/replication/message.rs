//! Messages between a server and a backup of its log, and their encoding: see *Replicas* in docs/formats.md.
//!
//! ```text
//!   server ──── Begin ──────────────────────────► backup        for a stream, once
//!          ◄─── Held ─────────────────────────────
//!          ──── Append, Append, ..., Receive or Flush ──►       in the order of sending
//!          ◄─── Full, of an item ─────────────────              what follows of it is dropped
//!          ◄─── Received ─────────────────────────              all up to either is in its memory
//!          ◄─── Stable ───────────────────────────              all up to a flush
//!          ──── Forget, ForgetEarlier ───────────►
//! ```
//! Only servers of a cluster receive them, over streams opened with the cluster's secret; they are still decoded as
//! untrusted bytes. Each is one record.

use super::Item;
use crate::fields::{Fields, NoField};

/// Bytes of an item that a backup has, in [`FromBackup::Held`].
const HELD_ITEM_BYTES: usize = 4 + 8 + 4;

/// A message of a server to its backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToBackup<'a> {
    /// The stream is about the log with this number.
    Begin {
        /// The log's random number.
        log: u64,
        /// The number of its writer's start: once a later one has come, earlier ones are refused.
        start: u64,
    },
    /// Bytes of an item. Those from its first one on begin a replica, whatever the backup has of it.
    Append {
        /// The item.
        item: Item,
        /// Of a segment, whether a core writes it: see `disk/src/block.rs`.
        class: u8,
        /// The bytes and their place, as a fragment of `disk/src/replica.rs`.
        fragment: &'a [u8],
    },
    /// That all before has come is to be acknowledged.
    Receive {
        /// What the acknowledgement names.
        ticket: u64,
    },
    /// The same, and all before is to be stable, and then acknowledged once more.
    Flush {
        /// What the acknowledgement names.
        ticket: u64,
    },
    /// The log needs an item no more.
    Forget {
        /// The item.
        item: Item,
    },
    /// The log needs of an item only the replica that was begun last.
    ForgetEarlier {
        /// The item.
        item: Item,
    },
}

/// What a backup has of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldItem {
    /// The item.
    pub item: Item,
    /// The last cut that it has of it.
    pub cut: u64,
    /// Its bytes, from the first one on.
    pub bytes: u32,
}

/// A message of a backup to a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromBackup {
    /// What the backup has of the log.
    Held {
        /// The random number of its file.
        file: u64,
        /// The speed of its disk in MB/s, at least 1.
        speed: u32,
        /// Each replica; of an item there may be several.
        items: Vec<HeldItem>,
    },
    /// All before this ticket is in the backup's memory, and whoever asks it for the log from now on finds it.
    Received {
        /// The ticket.
        ticket: u64,
    },
    /// All before the flush with this ticket is stable.
    Stable {
        /// The ticket.
        ticket: u64,
    },
    /// There was no room for a replica of an item.
    Full {
        /// The item.
        item: Item,
    },
    /// There is room again.
    HasRoom,
}

/// The record is outside the protocol.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BadReplicaMessage;

impl From<NoField> for BadReplicaMessage {
    fn from(NoField: NoField) -> Self {
        BadReplicaMessage
    }
}

/// Begins the record of a [`ToBackup::Append`] with room for a fragment of so many bytes, which is to follow.
#[must_use]
pub fn begin_append(item: Item, class: u8, fragment_bytes: usize) -> Vec<u8> {
    let mut record = Vec::with_capacity(2 + 4 + fragment_bytes);
    record.extend([2, class]);
    record.extend(word_of(item).to_le_bytes());
    record
}

impl ToBackup<'_> {
    /// Returns the record.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Begin { log, start } => [&[1][..], &log.to_le_bytes(), &start.to_le_bytes()].concat(),
            Self::Append { item, class, fragment } => {
                let mut record = begin_append(*item, *class, fragment.len());
                record.extend_from_slice(fragment);
                record
            }
            Self::Flush { ticket } => [&[3][..], &ticket.to_le_bytes()].concat(),
            Self::Forget { item } => [&[4][..], &word_of(*item).to_le_bytes()].concat(),
            Self::ForgetEarlier { item } => [&[5][..], &word_of(*item).to_le_bytes()].concat(),
            Self::Receive { ticket } => [&[6][..], &ticket.to_le_bytes()].concat(),
        }
    }

    /// Decodes a record. The fragment is as it came.
    ///
    /// # Errors
    /// [`BadReplicaMessage`].
    pub fn decode(record: &[u8]) -> Result<ToBackup<'_>, BadReplicaMessage> {
        let mut fields = Fields::of(record);
        let message = match fields.byte()? {
            1 => ToBackup::Begin { log: fields.long()?, start: fields.long()? },
            2 => {
                let (class, item) = (fields.byte()?, item_of(fields.number()?));
                ToBackup::Append { item, class, fragment: fields.rest() }
            }
            3 => ToBackup::Flush { ticket: fields.long()? },
            4 => ToBackup::Forget { item: item_of(fields.number()?) },
            5 => ToBackup::ForgetEarlier { item: item_of(fields.number()?) },
            6 => ToBackup::Receive { ticket: fields.long()? },
            _ => return Err(BadReplicaMessage),
        };
        if fields.is_empty() { Ok(message) } else { Err(BadReplicaMessage) }
    }
}

impl FromBackup {
    /// Returns the record.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Held { file, speed, items } => {
                let mut record = vec![1];
                record.extend(file.to_le_bytes());
                record.extend(speed.to_le_bytes());
                record.extend((items.len() as u32).to_le_bytes());
                for HeldItem { item, cut, bytes } in items {
                    record.extend(word_of(*item).to_le_bytes());
                    record.extend(cut.to_le_bytes());
                    record.extend(bytes.to_le_bytes());
                }
                record
            }
            Self::Stable { ticket } => [&[2][..], &ticket.to_le_bytes()].concat(),
            Self::Full { item } => [&[3][..], &word_of(*item).to_le_bytes()].concat(),
            Self::HasRoom => vec![4],
            Self::Received { ticket } => [&[5][..], &ticket.to_le_bytes()].concat(),
        }
    }

    /// Decodes a record.
    ///
    /// # Errors
    /// [`BadReplicaMessage`].
    pub fn decode(record: &[u8]) -> Result<Self, BadReplicaMessage> {
        let mut fields = Fields::of(record);
        let message = match fields.byte()? {
            1 => {
                let (file, speed, count) =
                    (fields.long()?, fields.number()?.max(1), fields.count(HELD_ITEM_BYTES)?);
                let held = (0..count).map(|_| {
                    let item = item_of(fields.number()?);
                    Ok(HeldItem { item, cut: fields.long()?, bytes: fields.number()? })
                });
                let items = held.collect::<Result<_, NoField>>()?;
                Self::Held { file, speed, items }
            }
            2 => Self::Stable { ticket: fields.long()? },
            3 => Self::Full { item: item_of(fields.number()?) },
            4 => Self::HasRoom,
            5 => Self::Received { ticket: fields.long()? },
            _ => return Err(BadReplicaMessage),
        };
        if fields.is_empty() { Ok(message) } else { Err(BadReplicaMessage) }
    }
}

/// An item in four bytes: a segment's number, or all ones.
pub(super) fn word_of(item: Item) -> u32 {
    match item {
        Item::Digest => u32::MAX,
        Item::Segment(number) => number,
    }
}

pub(super) fn item_of(word: u32) -> Item {
    if word == u32::MAX { Item::Digest } else { Item::Segment(word) }
}

#[cfg(test)]
mod tests {
    use super::super::Item;
    use super::{FromBackup, HeldItem, ToBackup};

    #[test]
    fn messages_are_decoded_as_they_were_sent_and_nothing_longer_or_shorter_is() {
        let item = Item::Segment(7);
        let to_backup = [
            ToBackup::Begin { log: 1 << 60, start: 7 },
            ToBackup::Flush { ticket: 9 },
            ToBackup::Receive { ticket: 10 },
            ToBackup::Forget { item },
            ToBackup::ForgetEarlier { item: Item::Digest },
        ];
        for message in to_backup {
            let record = message.encode();
            assert_eq!(ToBackup::decode(&record), Ok(message));
            assert!(ToBackup::decode(&record[..record.len() - 1]).is_err(), "{message:?}");
            assert!(ToBackup::decode(&[&record[..], &[0]].concat()).is_err(), "{message:?}");
        }
        let append = ToBackup::Append { item, class: 3, fragment: b"some" };
        assert_eq!(ToBackup::decode(&append.encode()), Ok(append));
        let held = [
            HeldItem { item, cut: 1 << 33, bytes: 5 },
            HeldItem { item: Item::Digest, cut: 2, bytes: u32::MAX },
        ];
        let from_backup = [
            FromBackup::Held { file: u64::MAX, speed: 800, items: held.to_vec() },
            FromBackup::Held { file: 3, speed: 1, items: Vec::new() },
            FromBackup::Stable { ticket: 1 << 40 },
            FromBackup::Received { ticket: 1 << 41 },
            FromBackup::Full { item },
            FromBackup::HasRoom,
        ];
        for message in from_backup {
            let record = message.encode();
            assert_eq!(FromBackup::decode(&record), Ok(message.clone()));
            assert!(FromBackup::decode(&record[..record.len() - 1]).is_err(), "{message:?}");
            assert!(FromBackup::decode(&[&record[..], &[0]].concat()).is_err(), "{message:?}");
        }
        // A count of more than there is.
        let mut record = FromBackup::Held { file: 3, speed: 1, items: Vec::new() }.encode();
        let count = record.len() - 4;
        record[count..].fill(0xff);
        assert!(FromBackup::decode(&record).is_err());
        assert!(ToBackup::decode(&[]).is_err() && FromBackup::decode(&[9]).is_err());
    }
}
