//! Tests of which requests wait, continue or are refused: without a store, with made-up hashes.

use std::sync::Arc;

use wire::TenantId;

use super::{MissingHashes, PendingRequest, PendingRequests};
use crate::limits::{
    PENDING_REQUESTS_MAX, PENDING_US_MAX, TENANT_PENDING_BYTES_MAX, TENANT_PENDING_REQUESTS_MAX,
};
use crate::session::{Claim, Route, Session};
use crate::tenant::account::Account;
use crate::view::change::Wake;

fn session(tenant: u32) -> Arc<Session> {
    let account = Arc::new(Account::new(TenantId(tenant)));
    Arc::new(Session::new(u64::from(tenant) << 8, 1, account, 0))
}

fn request(session: &Arc<Session>, sequence: u64, opcode: u8, body_bytes: usize) -> PendingRequest {
    let peer = ([127, 0, 0, 1], 9).into();
    PendingRequest {
        session: Arc::clone(session),
        sequence,
        view: 1,
        opcode,
        body: vec![0; body_bytes],
        route: Route::Frame { port: 0, peer, flags: 0 },
        since_us: sequence,
    }
}

fn get(session: &Arc<Session>, sequence: u64) -> PendingRequest {
    request(session, sequence, wire::opcode::GET, 20)
}

fn park(pending: &mut PendingRequests, parked: PendingRequest, lacks: &[MissingHashes]) -> bool {
    pending.park(parked, lacks.into()).is_ok()
}

fn wake(pending: &mut PendingRequests, part: u32, hashes: &[u64]) -> Vec<u64> {
    pending.wake(&Wake { part, hashes: Some(hashes.into()) });
    due(pending)
}

fn due(pending: &mut PendingRequests) -> Vec<u64> {
    std::iter::from_fn(|| pending.take_due()).map(|parked| parked.sequence).collect()
}

#[test]
fn a_request_goes_on_when_the_last_of_its_hashes_has_come() {
    let (mut pending, session) = (PendingRequests::default(), session(1));
    assert!(park(&mut pending, get(&session, 1), &[(7, 1), (7, 2), (8, 1)]));
    assert!(park(&mut pending, get(&session, 2), &[(7, 2)]));
    assert!(park(&mut pending, get(&session, 3), &[]));
    assert_eq!(due(&mut pending), [3], "what it lacked has come before it was parked");
    assert_eq!(wake(&mut pending, 7, &[2, 3]), [2]);
    assert!(wake(&mut pending, 7, &[1, 2, 1]).is_empty());
    assert_eq!(wake(&mut pending, 8, &[1]), [1]);
    assert!((1..4).all(|sequence| park(&mut pending, get(&session, sequence), &[(7, sequence), (8, 1)])));
    pending.wake(&Wake { part: 8, hashes: None });
    assert!(due(&mut pending).is_empty());
    pending.wake(&Wake { part: 7, hashes: None });
    assert_eq!(due(&mut pending).len(), 3);
    assert_eq!((pending.requests(), pending.is_due(u64::MAX / 2)), (0, false));
    assert!(pending.by_lacked.is_empty() && pending.by_request.is_empty() && pending.tenants.is_empty());
}

#[test]
fn a_copy_takes_the_place_of_what_waits_and_its_age() {
    let (mut pending, session) = (PendingRequests::default(), session(1));
    assert!(park(&mut pending, get(&session, 1), &[(7, 1)]));
    let copy = PendingRequest { since_us: 50, view: 2, ..get(&session, 1) };
    assert!(park(&mut pending, copy, &[(7, 1)]));
    assert_eq!(pending.requests(), 1);
    pending.wake(&Wake { part: 7, hashes: None });
    let parked = pending.take_due().expect("the copy");
    assert_eq!((parked.view, parked.since_us, pending.requests()), (2, 1, 0));
}

#[test]
fn one_that_waits_for_too_long_is_taken_out_and_nothing_is_left_of_it() {
    let (mut pending, session) = (PendingRequests::default(), session(1));
    assert!((1..=3).all(|sequence| park(&mut pending, get(&session, sequence), &[(7, 1), (7, sequence)])));
    assert_eq!(wake(&mut pending, 7, &[1]), [1], "it waited for one hash");
    let at_us = 2 + PENDING_US_MAX;
    assert!(!pending.is_due(at_us - 1) && pending.is_due(at_us));
    assert_eq!(pending.take_overdue(at_us).map(|parked| parked.sequence), Some(2));
    assert!(pending.take_overdue(at_us).is_none() && pending.requests() == 1);
    assert!(wake(&mut pending, 7, &[2]).is_empty());
    assert_eq!(pending.take_any().map(|parked| parked.sequence), Some(3));
    assert!(pending.by_lacked.is_empty() && pending.order.is_empty());
}

#[test]
fn a_tenant_that_has_its_share_waiting_leaves_room_for_others() {
    let (mut pending, tenants) = (PendingRequests::default(), [session(1), session(2)]);
    let many = 1..=TENANT_PENDING_REQUESTS_MAX as u64;
    assert!(many.clone().all(|sequence| park(&mut pending, get(&tenants[0], sequence), &[(7, 1)])));
    let beyond = pending.park(get(&tenants[0], *many.end() + 1), [(7, 1)].into());
    assert_eq!(beyond.map_err(|parked| parked.sequence), Err(*many.end() + 1));
    assert!(park(&mut pending, get(&tenants[1], 1), &[(7, 1)]));
    let large = |sequence| request(&tenants[1], sequence, wire::opcode::PUT, 1 << 20);
    let sequences = 2..=2 + (TENANT_PENDING_BYTES_MAX >> 20) as u64;
    let taken = sequences.clone().filter(|&sequence| park(&mut pending, large(sequence), &[(7, 1)])).count();
    assert_eq!(taken, (TENANT_PENDING_BYTES_MAX >> 20) - 1, "bytes are counted with what is kept besides");
    assert_eq!(wake(&mut pending, 7, &[1]).len(), many.count() + 1 + taken);
    assert!(park(&mut pending, get(&tenants[0], 1), &[(7, 1)]), "there is room again");
}

#[test]
fn a_worker_has_so_many_waiting_whosever_they_are() {
    let mut pending = PendingRequests::default();
    let tenants: Vec<_> = (1..=6).map(session).collect();
    let asked = tenants.iter().flat_map(|session| (0..2_000).map(move |sequence| get(session, sequence)));
    let taken = asked.filter_map(|parked| pending.park(parked, [(7, 1)].into()).ok()).count();
    assert_eq!(taken, PENDING_REQUESTS_MAX);
}

#[test]
fn what_goes_on_gives_its_record_back_and_a_read_has_none() {
    let session = session(1);
    let add = request(&session, 1, wire::opcode::INCREMENT, 20);
    assert_eq!(session.ring.claim(1), Claim::Execute);
    assert_eq!(session.ring.claim(1), Claim::InFlight, "a copy is not executed while it waits");
    add.give_record_back();
    assert_eq!(session.ring.claim(1), Claim::Execute);
    get(&session, 2).give_record_back();
    assert_eq!(session.ring.look(2), Claim::Execute);
}
