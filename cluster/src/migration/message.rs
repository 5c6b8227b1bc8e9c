//! The messages between source and target of a migration, and their encoding: kind u8, then fields, little-endian.
//!
//! Only servers of a cluster receive them, over streams opened with the cluster's secret; they are still decoded as
//! untrusted bytes. Objects are encoded as in a pull (`docs/formats.md`), and the receiving store checks them.

use crate::fields::{Fields, NoField};
use crate::limits::{COPIED_SPANS_MAX, MIGRATION_MESSAGE_BYTES_MAX, PRIORITY_PULL_HASHES};

/// The two hashes of the last handled object, from which a pull continues.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct PullCursor {
    /// The hash of the key.
    pub hash: u64,
    /// The second hash, which distinguishes keys with the same hash.
    pub second: u64,
}

/// A span from one position to another, both included.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PullSpan {
    /// The first position.
    pub first: PullCursor,
    /// The last position.
    pub last: PullCursor,
}

/// The remaining data after a piece.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Left {
    /// More than should be sent while no server serves.
    Much = 0,
    /// Little, or no longer shrinking: the target may take over.
    Little = 1,
    /// Nothing: the source has been cut.
    Nothing = 2,
}

/// A piece of a source's copies to its target while it keeps serving: spans of hashes, and all objects in them. An
/// object that the target has in a span and the piece does not contain was removed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Copied {
    /// The number of the piece, from 0; pieces are stored in this order.
    pub number: u32,
    /// The remaining data after it.
    pub left: Left,
    /// Whether the target may already have objects in these spans.
    pub is_again: bool,
    /// At most [`COPIED_SPANS_MAX`].
    pub spans: Vec<PullSpan>,
    /// The encoded objects.
    pub objects: Vec<u8>,
}

/// A message between the two sides of a migration.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Message {
    /// To the source: a migration is about to begin.
    Prepare,
    /// To the target: the number of objects to come.
    Prepared {
        /// Their approximate number.
        objects: u64,
    },
    /// To the source: the phase in the records is `moving`.
    HandOver,
    /// To the target: writes here have stopped.
    HandedOver {
        /// No object has or had a higher version.
        ceiling: u64,
    },
    /// To the source: a request for objects, in the order of their hashes.
    Pull {
        /// The partition.
        partition: u8,
        /// The number of the pull within its partition.
        number: u32,
        /// The position to continue after; `None` for the first hash.
        from: Option<PullCursor>,
    },
    /// To the target: the objects of a pull.
    Pulled {
        /// The requested partition.
        partition: u8,
        /// The number of the pull.
        number: u32,
        /// Where the next pull continues; `None` at the end.
        next: Option<PullCursor>,
        /// The encoded objects.
        objects: Vec<u8>,
    },
    /// To the source: a request for all objects of these hashes.
    PriorityPull {
        /// The number of the pull.
        number: u32,
        /// At most [`PRIORITY_PULL_HASHES`].
        hashes: Vec<u64>,
    },
    /// To the target: the objects of a priority pull.
    PriorityPulled {
        /// The number of the pull.
        number: u32,
        /// The number of answered hashes, the first ones of the request; all their objects are included.
        count: u32,
        /// The encoded objects.
        objects: Vec<u8>,
    },
    /// To the source: everything has arrived; discard the objects.
    Discard,
    /// To the target: the objects are discarded.
    Discarded,
    /// To the source: the target's writes, after an abort.
    GiveBack {
        /// The number of the piece, from 0.
        number: u32,
        /// Whether it is the last piece.
        is_last: bool,
        /// No object has or had a higher version at the target.
        ceiling: u64,
        /// The written objects.
        objects: Vec<u8>,
        /// The removed keys, by their two hashes.
        removed: Vec<PullCursor>,
    },
    /// To the target: a returned piece is stored.
    TakenBack {
        /// The number of the piece.
        number: u32,
    },
    /// To the source: send copies while you keep serving.
    Copy,
    /// To the target: a copied piece.
    Copied(Copied),
    /// To the source: the number of stored pieces.
    Stored {
        /// The count of pieces from the first on.
        count: u32,
    },
    /// To either: the sender is alive and has nothing else to send.
    Alive,
}

/// The bytes are not a valid message.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BadMessage;

impl From<NoField> for BadMessage {
    fn from(NoField: NoField) -> Self {
        BadMessage
    }
}

impl Message {
    /// Encodes the message.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let (mut bytes, objects) = self.split();
        bytes.extend(objects);
        bytes
    }

    /// Encodes the message in two parts, so that objects need not be copied.
    #[must_use]
    pub fn split(&self) -> (Vec<u8>, &[u8]) {
        let mut out = vec![self.kind()];
        let mut behind: &[u8] = &[];
        match self {
            Message::Prepare
            | Message::HandOver
            | Message::Discard
            | Message::Discarded
            | Message::Copy
            | Message::Alive => {}
            Message::Prepared { objects: number } | Message::HandedOver { ceiling: number } => {
                out.extend(number.to_le_bytes());
            }
            Message::Pull { partition, number, from } => {
                out.push(*partition);
                out.extend(number.to_le_bytes());
                put_place(&mut out, *from);
            }
            Message::Pulled { partition, number, next, objects } => {
                out.push(*partition);
                out.extend(number.to_le_bytes());
                put_place(&mut out, *next);
                behind = objects;
            }
            Message::PriorityPull { number, hashes } => {
                out.extend(number.to_le_bytes());
                out.extend((hashes.len() as u32).to_le_bytes());
                hashes.iter().for_each(|hash| out.extend(hash.to_le_bytes()));
            }
            Message::PriorityPulled { number, count, objects } => {
                out.extend(number.to_le_bytes());
                out.extend(count.to_le_bytes());
                behind = objects;
            }
            Message::GiveBack { number, is_last, ceiling, objects, removed } => {
                out.extend(number.to_le_bytes());
                out.push(u8::from(*is_last));
                out.extend(ceiling.to_le_bytes());
                out.extend((removed.len() as u32).to_le_bytes());
                for place in removed {
                    out.extend(place.hash.to_le_bytes());
                    out.extend(place.second.to_le_bytes());
                }
                behind = objects;
            }
            Message::TakenBack { number } | Message::Stored { count: number } => {
                out.extend(number.to_le_bytes());
            }
            Message::Copied(piece) => {
                piece.encode(&mut out);
                behind = &piece.objects;
            }
        }
        (out, behind)
    }

    /// Decodes a message.
    ///
    /// # Errors
    /// For all invalid bytes.
    pub fn decode(bytes: &[u8]) -> Result<Message, BadMessage> {
        if bytes.len() > MIGRATION_MESSAGE_BYTES_MAX {
            return Err(BadMessage);
        }
        let mut fields = Fields::of(bytes);
        let message = match fields.byte()? {
            1 => Message::Prepare,
            2 => Message::Prepared { objects: fields.long()? },
            3 => Message::HandOver,
            4 => Message::HandedOver { ceiling: fields.long()? },
            5 => Message::Pull {
                partition: fields.byte()?,
                number: fields.number()?,
                from: maybe_place(&mut fields)?,
            },
            6 => Message::Pulled {
                partition: fields.byte()?,
                number: fields.number()?,
                next: maybe_place(&mut fields)?,
                objects: fields.rest().to_vec(),
            },
            7 => priority_pull(&mut fields)?,
            8 => Message::PriorityPulled {
                number: fields.number()?,
                count: fields.number()?,
                objects: fields.rest().to_vec(),
            },
            9 => Message::Discard,
            10 => Message::Discarded,
            11 => give_back(&mut fields)?,
            12 => Message::TakenBack { number: fields.number()? },
            13 => Message::Copy,
            14 => Message::Copied(Copied::read(&mut fields)?),
            15 => Message::Stored { count: fields.number()? },
            16 => Message::Alive,
            _ => return Err(BadMessage),
        };
        if fields.is_empty() { Ok(message) } else { Err(BadMessage) }
    }

    fn kind(&self) -> u8 {
        match self {
            Message::Prepare => 1,
            Message::Prepared { .. } => 2,
            Message::HandOver => 3,
            Message::HandedOver { .. } => 4,
            Message::Pull { .. } => 5,
            Message::Pulled { .. } => 6,
            Message::PriorityPull { .. } => 7,
            Message::PriorityPulled { .. } => 8,
            Message::Discard => 9,
            Message::Discarded => 10,
            Message::GiveBack { .. } => 11,
            Message::TakenBack { .. } => 12,
            Message::Copy => 13,
            Message::Copied(_) => 14,
            Message::Stored { .. } => 15,
            Message::Alive => 16,
        }
    }
}

fn put_place(out: &mut Vec<u8>, place: Option<PullCursor>) {
    out.push(u8::from(place.is_some()));
    if let Some(PullCursor { hash, second }) = place {
        out.extend(hash.to_le_bytes());
        out.extend(second.to_le_bytes());
    }
}

fn place(fields: &mut Fields<'_>) -> Result<PullCursor, NoField> {
    Ok(PullCursor { hash: fields.long()?, second: fields.long()? })
}

fn maybe_place(fields: &mut Fields<'_>) -> Result<Option<PullCursor>, NoField> {
    if fields.flag()? { place(fields).map(Some) } else { Ok(None) }
}

fn priority_pull(fields: &mut Fields<'_>) -> Result<Message, BadMessage> {
    let number = fields.number()?;
    let count = fields.count(8)?;
    if !(1..=PRIORITY_PULL_HASHES).contains(&count) {
        return Err(BadMessage);
    }
    let hashes = (0..count).map(|_| fields.long()).collect::<Result<_, _>>()?;
    Ok(Message::PriorityPull { number, hashes })
}

fn give_back(fields: &mut Fields<'_>) -> Result<Message, BadMessage> {
    let (number, is_last, ceiling) = (fields.number()?, fields.flag()?, fields.long()?);
    let count = fields.count(16)?;
    let removed = (0..count).map(|_| place(fields)).collect::<Result<_, _>>()?;
    Ok(Message::GiveBack { number, is_last, ceiling, removed, objects: fields.rest().to_vec() })
}

impl Copied {
    /// Appends its fields except the objects, which follow them.
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend(self.number.to_le_bytes());
        out.push(self.left as u8);
        out.push(u8::from(self.is_again));
        out.extend((self.spans.len() as u32).to_le_bytes());
        for PullCursor { hash, second } in self.spans.iter().flat_map(|span| [span.first, span.last]) {
            out.extend(hash.to_le_bytes());
            out.extend(second.to_le_bytes());
        }
    }

    fn read(fields: &mut Fields<'_>) -> Result<Self, BadMessage> {
        let number = fields.number()?;
        let left = match fields.byte()? {
            0 => Left::Much,
            1 => Left::Little,
            2 => Left::Nothing,
            _ => return Err(BadMessage),
        };
        let is_again = fields.flag()?;
        let count = fields.count(32)?;
        if count > COPIED_SPANS_MAX {
            return Err(BadMessage);
        }
        let mut span = || {
            let span = PullSpan { first: place(fields)?, last: place(fields)? };
            if span.first <= span.last { Ok(span) } else { Err(BadMessage) }
        };
        let spans = (0..count).map(|_| span()).collect::<Result<_, _>>()?;
        Ok(Self { number, left, is_again, spans, objects: fields.rest().to_vec() })
    }
}
