//! Makes the tenants of a density run, and says how far it is.
//!
//! Compiling is what takes the time, so several threads make tenants at once; the server compiles an identical
//! source once. Sessions that were only there for the set-up are ended, since a server has a limit of them.

use std::io::{IsTerminal, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use client::Client;

use super::crowd::{Crowd, Place, dataset};
use super::{BASELINE_SESSIONS_MAX, DensitySettings};
use crate::dataset::Dataset;
use crate::operator::{Operator, Tenant};
use crate::options::Access;
use crate::spin;

/// Threads that make tenants.
const THREADS: usize = 4;

/// Between two looks at the progress.
const PROGRESS_EVERY: Duration = Duration::from_millis(500);

/// One tenant, with all the objects and one extension.
pub(super) fn one(operator: &mut Operator, settings: &DensitySettings) -> Result<Crowd, String> {
    let mut tenant = operator.tenant("bench-one")?;
    let objects = settings.objects * settings.tenants as u64;
    let place = furnish(&mut tenant, 0, 0, objects, &mut dataset(settings)?)?;
    let sessions = settings.baseline_sessions.unwrap_or(settings.tenants).clamp(1, BASELINE_SESSIONS_MAX);
    let mut crowd = Crowd::new(1)?;
    for _ in 0..sessions {
        crowd.open(&tenant.access, place)?;
    }
    Ok(crowd)
}

/// All tenants; a session of each.
pub(super) fn many(operator: &mut Operator, settings: &DensitySettings) -> Result<Crowd, String> {
    let next = AtomicUsize::new(0);
    let made: Mutex<Vec<Option<(Access, Place)>>> = Mutex::new(vec![None; settings.tenants]);
    let done = AtomicUsize::new(0);
    let work = || -> Result<Operator, String> {
        let mut operator = Operator::connect(&settings.operator)?;
        let mut data = dataset(settings)?;
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= settings.tenants {
                return Ok(operator);
            }
            let salt = (index % settings.extensions) as u64;
            let mut tenant = operator.tenant(&format!("bench-dense-{index}"))?;
            let first = index as u64 * settings.objects;
            let place = furnish(&mut tenant, salt, first, settings.objects, &mut data)?;
            leave(&mut tenant.client);
            made.lock().expect("no thread panics with it")[index] = Some((tenant.access, place));
            done.fetch_add(1, Ordering::Relaxed);
        }
    };
    let operators = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS.min(settings.tenants)).map(|_| scope.spawn(work)).collect();
        show_progress(settings, &done, &|| threads.iter().all(|thread| thread.is_finished()));
        let joined = threads.into_iter().map(|thread| thread.join().map_err(|_| "a thread panicked")?);
        joined.collect::<Result<Vec<Operator>, String>>()
    })?;
    operators.into_iter().for_each(|other| operator.take_over(other));
    let mut crowd = Crowd::new(settings.tenants)?;
    for one in made.into_inner().expect("no thread panics with it") {
        let (access, place) = one.ok_or("a tenant was not made")?;
        crowd.open(&access, place)?;
    }
    Ok(crowd)
}

/// Gives a tenant its table with objects, and its extension.
fn furnish(
    tenant: &mut Tenant,
    salt: u64,
    first: u64,
    objects: u64,
    data: &mut Dataset,
) -> Result<Place, String> {
    let table = tenant.table()?;
    for number in first..first + objects {
        let (key, value) = data.object(number);
        tenant.client.put(table, key, value).map_err(|error| format!("a put was refused: {error}"))?;
    }
    let extension = tenant.install("spin", &spin::source(salt))?;
    Ok(Place { table, extension, salt, first, objects })
}

/// Ends the session of a set-up; it would end by itself a minute later.
fn leave(client: &mut Client) {
    let own = client.session().client_id();
    // A session that ends while it is told so may get no answer.
    let _ = client.session_revoke(own);
}

fn show_progress(settings: &DensitySettings, done: &AtomicUsize, ended: &dyn Fn() -> bool) {
    let (start, terminal) = (Instant::now(), std::io::stderr().is_terminal());
    let mut shown = Instant::now();
    while !ended() {
        std::thread::sleep(PROGRESS_EVERY / 10);
        if shown.elapsed() >= PROGRESS_EVERY && terminal {
            shown = Instant::now();
            let count = done.load(Ordering::Relaxed);
            let seconds = start.elapsed().as_secs_f64();
            let left = seconds / count.max(1) as f64 * (settings.tenants - count) as f64;
            eprint!(
                "\rtenants and their extensions: {count} of {}, {left:.0} s left at most ",
                settings.tenants
            );
            // A progress line that cannot be shown is no reason to stop.
            let _ = std::io::stderr().flush();
        }
    }
    let clear = if terminal { "\r\x1b[K" } else { "" };
    let count = done.load(Ordering::Relaxed);
    eprintln!("{clear}made {count} tenants in {:.1} s", start.elapsed().as_secs_f64());
}
