//! What source and target of a migration say to each other, and its bytes: kind u8, then fields, little-endian.
//!
//! Only servers of a cluster read it, over streams that were opened with the cluster's secret; it is decoded as if it came from
//! a stranger. Objects are as `docs/formats.md` has them in a pull, and are checked by the store that takes them.

mod copied;

pub use copied::{Copied, Left, PullSpan};

use crate::cluster::fields::{Fields, NoField};
use crate::limits::{MIGRATION_MESSAGE_BYTES_MAX, PRIORITY_PULL_HASHES};

/// Two hashes of the last object that is done, by which a pull goes on.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct PullCursor {
    /// Of the key.
    pub hash: u64,
    /// What tells apart keys of one hash.
    pub second: u64,
}

/// See the file's head.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Message {
    /// To the source: a migration is about to begin.
    Prepare,
    /// To the target: so many objects will come.
    Prepared {
        /// About how many.
        objects: u64,
    },
    /// To the source: the records say that it moves.
    HandOver,
    /// To the target: nobody writes here any more.
    HandedOver {
        /// No object has or had a higher version.
        ceiling: u64,
    },
    /// To the source: objects, in the order of their hashes.
    Pull {
        /// Whose objects.
        partition: u8,
        /// Of the pull, within its partition.
        number: u32,
        /// Behind this place; `None` from the first hash on.
        from: Option<PullCursor>,
    },
    /// To the target.
    Pulled {
        /// As asked.
        partition: u8,
        /// As asked.
        number: u32,
        /// Where the next one goes on; `None` at the end.
        next: Option<PullCursor>,
        /// Their bytes.
        objects: Vec<u8>,
    },
    /// To the source: all objects of these hashes.
    PriorityPull {
        /// Of the pull.
        number: u32,
        /// At most [`PRIORITY_PULL_HASHES`].
        hashes: Vec<u64>,
    },
    /// To the target.
    PriorityPulled {
        /// As asked.
        number: u32,
        /// Of the hashes that were asked for the first so many: all objects of theirs are here.
        count: u32,
        /// Their bytes.
        objects: Vec<u8>,
    },
    /// To the source: it has arrived.
    Discard,
    /// To the target: nothing is left.
    Discarded,
    /// To the source: what the target has written.
    GiveBack {
        /// One after the other from 0.
        number: u32,
        /// There is no more.
        is_last: bool,
        /// No object has or had a higher version at the target.
        ceiling: u64,
        /// Objects that were written.
        objects: Vec<u8>,
        /// Keys that were removed, by their two hashes.
        removed: Vec<PullCursor>,
    },
    /// To the target: it is here.
    TakenBack {
        /// As given.
        number: u32,
    },
    /// To the source: send what you have while you go on serving it.
    Copy,
    /// To the target: a piece of it.
    Copied(Copied),
    /// To the source: so many pieces are here.
    Stored {
        /// From the first on.
        count: u32,
    },
    /// To either: somebody is there, and has nothing else to say.
    Alive,
}

/// The bytes are no message.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BadMessage;

impl From<NoField> for BadMessage {
    fn from(NoField: NoField) -> Self {
        BadMessage
    }
}

impl Message {
    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let (mut bytes, objects) = self.split();
        bytes.extend(objects);
        bytes
    }

    /// Its bytes in two parts, so that objects need not be copied behind what is before them.
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

    /// The message of these bytes.
    ///
    /// # Errors
    /// For everything that is none.
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
