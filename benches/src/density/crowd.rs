//! The sessions of many tenants on one socket, how the tenants are made, and a load among them.
//!
//! A request is of the tenant that was drawn, so sessions are not taken in turn. One frame is filled at a time,
//! with as many requests as the settings say, and sent; the next follows when as many places are free: [`Drive`] does it.
//!
//! Compiling is what takes the time of a set-up, so several threads make tenants at once; the server compiles an identical
//! source once. Sessions that were only there for the set-up are ended, since a server has a limit of them.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use client::{Client, Request};
use fastrand::Rng;
use hdrhistogram::Histogram;
use serde::Serialize;
use wire::function_hash;

use super::{BASELINE_SESSIONS_MAX, DensitySettings};
use crate::dataset::{Dataset, KEY_BYTES_MIN};
use crate::drive::{Drive, Patience, ns_since, take_turns};
use crate::fleet::Fleet;
use crate::loading::Progress;
use crate::measure::Figures;
use crate::operator::{Operator, Tenant};
use crate::options::{Access, TransportOption};
use crate::popularity::Popularity;
use crate::spin;
use crate::workload::{Expected, Source, invocation};

/// Bytes of a value.
const VALUE_BYTES: usize = 100;

/// How many sessions are asked at once whether they are still there.
const WOKEN_AT_ONCE: usize = 64;

/// Threads that make tenants.
const THREADS: usize = 4;

/// Between two looks how many there are.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Where one session's requests go.
#[derive(Clone, Copy, Debug)]
struct Place {
    table: u32,
    extension: u32,
    /// What its extension adds to the number of an object.
    salt: u64,
    /// The number of its table's first object.
    first: u64,
    /// How many objects there are.
    objects: u64,
}

/// Sessions on one socket.
pub(super) struct Crowd {
    fleet: Fleet,
    places: Vec<Place>,
    tenants: usize,
}

/// Draws a session, and one of its tenant's objects to touch.
struct Touches<'a> {
    places: &'a [Place],
    popularity: Popularity,
    random: Rng,
    data: Dataset,
    /// Whose the next request is.
    member: usize,
}

/// What a load showed.
#[derive(Clone, Debug, Serialize)]
pub(super) struct CrowdSeen {
    pub(super) figures: Figures,
    pub(super) requests_per_frame: f64,
    pub(super) replies_per_frame: f64,
    pub(super) load_busy_percent: f64,
}

/// The objects of all tenants together.
fn dataset(settings: &DensitySettings) -> Result<Dataset, String> {
    Dataset::new(settings.objects * settings.tenants as u64, KEY_BYTES_MIN, VALUE_BYTES)
}

impl Crowd {
    /// Nobody yet; `tenants` is for the table.
    fn new(tenants: usize) -> Result<Self, String> {
        Ok(Self { fleet: Fleet::nobody(TransportOption::Udp.config())?, places: Vec::new(), tenants })
    }

    /// Opens a session.
    fn open(&mut self, access: &Access, place: Place) -> Result<(), String> {
        self.fleet.join(access, 1)?;
        self.fleet.rest_streams(self.places.len()..self.fleet.sessions());
        self.places.push(place);
        Ok(())
    }

    pub(super) fn tenants(&self) -> usize {
        self.tenants
    }

    pub(super) fn sessions(&self) -> usize {
        self.places.len()
    }

    /// Asks every session for an answer: those that were silent for too long are opened anew.
    pub(super) fn wake(&mut self) -> Result<(), String> {
        let (mut asked, mut answered, mut patience) = (0, 0, Patience::default());
        while answered < self.places.len() {
            while asked < self.places.len().min(answered + WOKEN_AT_ONCE)
                && self.fleet.submit(asked, &Request::Ping, 0)?
            {
                asked += 1;
            }
            let found = self.fleet.poll(&mut |_, _| {})?;
            answered += found;
            patience.saw(found);
        }
        self.fleet.rest_streams(0..self.fleet.sessions());
        Ok(())
    }

    /// Measures a load of full frames, drawn among the sessions.
    pub(super) fn load(
        &mut self,
        (outstanding, together): (usize, usize),
        (theta, seed): (f64, u64),
        (warmup, seconds): (f64, f64),
        latency_ns: &mut Histogram<u64>,
    ) -> Result<CrowdSeen, String> {
        let Self { fleet, places, .. } = self;
        let keys = places.iter().map(|place| place.first + place.objects).max().unwrap_or(1);
        let touches = Touches {
            popularity: Popularity::new(places.len() as u64, theta)?,
            random: Rng::with_seed(seed),
            data: Dataset::new(keys, KEY_BYTES_MIN, VALUE_BYTES)?,
            member: 0,
            places,
        };
        let start = Instant::now();
        let mut drive = Drive::in_frames(fleet, touches, (outstanding, together), start);
        let turn = |drive: &mut Drive<'_, Touches<'_>>, now_ns| {
            let sends = outstanding - drive.under_way() >= together;
            drive.turn(now_ns).map(|answers| answers.max(usize::from(sends)))
        };
        take_turns(start, (warmup * 1e9) as u64, |now_ns| turn(&mut drive, now_ns))?;
        drive.measure.clear();
        let (from_ns, before) = (ns_since(start), drive.statistics());
        let end_ns = from_ns + (seconds * 1e9) as u64;
        let busy_ns = take_turns(start, end_ns, |now_ns| turn(&mut drive, now_ns))?;
        let (passed_ns, after) = ((ns_since(start) - from_ns) as f64, drive.statistics());
        let figures = drive.measure.figures(passed_ns / 1e9);
        drive.drain()?;
        if drive.under_way() > 0 {
            return Err("requests of the load got no answer".into());
        }
        latency_ns.add(drive.measure.latency_ns()).map_err(|error| format!("latencies: {error:?}"))?;
        let per = |count: u64, frames: u64| count as f64 / frames.max(1) as f64;
        Ok(CrowdSeen {
            requests_per_frame: per(after.requests - before.requests, after.frames_sent - before.frames_sent),
            replies_per_frame: per(figures.requests, after.frames_received - before.frames_received),
            figures,
            load_busy_percent: 100.0 * busy_ns as f64 / passed_ns,
        })
    }
}

impl Source for Touches<'_> {
    fn next<R>(&mut self, send: impl FnOnce(&Request<'_>, Expected) -> R) -> R {
        let place = self.places[self.member];
        let number = place.first + self.random.u64(0..place.objects);
        let (of, key) = ((place.extension, place.table), self.data.key(number));
        send(&invocation(of, function_hash("touch"), key, &[]), Expected::Value(number + place.salt))
    }

    fn objects(&self) -> u64 {
        1
    }

    fn session(&mut self, _: usize) -> usize {
        self.member = self.popularity.pick(&mut self.random) as usize;
        self.member
    }
}

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
        let mut progress = Progress::new("making tenants", settings.tenants as u64);
        while !threads.iter().all(|thread| thread.is_finished()) {
            std::thread::sleep(LOOK_EVERY);
            progress.show(done.load(Ordering::Relaxed) as u64);
        }
        progress.end(done.load(Ordering::Relaxed) as u64);
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
