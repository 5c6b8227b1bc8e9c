//! Answers reads of other servers' invocations: a worker executes them as it would for a client of the tenant.
//!
//! ```text
//!   stream of the other server ── record ──► a worker, by its queue ── get, under its view ──► one record of answers
//! ```
//! The stream's thread waits, the worker does not, and the next record is read after the worker has executed one: this bounds
//! the pending reads of a server. A tenant's invocation reads what that tenant may read, its own tables and those granted
//! to it. A key that is not owned under the worker's view gets `NotOwned`; one that has not arrived yet is requested,
//! and the answer is `Later`. An answer that shows what is not yet on the disk of a synced table, or of any durable one if
//! the invocation's request asks for the disk, or what backups have not received, waits on its stream's thread
//! (`remote/serving.rs`), which serves others meanwhile.

use cluster::remote::message::{Answers, Question, Questions, Reply};
use store::AwaitedCuts;
use wire::TenantId;

use crate::limits::REMOTE_ANSWER_BYTES;
use crate::metrics::Counter;
use crate::ops::{WorkerEnvironment, read};
use crate::view::change::{PeerAnswer, PeerAnswerOfCut, PeerReads};

/// Answers one record of questions.
pub fn answer(environment: &WorkerEnvironment<'_>, reads: &PeerReads) {
    let Ok((questions, for_disk)) = Questions::decode(&reads.record) else {
        reads.answer.send(None);
        return;
    };
    // What others in this round have seen is theirs.
    let seen = environment.core.take_seen();
    environment.core.ask_for_disk(for_disk);
    let reached = environment.core.store().reached_cuts();
    let (mut bytes, mut served) = (0, 0);
    let (mut now, mut held): (Option<Answers>, Option<(Answers, Answers)>) = Default::default();
    let mut cuts = AwaitedCuts::default();
    for question in &questions {
        let reply = find(environment, question, REMOTE_ANSWER_BYTES.saturating_sub(bytes));
        if let Reply::Found { value, .. } = reply {
            bytes += value.len();
        }
        served += u64::from(matches!(reply, Reply::Found { .. } | Reply::Absent));
        let shown = environment.core.take_seen();
        if shown.are_reached(reached) {
            now.get_or_insert_with(Answers::new).push(question.number, reply);
            continue;
        }
        cuts = cuts.and(shown);
        let (body, later) = held.get_or_insert_with(|| (Answers::new(), Answers::new()));
        body.push(question.number, reply);
        later.push(question.number, Reply::Later);
    }
    environment.metrics.add(Counter::RemoteReadsServed, served);
    environment.metrics.add(Counter::RemoteReadBytesServed, bytes as u64);
    environment.core.see(seen);
    let of_cut = held.map(|(body, later)| PeerAnswerOfCut {
        cuts,
        body: body.into_bytes(),
        later: later.into_bytes(),
    });
    // The stream may be gone; then nobody waits.
    reads.answer.send(Some(PeerAnswer { now: now.map(Answers::into_bytes), of_cut }));
}

/// Reads one object; returns `Later` if there is no room for more values.
fn find<'p>(environment: &WorkerEnvironment<'p>, question: &Question<'_>, room: usize) -> Reply<'p> {
    let Question { tenant, table, key, .. } = *question;
    let Some(entry) = environment.tables.get(TenantId(tenant), table) else { return Reply::NotOwned };
    let hash = store::hash(key);
    let Some(part) = entry.parts.find(key, hash) else { return Reply::NotOwned };
    if room == 0 {
        return Reply::Later;
    }
    let found = match read::get(environment.pin, part, hash, key) {
        None if part.is_arrival() => match read::get_arriving(environment.pin, part, hash, key) {
            Some(found) => found,
            None => {
                // If too many hashes are requested, the next question requests it again.
                part.want(hash);
                return Reply::Later;
            }
        },
        found => found,
    };
    found.map_or(Reply::Absent, |object| Reply::Found { version: object.version(), value: object.value() })
}

#[cfg(test)]
mod tests;
