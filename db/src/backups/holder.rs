//! Gives the replicas of a log to a server that recovers it, on the thread of its stream.

use std::time::Duration;

use cluster::replication::Item;
use cluster::replication::fetch::{FoundReplica, FragmentHeader, FromHolder, ToHolder};
use disk::{Buffer, Digest, DiskError, Fragment};
use net::{Stream, StreamError};

use crate::durability::replicas::backup_thread::BackupHandle;
use crate::durability::replicas::file::{LogId, PlacedReplica};
use crate::durability::replicas::receiver::HeldLog;
use crate::limits::{HOLDER_ANSWER_BYTES, HOLDER_QUESTION_BYTES_MAX, STREAM_LOOK_MS};

/// The reason why a stream ends.
enum NotGiven {
    Stream,
    Disk(DiskError),
}

impl From<DiskError> for NotGiven {
    fn from(error: DiskError) -> Self {
        Self::Disk(error)
    }
}

/// Serves a stream of a server that recovers the log of `server`, until it ends or `is_over`.
pub fn serve(backup: &BackupHandle, server: u32, mut stream: Stream, is_over: impl Fn() -> bool) {
    let (mut record, mut found) = (Vec::new(), None);
    while !is_over() {
        match stream.read_record(
            &mut record,
            Duration::from_millis(STREAM_LOOK_MS),
            HOLDER_QUESTION_BYTES_MAX,
        ) {
            Ok(()) => {}
            Err(StreamError::Idle) => continue,
            Err(_) => return,
        }
        let Ok(question) = ToHolder::decode(&record) else { return };
        let answered = match (question, &mut found) {
            (ToHolder::Find { log, start }, found) => {
                *found = backup.recover(LogId { server, number: log }, start).map(ReplicaHolder::of);
                found.as_mut().map_or(Err(NotGiven::Stream), |holder| holder.tell(&mut stream))
            }
            (ToHolder::Fragments { replica }, Some(holder)) => holder.fragments(replica, &mut stream),
            (ToHolder::Read { replica, bytes }, Some(holder)) => holder.read((replica, bytes), &mut stream),
            (_, None) => return,
        };
        match answered {
            Ok(()) => {}
            Err(NotGiven::Stream) => return,
            Err(NotGiven::Disk(error)) => {
                return tracing::warn!(server, %error, "cannot read the replicas of a log");
            }
        }
    }
}

/// A log's replicas, and what they are read with.
struct ReplicaHolder {
    found: HeldLog,
    buffer: Buffer,
}

impl ReplicaHolder {
    fn of(found: HeldLog) -> Self {
        let buffer = Buffer::new(found.disk.frame_bytes());
        Self { found, buffer }
    }

    /// Tells what there is.
    fn tell(&mut self, stream: &mut Stream) -> Result<(), NotGiven> {
        let (mut replicas, mut digests) = (Vec::new(), Vec::new());
        let HeldLog { file, replicas: placed, disk } = &mut self.found;
        for replica in placed {
            let PlacedReplica { item, number, class, .. } = *replica;
            let (cut, bytes) = replica.end(&mut **disk, &mut self.buffer)?;
            replicas.push(FoundReplica { item, replica: number, class, cut, bytes });
            if item == Item::Digest {
                let (mut bytes, mut whole) = (Vec::new(), None);
                replica.read(&mut **disk, &mut self.buffer, &mut |fragment: Fragment, part: &[u8]| {
                    if fragment.at == 0 {
                        bytes.clear();
                    }
                    bytes.extend_from_slice(part);
                    if bytes.len() == fragment.end as usize && Digest::decode(&bytes).is_ok() {
                        whole = Some(bytes.clone());
                    }
                })?;
                digests.extend(whole);
            }
        }
        answer(stream, &FromHolder::Found { file: *file, replicas, digests })
    }

    fn fragments(&mut self, number: u64, stream: &mut Stream) -> Result<(), NotGiven> {
        let mut fragments = Vec::new();
        self.each(number, |fragment, bytes| {
            let Fragment { cut, before, settled, clock_ms, writes, digest, at, end } = fragment;
            let bytes = bytes.len() as u32;
            fragments.push(FragmentHeader { cut, before, settled, clock_ms, writes, digest, at, end, bytes });
        })?;
        answer(stream, &FromHolder::Fragments(fragments))
    }

    fn read(&mut self, (number, bytes): (u64, u32), stream: &mut Stream) -> Result<(), NotGiven> {
        let (mut left, mut sent, mut bytes) = (bytes as usize, Ok(()), Vec::new());
        self.each(number, |_, part| {
            let part = &part[..part.len().min(left)];
            left -= part.len();
            bytes.extend_from_slice(part);
            if sent.is_ok() && !bytes.is_empty() && (bytes.len() >= HOLDER_ANSWER_BYTES || left == 0) {
                sent = answer(stream, &FromHolder::Bytes(std::mem::take(&mut bytes)));
            }
        })?;
        sent?;
        if left == 0 {
            return Ok(());
        }
        // The rest is damaged, or was never here.
        if !bytes.is_empty() {
            answer(stream, &FromHolder::Bytes(bytes))?;
        }
        answer(stream, &FromHolder::Bytes(Vec::new()))
    }

    fn each(&mut self, number: u64, mut visit: impl FnMut(Fragment, &[u8])) -> Result<(), DiskError> {
        let HeldLog { replicas, disk, .. } = &mut self.found;
        let replica =
            replicas.iter().find(|replica| replica.number == number && replica.item != Item::Digest);
        replica.map_or(Ok(()), |replica| replica.read(&mut **disk, &mut self.buffer, &mut visit))
    }
}

fn answer(stream: &mut Stream, answer: &FromHolder) -> Result<(), NotGiven> {
    let record = answer.encode();
    stream.write_record(&(record.len() as u32).to_le_bytes(), &record).map_err(|_| NotGiven::Stream)
}
