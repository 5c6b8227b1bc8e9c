//! A piece of what a source copies to its target while it goes on serving it: spans of hashes, and all objects that there
//! are in them. What the target has in a span and a piece has not is gone.

use super::{BadMessage, PullCursor, place};
use crate::cluster::fields::Fields;
use crate::limits::COPIED_SPANS_MAX;

/// From one place to another, both included.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PullSpan {
    /// The first place.
    pub first: PullCursor,
    /// The last one.
    pub last: PullCursor,
}

/// What is still to come behind a piece.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Left {
    /// More than should be sent while nobody serves.
    Much = 0,
    /// Little, or no less for longer: the target may take over.
    Little = 1,
    /// Nothing: the source has been cut.
    Nothing = 2,
}

/// See the file's head.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Copied {
    /// Of the piece, from 0 on; they are stored in their order.
    pub number: u32,
    /// What comes behind it.
    pub left: Left,
    /// Whether the target may have something of these spans.
    pub is_again: bool,
    /// At most [`COPIED_SPANS_MAX`].
    pub spans: Vec<PullSpan>,
    /// Their bytes.
    pub objects: Vec<u8>,
}

impl Copied {
    /// Appends its fields, but for the objects, which follow them.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend(self.number.to_le_bytes());
        out.push(self.left as u8);
        out.push(u8::from(self.is_again));
        out.extend((self.spans.len() as u32).to_le_bytes());
        for PullCursor { hash, second } in self.spans.iter().flat_map(|span| [span.first, span.last]) {
            out.extend(hash.to_le_bytes());
            out.extend(second.to_le_bytes());
        }
    }

    pub(super) fn read(fields: &mut Fields<'_>) -> Result<Self, BadMessage> {
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
