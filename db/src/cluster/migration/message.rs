//! What source and target of a migration say to each other, and its bytes: kind u8, then fields, little-endian.
//!
//! Only servers of a cluster read it, over streams that were opened with the cluster's secret; it is decoded as if it came from
//! a stranger. Objects are as `docs/formats.md` has them in a pull, and are checked by the store that takes them.

mod copied;

pub use copied::{Copied, Left, Span};

use crate::limits::{MIGRATION_MESSAGE_BYTES_MAX, PRIORITY_PULL_HASHES};

/// Two hashes of the last object that is done, by which a pull goes on.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Place {
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
        from: Option<Place>,
    },
    /// To the target.
    Pulled {
        /// As asked.
        partition: u8,
        /// As asked.
        number: u32,
        /// Where the next one goes on; `None` at the end.
        next: Option<Place>,
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
        removed: Vec<Place>,
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
}

/// The bytes are no message.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BadMessage;

/// Fields, from the front.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn array<const BYTES: usize>(&mut self) -> Result<[u8; BYTES], BadMessage> {
        let (array, rest) = self.0.split_first_chunk().ok_or(BadMessage)?;
        self.0 = rest;
        Ok(*array)
    }

    fn byte(&mut self) -> Result<u8, BadMessage> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    fn number(&mut self) -> Result<u32, BadMessage> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn long(&mut self) -> Result<u64, BadMessage> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    fn flag(&mut self) -> Result<bool, BadMessage> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(BadMessage),
        }
    }

    fn place(&mut self) -> Result<Place, BadMessage> {
        Ok(Place { hash: self.long()?, second: self.long()? })
    }

    fn maybe_place(&mut self) -> Result<Option<Place>, BadMessage> {
        if self.flag()? { self.place().map(Some) } else { Ok(None) }
    }

    /// How many fields of so many bytes follow, which the message has.
    fn count(&mut self, bytes: usize) -> Result<usize, BadMessage> {
        let count = self.number()? as usize;
        if count.checked_mul(bytes).is_some_and(|bytes| bytes <= self.0.len()) {
            Ok(count)
        } else {
            Err(BadMessage)
        }
    }

    fn rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.0).to_vec()
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
            Message::Prepare | Message::HandOver | Message::Discard | Message::Discarded | Message::Copy => {}
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
        let mut reader = Reader(bytes);
        let message = match reader.byte()? {
            1 => Message::Prepare,
            2 => Message::Prepared { objects: reader.long()? },
            3 => Message::HandOver,
            4 => Message::HandedOver { ceiling: reader.long()? },
            5 => Message::Pull {
                partition: reader.byte()?,
                number: reader.number()?,
                from: reader.maybe_place()?,
            },
            6 => Message::Pulled {
                partition: reader.byte()?,
                number: reader.number()?,
                next: reader.maybe_place()?,
                objects: reader.rest(),
            },
            7 => priority_pull(&mut reader)?,
            8 => Message::PriorityPulled {
                number: reader.number()?,
                count: reader.number()?,
                objects: reader.rest(),
            },
            9 => Message::Discard,
            10 => Message::Discarded,
            11 => give_back(&mut reader)?,
            12 => Message::TakenBack { number: reader.number()? },
            13 => Message::Copy,
            14 => Message::Copied(Copied::read(&mut reader)?),
            15 => Message::Stored { count: reader.number()? },
            _ => return Err(BadMessage),
        };
        if reader.0.is_empty() { Ok(message) } else { Err(BadMessage) }
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
        }
    }
}

fn put_place(out: &mut Vec<u8>, place: Option<Place>) {
    out.push(u8::from(place.is_some()));
    if let Some(Place { hash, second }) = place {
        out.extend(hash.to_le_bytes());
        out.extend(second.to_le_bytes());
    }
}

fn priority_pull(reader: &mut Reader<'_>) -> Result<Message, BadMessage> {
    let number = reader.number()?;
    let count = reader.count(8)?;
    if !(1..=PRIORITY_PULL_HASHES).contains(&count) {
        return Err(BadMessage);
    }
    let hashes = (0..count).map(|_| reader.long()).collect::<Result<_, _>>()?;
    Ok(Message::PriorityPull { number, hashes })
}

fn give_back(reader: &mut Reader<'_>) -> Result<Message, BadMessage> {
    let (number, is_last, ceiling) = (reader.number()?, reader.flag()?, reader.long()?);
    let count = reader.count(16)?;
    let removed = (0..count).map(|_| reader.place()).collect::<Result<_, _>>()?;
    Ok(Message::GiveBack { number, is_last, ceiling, removed, objects: reader.rest() })
}
