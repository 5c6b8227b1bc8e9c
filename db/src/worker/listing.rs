//! Answers requests about many objects of a table: a page of an enumeration or a scan, a step of a verification.
//!
//! The objects found point into the store and are copied once, into the reply. As usual, the client asks again over
//! the stream if a page does not fit a datagram.

use store::{Object, PageLimits};
use wire::limits::ENUMERATE_OBJECTS_MAX;
use wire::reply::{self, Listing, Scanned, Verified};
use wire::{Request, Status};

use super::replies::{ReplyPlace, refuse, retry_after, ttl_ms};
use crate::limits::RETRY_ARRIVING_US;
use crate::metrics::Counter;
use crate::ops::WorkerEnvironment;
use crate::ops::read::{self, ScanRefusal, StepObjects};
use crate::tablet::TableEntry;

/// Objects of a scan up to which their array takes a quarter of the first-level cache; beyond, it fills the cache.
const SCAN_OBJECTS_FEW: usize = 128;

/// Executes an enumeration, a scan or a verification. `entry` is its table, already found to be the tenant's.
pub fn execute(
    environment: &WorkerEnvironment<'_>,
    request: &Request<'_>,
    entry: &TableEntry,
    place: &mut impl ReplyPlace,
) {
    let metrics = environment.metrics;
    let answered = match *request {
        Request::Enumerate { cursor, keys_only, objects_max, bytes_max, .. } => {
            metrics.count(Counter::Enumerates);
            let limits = PageLimits { objects: objects_max.into(), bytes: bytes_max as usize, keys_only };
            answer_page(environment, entry, cursor, limits, place)
        }
        Request::Verify { cursor, .. } => {
            metrics.count(Counter::Verifies);
            answer_verification(environment, entry, cursor, place)
        }
        Request::Scan { range, cursor, keys_only, objects_max, bytes_max, .. } => {
            metrics.count(Counter::Scans);
            let limits = PageLimits { objects: objects_max.into(), bytes: bytes_max as usize, keys_only };
            match limits.objects {
                ..=SCAN_OBJECTS_FEW => {
                    answer_scan::<SCAN_OBJECTS_FEW>(environment, entry, (&range, cursor), limits, place)
                }
                _ => {
                    answer_scan::<ENUMERATE_OBJECTS_MAX>(environment, entry, (&range, cursor), limits, place)
                }
            }
        }
        _ => unreachable!("the caller handles other requests elsewhere"),
    };
    match answered {
        Ok(()) => {}
        Err(Status::Retry) => retry_after(metrics, RETRY_ARRIVING_US, place),
        Err(status) => refuse(metrics, place, status),
    }
}

fn answer_page(
    environment: &WorkerEnvironment<'_>,
    entry: &TableEntry,
    cursor: &[u8],
    limits: PageLimits,
    place: &mut impl ReplyPlace,
) -> Result<(), Status> {
    let mut found: StepObjects<'_> = [const { None }; ENUMERATE_OBJECTS_MAX];
    let (page, next) = read::enumerate(environment.pin, entry, cursor, limits, &mut found)?;
    let found = found[..page.count].iter().flatten();
    let listed = found.map(|listed| match listed.object {
        Some(object) => listed_of(environment, &object, limits.keys_only),
        None => corrupted_of(listed.hash),
    });
    let corrupted = listed.clone().filter(|listed| listed.status == Status::Corrupted).count();
    environment.metrics.add(Counter::ObjectsCorrupted, corrupted as u64);
    let objects_bytes = listed.clone().map(|listed| listed.bytes()).sum();
    let body_bytes = Listing::body_bytes(next.as_slice(), objects_bytes);
    if body_bytes > wire::limits::STREAM_BODY_BYTES_MAX {
        // Crafted keys: all objects of one place are listed together.
        return Err(Status::ReplyTooLarge);
    }
    place.reply(Status::Ok, body_bytes, |body| {
        let mut rest = Listing::encode_head(body, next.as_slice(), page.count);
        for object in listed {
            rest = Listing::encode_object(rest, &object);
        }
    });
    Ok(())
}

/// Answers a scan; `OBJECTS` is the capacity for objects found.
fn answer_scan<const OBJECTS: usize>(
    environment: &WorkerEnvironment<'_>,
    entry: &TableEntry,
    (range, cursor): (&wire::KeyRange<'_>, &[u8]),
    limits: PageLimits,
    place: &mut impl ReplyPlace,
) -> Result<(), Status> {
    let mut found = [const { None::<Object<'_>> }; OBJECTS];
    let step = match read::scan(environment.pin, entry, range, cursor, limits, &mut found) {
        Ok(step) => step,
        Err(ScanRefusal::For(status)) => return Err(status),
        Err(ScanRefusal::SeveralParts(last)) => {
            environment.metrics.count(Counter::Refused);
            let last = last.to_le_bytes();
            place.reply(Status::SeveralTablets, last.len(), |body| body.copy_from_slice(&last));
            return Ok(());
        }
    };
    let found = found[..step.count].iter().flatten();
    let listed = found.map(|object| listed_of(environment, object, limits.keys_only));
    let objects_bytes = listed.clone().map(|listed| listed.bytes()).sum();
    let seal = read::seal(entry, range);
    let cursor = step.last.map_or([&[][..], &[]], |last| [&seal[..], last]);
    let body_bytes = Scanned::body_bytes(cursor[0].len() + cursor[1].len(), objects_bytes);
    place.reply(Status::Ok, body_bytes, |body| {
        Scanned::encode(body, cursor, step.count, listed);
    });
    Ok(())
}

fn listed_of<'p>(
    environment: &WorkerEnvironment<'_>,
    object: &Object<'p>,
    keys_only: bool,
) -> reply::Listed<'p> {
    reply::Listed {
        status: Status::Ok,
        version: object.version(),
        // An object that is about to expire still exists.
        ttl_ms: ttl_ms(environment, object).map(|ttl_ms| ttl_ms.max(1)),
        key: object.key(),
        value: if keys_only { &[] } else { object.value() },
    }
}

fn corrupted_of(hash: u64) -> reply::Listed<'static> {
    reply::Listed { status: Status::Corrupted, version: hash, ttl_ms: None, key: &[], value: &[] }
}

fn answer_verification(
    environment: &WorkerEnvironment<'_>,
    entry: &TableEntry,
    cursor: &[u8],
    place: &mut impl ReplyPlace,
) -> Result<(), Status> {
    // Allocates only for corrupted objects.
    let mut corrupted = Vec::new();
    let (checked, next) = read::verify(environment.pin, entry, cursor, &mut corrupted)?;
    environment.metrics.add(Counter::ObjectsCorrupted, corrupted.len() as u64);
    let body_bytes = Verified::body_bytes(next.as_slice(), corrupted.len());
    place.reply(Status::Ok, body_bytes, |body| {
        Verified::encode(body, next.as_slice(), (checked.objects, checked.bytes), &corrupted);
    });
    Ok(())
}
