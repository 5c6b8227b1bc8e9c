//! A piece of a source's copies to its target while it keeps serving: spans of hashes, and all objects in them. An
//! object that the target has in a span and the piece does not contain was removed.

use super::{BadMessage, PullCursor, place};
use crate::fields::Fields;
use crate::limits::COPIED_SPANS_MAX;

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

/// One copied piece.
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

impl Copied {
    /// Appends its fields except the objects, which follow them.
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
