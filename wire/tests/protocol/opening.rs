//! Opening means the same on both sides.

use wire::{
    Attach, Body, LoggedReply, OpenRequest, Opened, ServerState, SessionLimits, ShmEndpoint, Status,
    VersionRange, opcode,
};

pub fn open_requests() -> [OpenRequest<'static>; 7] {
    let (tenant, secret, proof) = ("acme", "s3cret", [6; 32]);
    [
        OpenRequest::Session { tenant: "acme", secret: "s3cret" },
        OpenRequest::Attach { token: 0x0123_4567_89ab_cdef },
        OpenRequest::Admin { secret: "root" },
        OpenRequest::Peer { server: 7, nonce: std::array::from_fn(|byte| byte as u8) },
        OpenRequest::Resume { tenant, secret, client_id: 8, first_unacknowledged: 17, proof },
        OpenRequest::State,
        OpenRequest::Replies { tenant, secret, client_id: 8, first_unacknowledged: 17, proof },
    ]
}

fn opened() -> Opened {
    Opened {
        version: 2,
        token: 7,
        client_id: 8,
        home_core: 1,
        core_ports: vec![4_000, 4_001],
        limits: SessionLimits {
            key_bytes_max: 1,
            value_bytes_max: 2,
            reply_bytes_max: 3,
            arguments_bytes_max: 4,
        },
        credits: 64,
        view: 9,
        next_sequence: 1,
        shm: Some(ShmEndpoint { machine: [5; 16], user: 1_000, path: "/run/splinter/shm".into() }),
        proof: Some([6; 32]),
    }
}

/// One body of each message of an opening, under the code of a request or 0.
pub fn bodies() -> Vec<(u8, Vec<u8>)> {
    let open = |open: &OpenRequest<'_>| (open.opcode(), open.encode(VersionRange::OURS));
    open_requests().iter().map(open).chain([(0, opened().encode())]).collect()
}

#[test]
fn every_opening_survives_the_wire() {
    for request in open_requests() {
        let body = request.encode(VersionRange { min: 0, max: 9 });
        let (version, decoded) = OpenRequest::decode(request.opcode(), &body).expect("it was encoded here");
        assert!(version == 2 && decoded == request);
        assert!(!format!("{decoded:?}").contains("s3cret"), "secrets stay out of logs");
    }
    let newer = open_requests()[0].encode(VersionRange { min: 3, max: 4 });
    assert_eq!(OpenRequest::decode(opcode::OPEN_SESSION, &newer), Err(Status::UnsupportedVersion));
}

/// An answer arrives as it was sent, and no part of it or more than it does.
fn survives<T: Body + PartialEq + core::fmt::Debug>(answer: T) {
    let body = answer.encode();
    assert_eq!(T::decode(&body), Ok(answer));
    assert_eq!(T::decode(&[body.as_slice(), &[0]].concat()).err(), Some(Status::Malformed));
    for cut in 0..body.len() {
        assert!(T::decode(&body[..cut]).is_err());
    }
}

#[test]
fn every_answer_survives_the_wire() {
    survives(opened());
    survives(Opened { shm: None, ..opened() });
    survives(Opened { proof: None, ..opened() });
    survives(Opened { version: 1, proof: None, ..opened() });
    survives(Attach { token: 7, core: 3 });
    survives(VersionRange { min: 1, max: 2 });
    survives(ServerState { is_serving: true, replayed_bytes: 5, log_bytes: 7 });
    let reply = |sequence, body: &[u8]| LoggedReply { sequence, status: Status::NotFound, body: body.into() };
    survives(vec![reply(7, b"of a function"), reply(1 << 40, b"")]);
}

#[test]
fn a_session_without_its_home_core_or_without_credits_is_refused() {
    let answers = [Opened { home_core: 2, ..opened() }, Opened { credits: 0, ..opened() }];
    for answer in answers {
        assert_eq!(Opened::decode(&answer.encode()), Err(Status::Malformed));
    }
}

/// A peer of the first version neither sends a proof nor expects one.
#[test]
fn a_session_of_the_first_version_is_opened_without_a_proof() {
    let first = VersionRange { min: 1, max: 1 };
    let opening = open_requests()[0];
    let (version, _) =
        OpenRequest::decode(opening.opcode(), &opening.encode(first)).expect("a known version");
    assert_eq!(version, 1);
    let old = Opened { version, ..opened() }.encode();
    assert_eq!(Opened::decode(&old), Ok(Opened { version, proof: None, ..opened() }));
    assert_eq!(old.len() + 33, opened().encode().len());
}
