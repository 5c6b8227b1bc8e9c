//! Serves one stream on one control thread: the opening, then one request after the other.
//!
//! Data requests go to the session's home worker and are answered when it answers; administrative requests are
//! executed here. A peer that stalls within a record, sends too much, does not read its answers or sends invalid
//! records gets one refusal, if possible, and is disconnected. No stream delays another.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cluster::peer::Purpose;
use net::{Stream, StreamError};
use wire::limits::{INSTALL_BODY_BYTES_MAX, NONCE_BYTES, RECORD_HEADER_BYTES, STREAM_BODY_BYTES_MAX};
use wire::{Body, OpenRequest, RecordHeader, Status, opcode, reply};

use super::gate::{Gate, KeptReplicas, Passage};
use super::listening::Reception;
use super::opening::{self, Entrant};
use crate::administration::{self, Role};
use crate::control_plane::streams::{ConnectionPermit, Streams};
use crate::control_plane::{Control, Refusal};
use crate::limits::{
    ANSWER_BYTES_MAX, ANSWER_ROOM_MS, ANSWER_ROOM_RETRY_US, GATE_LOOK_MS, OPENING_BYTES_MAX,
    OPENING_TIMEOUT_MS, PAGE_BYTES_MAX, RECORD_ROOM_MS, STREAM_ANSWER_TIMEOUT_MS, STREAM_LOOK_MS,
    UNTAKEN_BYTES,
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
    let mut record = Vec::new();
    let (version, request) = match first_request(&mut stream, &mut record) {
        Ok(request) => request,
        Err(None) => return,
        Err(Some(status)) => return refuse(&mut stream, from.0, &status.into()),
    };
    if request == OpenRequest::State {
        answer_record(&mut stream, 0, Status::Ok, &gate.state().encode());
        return;
    }
    if let OpenRequest::Peer { server, nonce } = request
        && gate.control().is_none()
        && let Some(replicas) = gate.replicas()
    {
        return serve_early(gate, replicas, stream, (from.1, server, nonce));
    }
    let is_server = matches!(request, OpenRequest::Peer { .. });
    let Some(control) = await_start(gate, &stream, is_server) else { return };
    let entrant = match opening::open(control, from.1, (version, request), from.0) {
        Ok((entrant, answer)) if answer_record(&mut stream, 0, Status::Ok, &answer) => entrant,
        Ok(_) => return,
        Err(refusal) => return refuse(&mut stream, from.0, &refusal),
    };
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
        Entrant::Answered => {}
        Entrant::Peer(challenge) => opening::serve_peer(control, stream, from, &challenge),
    }
}

/// Serves another server's stream while this one starts: at once if it recovers a log, else when this one serves.
fn serve_early(
    gate: &Gate,
    replicas: &KeptReplicas,
    mut stream: Stream,
    (place, opener, nonce): (&ConnectionPermit, u32, [u8; NONCE_BYTES]),
) {
    let Some(purpose) = opening::early_purpose(replicas, &mut stream, (place, opener, nonce)) else { return };
    if let Purpose::Recovery(server) = purpose {
        opening::serve_replicas(&replicas.backup, server, stream, || gate.has_ended());
    } else if let Some(control) = await_start(gate, &stream, true) {
        opening::serve_purpose(control, stream, opener, purpose);
    }
}

/// Tells a peer that the maximum number of streams is reached, and closes. The answer fits the socket's buffer.
fn turn_away(mut stream: Stream) {
    answer_record(&mut stream, 0, Status::LimitExceeded, b"the server has reached its stream limit");
}

/// Reads the first record of a stream into `record`: the version to speak, and the request.
///
/// # Errors
/// The refusal to answer before the stream is closed; `None` if nobody would read it.
fn first_request<'r>(
    stream: &mut Stream,
    record: &'r mut Vec<u8>,
) -> Result<(u8, OpenRequest<'r>), Option<Status>> {
    let timeout = Duration::from_millis(OPENING_TIMEOUT_MS);
    match stream.read_record(record, timeout, HEAD_BYTES + OPENING_BYTES_MAX) {
        Ok(()) => {}
        Err(StreamError::TooLarge { .. }) => return Err(Some(Status::Malformed)),
        Err(_) => return Err(None),
    }
    let (header, body) = RecordHeader::split(record)?;
    Ok(OpenRequest::decode(header.code, body)?)
}

/// Waits for the control plane of a server that starts; `None` if the server ends, or the stream does: its peer has given
/// up, or another stream has got its permit.
fn await_start<'g>(gate: &'g Gate, stream: &Stream, is_server: bool) -> Option<&'g Arc<Control>> {
    loop {
        match gate.wait(Duration::from_millis(GATE_LOOK_MS), is_server) {
            Passage::Waits if !stream.is_closed() => {}
            Passage::Serves(control) => return Some(control),
            Passage::Waits | Passage::Ended => return None,
        }
    }
}

fn refuse(stream: &mut Stream, peer: SocketAddr, refusal: &Refusal) {
    tracing::debug!(%peer, status = refusal.status.name(), "opening refused");
    answer_record(stream, 0, refusal.status, &opening::refusal_body(refusal));
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
        // It may have been executed, and its answer waits: the peer asks for it again on another stream.
        Err(_) if handed_over => return false,
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

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;
    use std::thread;
    use std::time::Duration;

    use net::{Listener, Stream};
    use wire::{Body, OpenRequest, RecordHeader, ServerState, Status, VersionRange};

    use super::reception;
    use crate::config::StreamLimits;
    use crate::control_plane::streams::Streams;
    use crate::front::gate::Gate;
    use crate::front::listening::accept_all;
    use crate::limits::STREAMS_LEAVING_MAX;

    const PATIENCE: Duration = Duration::from_secs(60);
    const PLACES: usize = 8;

    /// Runs `ask` at a server that goes on starting.
    fn at_a_start(limits: StreamLimits, ask: impl FnOnce(SocketAddr)) {
        let (gate, stopping) = (Arc::new(Gate::default()), Arc::new(AtomicBool::new(false)));
        let reception = reception(&gate, &Streams::new(limits), &stopping);
        let listener = Listener::bind("127.0.0.1:0".parse().expect("an address")).expect("a port");
        let (server, stop) = (listener.local().expect("an address"), listener.stop_handle());
        thread::scope(|scope| {
            let accepting = scope.spawn(|| accept_all(reception, &listener, &stopping));
            ask(server);
            gate.end();
            stop.stop();
            accepting.join().expect("no panic");
        });
    }

    fn send(server: SocketAddr, request: OpenRequest<'_>, versions: VersionRange) -> Stream {
        let mut stream = Stream::connect(server, PATIENCE, PATIENCE).expect("the server listens");
        let header = RecordHeader { code: request.opcode(), ..RecordHeader::default() };
        let body = request.encode(versions);
        let head = RecordHeader { body_bytes: body.len() as u32, ..header }.encode();
        stream.write_record(&head, &body).expect("the stream is open");
        stream
    }

    fn answer(mut stream: Stream) -> (u8, Vec<u8>) {
        let mut record = Vec::new();
        stream.read_record(&mut record, PATIENCE, 1 << 20).expect("an answer");
        let (header, body) = RecordHeader::split(&record).expect("a record");
        (header.code, body.to_vec())
    }

    #[test]
    fn however_many_wait_for_a_start_others_learn_how_far_it_is() {
        at_a_start(StreamLimits { places: PLACES, of_tenant: 1, reserve: 1 }, |server| {
            let of_nobody = OpenRequest::Admin { secret: "of nobody" };
            let _waiting: Vec<Stream> = (0..PLACES + STREAMS_LEAVING_MAX + 8)
                .map(|_| send(server, of_nobody, VersionRange::OURS))
                .collect();
            let (code, body) = answer(send(server, OpenRequest::State, VersionRange::OURS));
            assert_eq!(code, Status::Ok as u8);
            assert!(!ServerState::decode(&body).expect("a state").is_serving);
        });
    }

    #[test]
    fn a_first_record_that_nobody_could_serve_is_refused_before_the_server_serves() {
        at_a_start(StreamLimits::default(), |server| {
            let newer = VersionRange { min: 200, max: 201 };
            let (code, body) = answer(send(server, OpenRequest::Admin { secret: "x" }, newer));
            assert_eq!(code, Status::UnsupportedVersion as u8);
            assert_eq!(VersionRange::decode(&body), Ok(VersionRange::OURS));
        });
    }
}
