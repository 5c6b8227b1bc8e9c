//! A non-blocking get, for a client that asks both servers of a migration.
//!
//! ```text
//!   owner, nothing moves      as a get
//!   owner, objects arrive     as a get if the key is known, else `NotArrived`; new progress precedes both
//!   former owner, has it yet  `Frozen` with the last value, within the migration's byte budget
//! ```
//! The client combines the answers of both servers by the number of the migration: a `Frozen` answer is valid if the
//! owner told the client, at any time within the same request, that the object has not arrived. See "Reads of both
//! sides" in docs/formats.md.

use store::Object;
use wire::limits::MESSAGE_HEADER_BYTES;
use wire::reply::{self, ARRIVED_BYTES_MAX, Arrived, Left, StaleRead};
use wire::{Request, Status};

use super::prefetch::Located;
use super::replies::{ReplyPlace, RequestOutcome, refuse, ttl_ms};
use crate::ops::{WorkerEnvironment, read};
use crate::session::{ProgressThrottle, Session};
use crate::tablet::{Moving, TableEntry};

/// Executes a [`Request::GetNow`].
#[cold]
pub fn get(
    environment: &WorkerEnvironment<'_>,
    session: &Session,
    (entry, located): (&TableEntry, Located<'_>),
    key: &[u8],
    place: &mut impl ReplyPlace,
) -> RequestOutcome {
    let (pin, hash) = (environment.pin, located.hash);
    let moving = entry.parts.moving(hash);
    let Some(part) = located.part else {
        match moving {
            Some(moving) => answer_stale(environment, moving, (entry.id, hash), key, place),
            None => refuse(environment.metrics, place, Status::NotOwned),
        }
        return RequestOutcome::Answered;
    };
    let known = match read::get(pin, part, hash, key) {
        None if part.is_arrival() => read::get_arriving(pin, part, hash, key),
        found => Some(found),
    };
    let mut arrived = [0; ARRIVED_BYTES_MAX];
    let arrived = progress(&session.told, environment.now_us, moving, &mut arrived);
    match (known, moving) {
        (Some(Some(object)), _) => {
            let object = object_of(environment, &object);
            place.reply(Status::Ok, arrived.len() + object.body_bytes(), |body| {
                let (head, rest) = body.split_at_mut(arrived.len());
                head.copy_from_slice(arrived);
                object.encode(rest);
            });
        }
        (Some(None), _) => {
            place.reply(Status::NotFound, arrived.len(), |body| body.copy_from_slice(arrived));
        }
        (None, Some(moving)) => {
            part.miss(hash);
            let migration = moving.migration.to_le_bytes();
            let bytes = arrived.len() + migration.len();
            moving.count((MESSAGE_HEADER_BYTES + bytes) as u64);
            place.reply(Status::NotArrived, bytes, |body| {
                let (head, rest) = body.split_at_mut(arrived.len());
                head.copy_from_slice(arrived);
                rest.copy_from_slice(&migration);
            });
        }
        // No other server may be asked: the request becomes pending as usual.
        (None, None) => return RequestOutcome::Lacks,
    }
    RequestOutcome::Answered
}

/// Returns the encoded progress of a migration, if it is new to the session.
fn progress<'a>(
    told: &ProgressThrottle,
    now_us: u64,
    moving: Option<&Moving>,
    into: &'a mut [u8; ARRIVED_BYTES_MAX],
) -> &'a [u8] {
    let Some(moving) = moving.filter(|_| told.is_due(now_us)) else {
        return Arrived::encode(std::iter::empty(), into);
    };
    let start = u64::from(moving.migration);
    let sum = moving.arrived().fold(start, |sum, (_, last)| sum.rotate_left(7).wrapping_add(last));
    if !told.tell(now_us, sum) {
        return Arrived::encode(std::iter::empty(), into);
    }
    let bytes = Arrived::encode(moving.arrived(), into);
    moving.count(bytes.len() as u64);
    bytes
}

/// Answers with the value of a key at the time when it was given away.
fn answer_stale(
    environment: &WorkerEnvironment<'_>,
    moving: &Moving,
    (table, hash): (u32, u64),
    key: &[u8],
    place: &mut impl ReplyPlace,
) {
    let object = moving.part(hash).and_then(|part| read::get(environment.pin, part, hash, key));
    let left = object.as_ref().map_or(Left::Absent, |object| Left::Object(object_of(environment, object)));
    let mut frozen = StaleRead { migration: moving.migration, left };
    let request_bytes = Request::GetNow { table, key }.body_bytes();
    let bytes = 2 * MESSAGE_HEADER_BYTES + request_bytes + frozen.body_bytes();
    if !moving.spend(bytes as u64) {
        frozen.left = Left::Untold;
    }
    // Objects are removed only after a close: if it is open now, the object read above was there.
    if !moving.is_open() {
        return refuse(environment.metrics, place, Status::NotOwned);
    }
    place.reply(Status::Frozen, frozen.body_bytes(), |body| frozen.encode(body));
}

fn object_of<'o>(environment: &WorkerEnvironment<'_>, object: &'o Object<'_>) -> reply::Object<'o> {
    let ttl_ms = ttl_ms(environment, object);
    reply::Object { version: object.version(), ttl_ms, value: object.value() }
}
