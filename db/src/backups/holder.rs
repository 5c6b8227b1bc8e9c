//! Gives the replicas of a log to a server that recovers it, on the thread of its stream.

use std::time::Duration;

use cluster::replication::Item;
use cluster::replication::fetch::{FoundReplica, FragmentHeader, FromHolder, ToHolder, bytes_head};
use disk::{Buffer, Digest, DiskError, Fragment};
use net::{Stream, StreamError};

use crate::durability::replicas::backup_thread::BackupHandle;
use crate::durability::replicas::divided::{DividedReader, ReplicaBytes};
use crate::durability::replicas::file::{LogId, PlacedReplica};
use crate::durability::replicas::receiver::HeldLog;
use crate::limits::{HOLDER_ANSWER_BYTES, HOLDER_QUESTION_BYTES_MAX, MIGRATION_NICER, STREAM_LOOK_MS};
use crate::process::{self, BulkWork};

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
    // Clients of this server are served first.
    if let Err(error) = process::take_short_turns(MIGRATION_NICER) {
        tracing::debug!(%error, "cannot lower the priority of a thread that reads replicas");
    }
    let (mut record, mut found) = (Vec::new(), None);
    while !is_over() {
        match stream.read_record(
            &mut record,
            Duration::from_millis(STREAM_LOOK_MS),
            HOLDER_QUESTION_BYTES_MAX,
        ) {
            Ok(()) => {}
            Err(StreamError::Idle) => {
                found.iter_mut().for_each(|holder: &mut ReplicaHolder| holder.bulk = None);
                continue;
            }
            Err(_) => return,
        }
        let Ok(question) = ToHolder::decode(&record) else { return };
        let answered = match (question, &mut found) {
            (ToHolder::Find { log, start }, found) => {
                let log = LogId { server, number: log };
                *found = backup.recover(log, start).map(|held| ReplicaHolder::of(log, held));
                found.as_mut().map_or(Err(NotGiven::Stream), |holder| holder.tell(&mut stream))
            }
            (ToHolder::Ahead { log }, _) => match backup.ahead(LogId { server, number: log }) {
                Some(cut) => answer(&mut stream, &FromHolder::Ahead(cut)),
                None => Err(NotGiven::Stream),
            },
            (ToHolder::Want(wanted), Some(holder)) => {
                holder.reader = Some(DividedReader::new(backup.divided(holder.log), wanted));
                Ok(())
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
    log: LogId,
    found: HeldLog,
    buffer: Buffer,
    /// Once it is known what is wanted of it.
    reader: Option<DividedReader>,
    /// While segments are read: new owners send what they make of them to this backup.
    bulk: Option<BulkWork>,
}

impl ReplicaHolder {
    fn of(log: LogId, found: HeldLog) -> Self {
        let buffer = Buffer::new(found.disk.frame_bytes());
        Self { log, found, buffer, reader: None, bulk: None }
    }

    /// Tells what there is.
    fn tell(&mut self, stream: &mut Stream) -> Result<(), NotGiven> {
        let (mut replicas, mut digests) = (Vec::new(), Vec::new());
        let HeldLog { file, has_received, replicas: placed, disk } = &mut self.found;
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
        answer(stream, &FromHolder::Found { file: *file, has_received: *has_received, replicas, digests })
    }

    fn fragments(&mut self, number: u64, stream: &mut Stream) -> Result<(), NotGiven> {
        let mut fragments = Vec::new();
        each_fragment(&mut self.found, &mut self.buffer, number, |fragment, bytes| {
            let Fragment { cut, before, settled, clock_ms, writes, digest, at, end } = fragment;
            let bytes = bytes.len() as u32;
            fragments.push(FragmentHeader { cut, before, settled, clock_ms, writes, digest, at, end, bytes });
        })?;
        answer(stream, &FromHolder::Fragments(fragments))
    }

    fn read(&mut self, of: ReplicaBytes, stream: &mut Stream) -> Result<(), NotGiven> {
        let Self { found, buffer, reader, bulk, .. } = self;
        bulk.get_or_insert_with(BulkWork::begin);
        let reader = reader.as_ref().ok_or(NotGiven::Stream)?;
        let of_segment = found.replicas.iter().find(|replica| replica.number == of.0);
        let Some(Item::Segment(sequence)) = of_segment.map(|replica| replica.item) else {
            return answer(stream, &FromHolder::Damaged);
        };
        let part = reader.fetch(sequence, of, || bytes_of(found, buffer, of))?;
        let Some(part) = part else { return answer(stream, &FromHolder::Damaged) };
        answer(stream, &FromHolder::Length(part.len() as u32))?;
        part.chunks(HOLDER_ANSWER_BYTES).try_for_each(|bytes| {
            stream.write_record(&bytes_head(bytes.len()), bytes).map_err(|_| NotGiven::Stream)
        })
    }
}

/// Visits the fragments of a segment's replica.
fn each_fragment(
    HeldLog { replicas, disk, .. }: &mut HeldLog,
    buffer: &mut Buffer,
    number: u64,
    mut visit: impl FnMut(Fragment, &[u8]),
) -> Result<(), DiskError> {
    let replica = replicas.iter().find(|replica| replica.number == number && replica.item != Item::Digest);
    replica.map_or(Ok(()), |replica| replica.read(&mut **disk, buffer, &mut visit))
}

/// Reads the first bytes of a segment's replica; `None` if it has fewer, or the rest is damaged.
fn bytes_of(
    held: &mut HeldLog,
    buffer: &mut Buffer,
    (number, bytes): ReplicaBytes,
) -> Result<Option<Vec<u8>>, DiskError> {
    let bytes = bytes as usize;
    // No segment has more, whatever is asked for.
    let mut content = Vec::with_capacity(bytes.min(store::SEGMENT_BYTES_MAX));
    each_fragment(held, buffer, number, |_, part| {
        content.extend_from_slice(&part[..part.len().min(bytes - content.len())]);
    })?;
    Ok((content.len() == bytes).then_some(content))
}

fn answer(stream: &mut Stream, answer: &FromHolder) -> Result<(), NotGiven> {
    let record = answer.encode();
    stream.write_record(&(record.len() as u32).to_le_bytes(), &record).map_err(|_| NotGiven::Stream)
}
