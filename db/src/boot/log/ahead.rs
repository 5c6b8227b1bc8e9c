//! What a server's backups have received of its log and its own disk does not have, as a start asks them.
//!
//! After a crash the disk may lack what was acknowledged of written tables because others had it in memory. Nobody but them knows.
//! A backup that was started since has forgotten it, and so has one that is gone.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use cluster::metadata::{Metadata, MetadataError, OwnLogEnd, ServerRun};
use cluster::peer::ClusterSecret;
use cluster::peer::Purpose;
use cluster::replication::fetch::{FromHolder, ToHolder};
use net::Stream;

use crate::boot::BootError;
use crate::limits::{BACKUPS_LOOK_MS, HOLDER_QUESTION_BYTES_MAX, RECORD_TIMEOUT_MS, START_ASKS_MS};
use crate::peer::{self, PeerError};

/// Returns whether others have received more of the own log than the disk has, or may have. Asks all that count, also those that do
/// not answer at once, some seconds at most: behind an outage of etcd nobody is registered for a moment.
///
/// # Errors
/// If the metadata fails.
pub(super) fn is_elsewhere(metadata: &Metadata, own: ServerRun, end: OwnLogEnd) -> Result<bool, BootError> {
    let failed = |error: MetadataError| BootError::new("cannot find the backups of the log", error);
    let rows = metadata.replicas().map_err(failed)?;
    // Without a promise nobody recovers it.
    let promised = rows.into_iter().find(|row| row.server == own.server && row.replicas > 0);
    let Some(row) = promised else { return Ok(false) };
    let secret = ClusterSecret(metadata.cluster_secret().map_err(failed)?);
    let mut left: BTreeSet<u32> = row.backups.iter().map(|(server, _)| *server).collect();
    let until = Instant::now() + Duration::from_millis(START_ASKS_MS);
    let mut is_last = false;
    loop {
        let members = metadata.members().map_err(failed)?;
        for server in std::mem::take(&mut left) {
            let Some(member) = members.iter().find(|member| member.run.server == server) else { continue };
            match ask(&secret, own.server, (server, member.tcp), row.log) {
                Answer::Ahead(cut) if cut > end.whole_until() => return Ok(true),
                Answer::Ahead(_) | Answer::Ended => {}
                Answer::Nothing => _ = left.insert(server),
            }
        }
        if left.is_empty() {
            return Ok(false);
        }
        if is_last {
            tracing::warn!(
                servers = ?left,
                "these servers do not say whether they have received more of the log than this disk has"
            );
            return Ok(true);
        }
        if Instant::now() > until {
            let there = metadata.servers().map_err(failed)?;
            left.retain(|server| there.iter().any(|row| row.id == *server));
            // Some may have come just now: they are asked once more.
            is_last = true;
            continue;
        }
        thread::sleep(Duration::from_millis(BACKUPS_LOOK_MS));
    }
}

/// What comes of a question.
enum Answer {
    /// The latest cut that was only to be received.
    Ahead(u64),
    /// Its process has ended: its machine refuses the connection.
    Ended,
    /// It may be there.
    Nothing,
}

fn ask(secret: &ClusterSecret, own: u32, to: (u32, SocketAddr), log: u64) -> Answer {
    let stream = match peer::open(secret, own, to, Purpose::Recovery(own)) {
        Ok(stream) => stream,
        Err(PeerError::Unreachable(error)) if error.kind() == ErrorKind::ConnectionRefused => {
            return Answer::Ended;
        }
        Err(_) => return Answer::Nothing,
    };
    ahead(stream, log).map_or(Answer::Nothing, Answer::Ahead)
}

fn ahead(mut stream: Stream, log: u64) -> Option<u64> {
    let (question, mut record) = (ToHolder::Ahead { log }.encode(), Vec::new());
    stream.write_record(&(question.len() as u32).to_le_bytes(), &question).ok()?;
    let patience = Duration::from_millis(RECORD_TIMEOUT_MS);
    stream.read_record(&mut record, patience, HOLDER_QUESTION_BYTES_MAX).ok()?;
    match FromHolder::decode(&record) {
        Ok(FromHolder::Ahead(cut)) => Some(cut),
        _ => None,
    }
}
