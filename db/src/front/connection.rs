//! Serves one stream on one control thread: the opening, then one request after the other.
//!
//! Data requests go to the session's home worker and are answered when it answers; administrative requests are
//! executed here. A peer that stalls within a record, sends too much, does not read its answers or sends invalid
//! records gets one refusal, if possible, and is disconnected. No stream delays another.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use net::{Stream, StreamError};
use wire::limits::{INSTALL_BODY_BYTES_MAX, RECORD_HEADER_BYTES, STREAM_BODY_BYTES_MAX};
use wire::{Body, OpenRequest, RecordHeader, Status, opcode, reply};

use super::gate::Gate;
use super::listening::Reception;
use super::opening::{self, Entrant};
use crate::administration::{self, Role};
use crate::control_plane::streams::{ConnectionPermit, Streams};
use crate::control_plane::{Control, Refusal};
use crate::limits::{
    ANSWER_BYTES_MAX, ANSWER_ROOM_MS, ANSWER_ROOM_RETRY_US, OPENING_BYTES_MAX, OPENING_TIMEOUT_MS,
    PAGE_BYTES_MAX, RECORD_ROOM_MS, STREAM_ANSWER_TIMEOUT_MS, STREAM_LOOK_MS, UNTAKEN_BYTES,
};
use crate::session::{Session, StreamAnswer};
use crate::sync::oneshot::oneshot;
use crate::view::change::{Change, StreamRequest};

/// Bytes of a record's header after the length.
const HEAD_BYTES: usize = RECORD_HEADER_BYTES - RecordHeader::LENGTH_BYTES;

/// The limit reported to a tenant when too many bytes of answers to it are pending.
const ANSWER_LIMIT: &str = "answer_bytes_of_streams";

/// Returns the reception of clients' streams.
#[must_use]
pub fn reception(gate: &Arc<Gate>, streams: &Arc<Streams>, stopping: &Arc<AtomicBool>) -> Reception {
    let (gate, stopping) = (Arc::clone(gate), Arc::clone(stopping));
    Reception {
        name: "stream",
        streams: Arc::clone(streams),
        serve: Box::new(move |stream, peer, place| serve(&gate, stream, (peer, place), &stopping)),
        turn_away,
    }
}

/// Serves a stream until its peer leaves, its session ends, or the server stops.
fn serve(gate: &Gate, mut stream: Stream, from: (SocketAddr, &ConnectionPermit), stopping: &AtomicBool) {
    // Without this bound the kernel buffers more unread bytes, by its own limits.
    let _ = stream.bound_untaken(UNTAKEN_BYTES);
    let Some(record) = first_record(gate, &mut stream) else { return };
    let Some(control) = gate.wait() else { return };
    let Some(entrant) = open(control, &mut stream, from, &record) else { return };
    match entrant {
        Entrant::Known(Role::Administrator) => {
            converse(control, &mut stream, (&Role::Administrator, from.1), stopping)
        }
        Entrant::Known(Role::Tenant(session)) => {
            session.stream_opened();
            let role = Role::Tenant(Arc::clone(&session));
            converse(control, &mut stream, (&role, from.1), stopping);
            session.stream_closed(control.clock.now_us());
        }
        Entrant::Peer(challenge) => opening::serve_peer(control, stream, from, &challenge),
    }
}

/// Tells a peer that the maximum number of streams is reached, and closes. The answer fits the socket's buffer.
fn turn_away(mut stream: Stream) {
    answer_record(&mut stream, 0, Status::LimitExceeded, b"the server has reached its stream limit");
}

/// Reads the first record of a stream; answers it if it asks for the server's state, or is too long.
fn first_record(gate: &Gate, stream: &mut Stream) -> Option<Vec<u8>> {
    let mut record = Vec::new();
    let timeout = Duration::from_millis(OPENING_TIMEOUT_MS);
    let limit = HEAD_BYTES + OPENING_BYTES_MAX;
    match stream.read_record(&mut record, timeout, limit) {
        Ok(()) => {}
        Err(StreamError::TooLarge { .. }) => {
            answer_record(stream, 0, Status::Malformed, b"");
            return None;
        }
        Err(_) => return None,
    }
    let asked =
        RecordHeader::split(&record).and_then(|(header, body)| OpenRequest::decode(header.code, body));
    if let Ok((_, OpenRequest::State)) = asked {
        answer_record(stream, 0, Status::Ok, &gate.state().encode());
        return None;
    }
    Some(record)
}

fn open(
    control: &Control,
    stream: &mut Stream,
    (peer, place): (SocketAddr, &ConnectionPermit),
    record: &[u8],
) -> Option<Entrant> {
    let opened = RecordHeader::split(record)
        .map_err(Refusal::from)
        .and_then(|(header, body)| opening::open(control, place, (header.code, body), peer));
    match opened {
        Ok((entrant, answer)) => answer_record(stream, 0, Status::Ok, &answer).then_some(entrant),
        Err(refusal) => {
            tracing::debug!(%peer, status = refusal.status.name(), "opening refused");
            answer_record(stream, 0, refusal.status, &opening::refusal_body(&refusal));
            None
        }
    }
}

fn converse(
    control: &Control,
    stream: &mut Stream,
    (role, place): (&Role, &ConnectionPermit),
    stopping: &AtomicBool,
) {
    let look = Duration::from_millis(STREAM_LOOK_MS);
    let limit = HEAD_BYTES + INSTALL_BODY_BYTES_MAX.max(STREAM_BODY_BYTES_MAX);
    let patience = Duration::from_millis(RECORD_ROOM_MS);
    let mut record = Vec::new();
    while !stopping.load(Ordering::Relaxed) {
        // Held until the record was served.
        let mut room = None;
        let has_room = |bytes| {
            room = place.room_for(bytes, patience);
            room.is_some()
        };
        match stream.read_record_if(&mut record, look, limit, has_room) {
            Ok(()) => {}
            Err(StreamError::Idle) if is_over(role) => return,
            Err(StreamError::Idle) => continue,
            Err(StreamError::TooLarge { .. }) => {
                answer_record(stream, 0, Status::LimitExceeded, b"the record exceeds the maximum length");
                return;
            }
            Err(StreamError::NoRoom { .. }) => {
                let text = b"the tenant has reached its limit of bytes in records being processed";
                answer_record(stream, 0, Status::LimitExceeded, text);
                return;
            }
            Err(StreamError::Closed | StreamError::Broken(_)) => return,
        }
        let _busy = place.busy();
        if !serve_record(control, stream, (role, place), std::mem::take(&mut record)) {
            return;
        }
    }
}

/// Serves one record; returns false if the stream must end.
fn serve_record(
    control: &Control,
    stream: &mut Stream,
    (role, place): (&Role, &ConnectionPermit),
    record: Vec<u8>,
) -> bool {
    let (header, body) = match RecordHeader::split(&record) {
        Ok(split) => split,
        Err(status) => {
            // The length was valid, so the next record can be found.
            let sequence = sequence_of(&record);
            return answer_record(stream, sequence, status, status.text().as_bytes());
        }
    };
    let answer = match role {
        role if is_over(role) => {
            answer_record(stream, header.sequence, Status::BadToken, b"the session has ended");
            return false;
        }
        Role::Tenant(session) if header.code < opcode::OPEN_SESSION => {
            return serve_data(control, stream, (session, place), header, record);
        }
        role => administration::serve(control, role, header.code, body),
    };
    match answer {
        Ok(body) => {
            // The request is done and cannot be refused any more: a peer that reads no answers does not get this one.
            let room = place.room_for_answer(body.len(), Duration::from_millis(ANSWER_ROOM_MS));
            room.is_some() && answer_record(stream, header.sequence, Status::Ok, &body)
        }
        Err(refusal) => answer_record(stream, header.sequence, refusal.status, &refusal.body()),
    }
}

/// Sends a data request to the home worker and returns its answer to the peer.
fn serve_data(
    control: &Control,
    stream: &mut Stream,
    (session, place): (&Arc<Session>, &ConnectionPermit),
    header: RecordHeader,
    record: Vec<u8>,
) -> bool {
    // Held until the peer has read the answer.
    let patience = Duration::from_millis(ANSWER_ROOM_MS);
    let Some(mut room) = place.room_for_answer(answer_bytes_max(header.code), patience) else {
        let held_off = reply::Throttled { after_us: ANSWER_ROOM_RETRY_US, limit: ANSWER_LIMIT.as_bytes() };
        let mut body = vec![0; held_off.body_bytes()];
        held_off.encode(&mut body);
        return answer_record(stream, header.sequence, Status::Throttled, &body);
    };
    let (sender, receiver) = oneshot();
    let request = Arc::new(StreamRequest {
        session: Arc::clone(session),
        sequence: header.sequence,
        first_unacknowledged: header.first_unacknowledged,
        view: header.view,
        opcode: header.code,
        flags: header.flags,
        record,
        head_bytes: HEAD_BYTES,
        answer: sender,
    });
    // Read before the request is decided, as in frames.
    let view = control.views.settled();
    let home = &control.workers[usize::from(session.home_core())];
    // This thread keeps the request, so that the worker does not have to free it.
    let handed_over = home.send(Change::Request(Arc::clone(&request)));
    let timeout = Duration::from_millis(STREAM_ANSWER_TIMEOUT_MS);
    let answer = match receiver.receive_within(timeout) {
        Ok(answer) if handed_over => answer,
        _ => StreamAnswer { status: Status::Unavailable, body: Vec::new() },
    };
    room.shrink_to(answer.body.len());
    let header = RecordHeader { view, sequence: header.sequence, ..RecordHeader::default() };
    write_answer(stream, header, answer.status, &answer.body)
}

/// Returns the maximum answer size of a data request in bytes; 0 if the answer consists of some numbers.
fn answer_bytes_max(code: u8) -> usize {
    match code {
        opcode::GET | opcode::MULTI_GET | opcode::INVOKE => ANSWER_BYTES_MAX,
        opcode::ENUMERATE | opcode::SCAN | opcode::TABLETS => PAGE_BYTES_MAX,
        _ => 0,
    }
}

fn is_over(role: &Role) -> bool {
    matches!(role, Role::Tenant(session) if session.is_closed())
}

/// Returns the sequence of a record with an invalid header.
fn sequence_of(record: &[u8]) -> u64 {
    let bytes = record.get(4..12).and_then(|bytes| bytes.try_into().ok());
    bytes.map_or(0, u64::from_le_bytes)
}

/// Writes an answer; returns false if the peer is gone.
fn answer_record(stream: &mut Stream, sequence: u64, status: Status, body: &[u8]) -> bool {
    write_answer(stream, RecordHeader { sequence, ..RecordHeader::default() }, status, body)
}

fn write_answer(stream: &mut Stream, header: RecordHeader, status: Status, body: &[u8]) -> bool {
    let header = RecordHeader { body_bytes: body.len() as u32, code: status as u8, ..header };
    stream.write_record(&header.encode(), body).is_ok()
}
