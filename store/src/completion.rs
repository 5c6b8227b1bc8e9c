//! Completion records: which request of which client a write belongs to, and its reply, beside the object in the log.
//!
//! ```text
//!   entry of kind completion:   key   client u64 │ sequence, low 32 bits; its high 32 bits in place of a table
//!                               value none: a version, the entry's         2 │ number: version and number
//!                                     3 │ bytes: as the caller gave them
//! ```
//! RIFL (Lee et al., SOSP'15): a record is in the log if and only if its write is, since one cut includes both. In memory
//! it counts as dead from the beginning: nothing leads to it. The cleaner copies those that are still needed
//! ([`Store::keep_completions`]), and a recovery hands out the newest of each client. A record of a plain write takes 32
//! bytes: there is one for each write.

use std::collections::HashMap;

use crate::limits::{CLIENTS_NOTED_MAX, COMPLETIONS_PER_CLIENT};
use crate::number_hash::NumberHash;
use crate::object::Entry;

/// Bytes of the key of a completion record.
pub(crate) const KEY_BYTES: usize = 12;
/// Bytes of its value for an increment.
pub(crate) const NUMBER_BYTES: usize = 9;

/// The identity of a request, equal in all its copies.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct RequestId {
    /// The number of the client.
    pub client: u64,
    /// The number of the request.
    pub sequence: u64,
}

/// The reply to a completed request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum CompletionReply {
    /// The version that was written or removed.
    Version(u64),
    /// The version and the number after an increment.
    Number(u64, [u8; 8]),
    /// What [`Core::begin_request`] was given.
    Bytes(Box<[u8]>),
}

/// A completion record that a recovery found.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct FoundCompletion {
    /// The request.
    pub request: RequestId,
    /// Its reply.
    pub reply: CompletionReply,
}

/// The newest completion records of clients.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct FoundCompletions {
    by_client: HashMap<u64, (u64, Vec<FoundCompletion>), NumberHash>,
    bytes: usize,
}

/// Decides whether a completion record is needed.
pub(crate) type Needs = Box<dyn Fn(RequestId) -> bool + Send + Sync>;

impl RequestId {
    /// Returns what [`crate::entry_hash`] says of its completion record; other entries may have the same. The complement of a
    /// hash, so that no object has it whose key is as that of the record.
    #[must_use]
    pub fn hash(self) -> u64 {
        !crate::hash(&self.key())
    }

    pub(crate) fn key(self) -> [u8; KEY_BYTES] {
        let mut key = [0; KEY_BYTES];
        key[..8].copy_from_slice(&self.client.to_le_bytes());
        key[8..].copy_from_slice(&(self.sequence as u32).to_le_bytes());
        key
    }

    /// Returns what stands in place of a table's number.
    pub(crate) fn table(self) -> u32 {
        (self.sequence >> 32) as u32
    }

    /// Returns the request of an entry with this key and what stands in place of a table's number.
    pub(crate) fn of(table: u32, key: &[u8]) -> Option<RequestId> {
        let (client, low) = key.split_first_chunk()?;
        let low = u32::from_le_bytes(low.try_into().ok()?);
        Some(RequestId {
            client: u64::from_le_bytes(*client),
            sequence: u64::from(table) << 32 | u64::from(low),
        })
    }
}

impl FoundCompletion {
    fn bytes(&self) -> usize {
        let beside = match &self.reply {
            CompletionReply::Version(_) | CompletionReply::Number(..) => 0,
            CompletionReply::Bytes(bytes) => bytes.len(),
        };
        size_of::<Self>() + beside
    }

    /// Reads the entry that begins a piece of a sealed log; `None` if it is damaged, or no completion record.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<FoundCompletion> {
        let (entry, _) = Entry::split(bytes)?;
        entry.check()?;
        entry.is_completion().then(|| Self::of(&entry))?
    }

    pub(crate) fn of(entry: &Entry<'_>) -> Option<FoundCompletion> {
        let request = RequestId::of(entry.table(), entry.key())?;
        let reply = match entry.value() {
            [] => CompletionReply::Version(entry.version()),
            [2, number @ ..] => CompletionReply::Number(entry.version(), number.try_into().ok()?),
            [3, bytes @ ..] => CompletionReply::Bytes(bytes.into()),
            _ => return None,
        };
        Some(FoundCompletion { request, reply })
    }
}

/// The newest request of each client, by which completion records are known that nobody asks for any more.
#[derive(Clone, Debug, Default)]
pub struct NewestRequests(HashMap<u64, u64, NumberHash>);

impl NewestRequests {
    /// Takes in a request. Nothing is noted of clients beyond [`CLIENTS_NOTED_MAX`].
    pub(crate) fn note(&mut self, RequestId { client, sequence }: RequestId) {
        if self.0.len() >= CLIENTS_NOTED_MAX && !self.0.contains_key(&client) {
            return;
        }
        let newest = self.0.entry(client).or_default();
        *newest = sequence.max(*newest);
    }

    pub(crate) fn is_old(&self, RequestId { client, sequence }: RequestId) -> bool {
        self.0.get(&client).is_some_and(|newest| is_old(sequence, *newest))
    }
}

/// Returns whether a client has had the reply to a request when it sends its newest one.
fn is_old(sequence: u64, newest: u64) -> bool {
    sequence.saturating_add(COMPLETIONS_PER_CLIENT) <= newest
}

impl FoundCompletions {
    /// Takes in a record; returns whether its client may still ask for it.
    pub fn add(&mut self, found: FoundCompletion) -> bool {
        let sequence = found.request.sequence;
        let (newest, records) = self.by_client.entry(found.request.client).or_default();
        *newest = sequence.max(*newest);
        if is_old(sequence, *newest) {
            return false;
        }
        self.bytes += found.bytes();
        records.push(found);
        if records.len() as u64 >= 2 * COMPLETIONS_PER_CLIENT {
            records.retain(|found| {
                let stays = !is_old(found.request.sequence, *newest);
                self.bytes -= if stays { 0 } else { found.bytes() };
                stays
            });
        }
        true
    }

    /// Returns about how many bytes of memory the records take.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the records of a client.
    #[must_use]
    pub fn of(&self, client: u64) -> &[FoundCompletion] {
        self.by_client.get(&client).map_or(&[], |(_, records)| records)
    }

    /// Returns all records.
    pub(crate) fn all(&self) -> impl Iterator<Item = &FoundCompletion> {
        self.by_client.values().flat_map(|(_, records)| records)
    }
}
