//! Transactions by a loop over a session that does nothing else, many at a time.

use std::time::Instant;

use client::{Completion, Keys, Request, Session, Status, reply};
use wire::{Changes, CommitRead, CommitWrite};

use super::{ClientsLoad, Draw, DrawnKeys, READS, WRITES};
use crate::dataset::index_of;
use crate::measure::{Figures, Measure};

/// A transaction under way.
struct Underway {
    begun: Instant,
    drawn: DrawnKeys,
    versions: [u64; READS],
    next: Next,
}

/// What a transaction is to do next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Read,
    Commit,
    /// It waits for an answer.
    Nothing,
}

/// Runs so many transactions at a time until the window ends.
pub(super) fn transactions(load: &ClientsLoad<'_>, outstanding: usize) -> Result<Figures, String> {
    let mut session = load.access.connect()?.into_session();
    let mut draw = Draw::new(load.data()?, load.seed);
    let (begin, end) = load.window();
    let mut measure = Measure::default();
    let fresh = |draw: &mut Draw| Underway {
        begun: Instant::now(),
        drawn: draw.begin(),
        versions: [0; READS],
        next: Next::Read,
    };
    let mut all: Vec<Underway> = (0..outstanding).map(|_| fresh(&mut draw)).collect();
    // Those that have something to send.
    let mut ready: Vec<usize> = (0..outstanding).collect();
    let (mut ended, mut failure) = (Vec::new(), None);
    loop {
        for place in ready.drain(..) {
            send(&mut session, load.table, place, &mut all[place])?;
        }
        let polled = session.poll(&mut |completion| {
            let place = completion.tag as usize;
            match take(&mut all[place], &completion) {
                Ok(true) => ended.push(place),
                Ok(false) => ready.push(place),
                Err(error) => failure = Some(error),
            }
        });
        let completed = polled.map_err(|error| error.to_string())?;
        if let Some(error) = failure {
            return Err(error);
        }
        if completed == 0 {
            continue;
        }
        let now = Instant::now();
        for place in ended.drain(..) {
            let Underway { begun, drawn, next, .. } = &mut all[place];
            if *begun >= begin && now < end {
                measure.answered((now - *begun).as_nanos() as u64, 1);
            }
            draw.again(drawn);
            (*begun, *next) = (now, Next::Read);
            ready.push(place);
        }
        if now >= end {
            return Ok(measure.figures((end - begin).as_secs_f64()));
        }
    }
}

fn send(session: &mut Session, table: u32, place: usize, underway: &mut Underway) -> Result<(), String> {
    let Underway { drawn: DrawnKeys { indices, keys, value }, versions, next, .. } = underway;
    let sent = match std::mem::replace(next, Next::Nothing) {
        Next::Read => {
            let keys: [&[u8]; READS] = std::array::from_fn(|at| keys[at].as_slice());
            session.submit(&Request::MultiGet { table, keys: Keys::from_slices(&keys) }, place as u64)
        }
        Next::Commit => {
            let reads: [CommitRead<'_>; READS] =
                std::array::from_fn(|at| CommitRead { table, key: &keys[at], version: versions[at] });
            let values: [Vec<u8>; WRITES] = std::array::from_fn(|at| {
                value[..8].copy_from_slice(&indices[at].to_le_bytes());
                value.clone()
            });
            let writes: [CommitWrite<'_>; WRITES] = std::array::from_fn(|at| CommitWrite {
                table,
                key: &keys[at],
                value: Some(&values[at]),
                ttl_ms: None,
            });
            session.submit(&Request::Commit { changes: Changes::listed(&reads, &[], &writes) }, place as u64)
        }
        Next::Nothing => return Ok(()),
    };
    sent.map_err(|error| error.to_string())
}

/// Takes an answer; returns whether the transaction has ended.
fn take(underway: &mut Underway, completion: &Completion<'_>) -> Result<bool, String> {
    let is_commit = underway.versions != [0; READS];
    match completion.status {
        Ok(Status::Ok) if is_commit => {
            underway.versions = [0; READS];
            return Ok(true);
        }
        Ok(Status::Conflict) if is_commit => {
            (underway.versions, underway.next) = ([0; READS], Next::Read);
            return Ok(false);
        }
        Ok(Status::Ok) => {}
        other => return Err(format!("a transaction was answered {other:?}")),
    }
    let objects = reply::Objects::decode(completion.body).map_err(|_| "no objects".to_owned())?;
    for ((object, index), version) in objects.zip(underway.drawn.indices).zip(&mut underway.versions) {
        if object.status != Status::Ok || index_of(object.value) != Some(index) {
            return Err("a wrong answer".into());
        }
        *version = object.version;
    }
    underway.next = Next::Commit;
    Ok(false)
}
