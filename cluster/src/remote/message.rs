//! Questions and answers about single objects, and their encoding: see *Reads at other servers* in docs/formats.md.
//!
//! Only servers of a cluster receive them, over streams opened with the cluster's secret; they are still decoded as
//! untrusted bytes. A record is a list of one kind or the other; the answering server checks the owner of the table.

use crate::fields::{Fields, NoField};
use crate::limits::REMOTE_BATCH_READS;

/// The first byte of a record of questions.
const QUESTIONS: u8 = 1;
/// The first byte of a record of answers.
const ANSWERS: u8 = 2;
/// The first byte of a record of questions whose answers wait for the disk.
const QUESTIONS_FOR_DISK: u8 = 3;

/// A request for one object.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Question<'a> {
    /// The number that identifies the answer.
    pub number: u64,
    /// The tenant of the asking invocation, by its number in the metadata.
    pub tenant: u32,
    /// The tenant's table, by its number in the cluster.
    pub table: u32,
    /// The key.
    pub key: &'a [u8],
}

/// The answer to a question.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Reply<'a> {
    /// The object.
    Found {
        /// Its version.
        version: u64,
        /// Its value.
        value: &'a [u8],
    },
    /// The object does not exist.
    Absent,
    /// The server does not own the key, or knows no such table of the tenant.
    NotOwned,
    /// The object is in transit to that server, or this record has no room for it.
    Later,
}

/// The record is outside the protocol.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BadRecord;

impl From<NoField> for BadRecord {
    fn from(NoField: NoField) -> Self {
        BadRecord
    }
}

/// The body of a record of questions, in sequence.
#[derive(Debug)]
pub struct Questions {
    bytes: Vec<u8>,
    count: usize,
}

impl Questions {
    /// Creates an empty record. With `for_disk`, its answers wait until the disk has what they show of any durable table,
    /// not only of synced ones.
    #[must_use]
    pub fn new(for_disk: bool) -> Self {
        Self { bytes: vec![if for_disk { QUESTIONS_FOR_DISK } else { QUESTIONS }], count: 0 }
    }

    /// Appends a question.
    pub fn push(&mut self, question: &Question<'_>) {
        let Question { number, tenant, table, key } = question;
        self.bytes.extend(number.to_le_bytes());
        self.bytes.extend(tenant.to_le_bytes());
        self.bytes.extend(table.to_le_bytes());
        put(&mut self.bytes, key);
        self.count += 1;
    }

    /// Returns the number of questions.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns the record's body.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Decodes the questions of a record, and whether their answers wait for the disk.
    ///
    /// # Errors
    /// If the record is invalid or has too many.
    pub fn decode(record: &[u8]) -> Result<(Vec<Question<'_>>, bool), BadRecord> {
        let for_disk = record.first() == Some(&QUESTIONS_FOR_DISK);
        let questions = list(record, if for_disk { QUESTIONS_FOR_DISK } else { QUESTIONS }, |fields| {
            let (number, tenant, table) = (fields.long()?, fields.number()?, fields.number()?);
            Ok(Question { number, tenant, table, key: fields.blob(store::KEY_BYTES_MAX)? })
        })?;
        Ok((questions, for_disk))
    }
}

/// The body of a record of answers.
#[derive(Debug)]
pub struct Answers {
    bytes: Vec<u8>,
}

impl Answers {
    /// Creates an empty record.
    #[must_use]
    pub fn new() -> Self {
        Self { bytes: vec![ANSWERS] }
    }

    /// Appends an answer.
    pub fn push(&mut self, number: u64, reply: Reply<'_>) {
        self.bytes.extend(number.to_le_bytes());
        match reply {
            Reply::Found { version, value } => {
                self.bytes.push(1);
                self.bytes.extend(version.to_le_bytes());
                put(&mut self.bytes, value);
            }
            Reply::Absent => self.bytes.push(2),
            Reply::NotOwned => self.bytes.push(3),
            Reply::Later => self.bytes.push(4),
        }
    }

    /// Returns the record's body.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the record's body, by value.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Decodes the answers of a record, each with the number of its question.
    ///
    /// # Errors
    /// If the record is invalid or has too many.
    pub fn decode(record: &[u8]) -> Result<Vec<(u64, Reply<'_>)>, BadRecord> {
        list(record, ANSWERS, |fields| {
            let number = fields.long()?;
            let reply = match fields.byte()? {
                1 => Reply::Found { version: fields.long()?, value: fields.blob(store::VALUE_BYTES_MAX)? },
                2 => Reply::Absent,
                3 => Reply::NotOwned,
                4 => Reply::Later,
                _ => return Err(BadRecord),
            };
            Ok((number, reply))
        })
    }
}

impl Default for Answers {
    fn default() -> Self {
        Self::new()
    }
}

fn put(bytes: &mut Vec<u8>, blob: &[u8]) {
    bytes.extend((blob.len() as u32).to_le_bytes());
    bytes.extend(blob);
}

/// Decodes the items after the kind, to the end.
fn list<'a, T>(
    record: &'a [u8],
    kind: u8,
    mut one: impl FnMut(&mut Fields<'a>) -> Result<T, BadRecord>,
) -> Result<Vec<T>, BadRecord> {
    let mut fields = Fields::of(record);
    if fields.byte()? != kind {
        return Err(BadRecord);
    }
    let mut all = Vec::new();
    while !fields.is_empty() {
        if all.len() == REMOTE_BATCH_READS {
            return Err(BadRecord);
        }
        all.push(one(&mut fields)?);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::{Answers, Question, Questions, Reply};
    use crate::limits::REMOTE_BATCH_READS;

    #[test]
    fn what_is_said_is_heard_and_what_is_cut_short_is_not() {
        let questions = [
            Question { number: 1, tenant: 2, table: 3, key: b"" },
            Question { number: u64::MAX, tenant: u32::MAX, table: 0, key: b"a key" },
        ];
        let mut asked = Questions::new(false);
        for for_disk in [true, false] {
            asked = Questions::new(for_disk);
            questions.iter().for_each(|question| asked.push(question));
            let decoded = Questions::decode(asked.bytes());
            assert_eq!((asked.count(), decoded), (2, Ok((questions.to_vec(), for_disk))));
        }
        let replies = [
            (7, Reply::Found { version: 9, value: b"value" }),
            (8, Reply::Absent),
            (9, Reply::NotOwned),
            (10, Reply::Later),
        ];
        let mut answered = Answers::new();
        replies.iter().for_each(|(number, reply)| answered.push(*number, *reply));
        assert_eq!(Answers::decode(answered.bytes()), Ok(replies.to_vec()));
        assert!(Questions::decode(answered.bytes()).is_err() && Answers::decode(asked.bytes()).is_err());
        // A cut record is valid only at these ends: no question, or the first one.
        let ends = [1, 1 + 20];
        for cut in 0..asked.bytes().len() {
            assert_eq!(Questions::decode(&asked.bytes()[..cut]).is_ok(), ends.contains(&cut), "{cut}");
        }
        let mut long = answered.bytes()[..26].to_vec();
        long[18..22].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(Answers::decode(&long).is_err());
    }

    #[test]
    fn a_record_has_a_bounded_number() {
        let mut asked = Questions::new(false);
        for number in 0..=REMOTE_BATCH_READS as u64 {
            asked.push(&Question { number, tenant: 1, table: 1, key: b"key" });
        }
        assert!(Questions::decode(asked.bytes()).is_err());
    }
}
