//! The sessions of many tenants on one socket, how the tenants are made, and a load among them.
//!
//! A request is of the tenant that was drawn, so sessions are not taken in turn. One frame is filled at a time,
//! with as many requests as the settings say, and sent; the next follows when as many places are free.
//!
//! Compiling is what takes the time of a set-up, so several threads make tenants at once; the server compiles an identical
//! source once. Sessions that were only there for the set-up are ended, since a server has a limit of them.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use client::{Client, ClientConfig, Completion, Error, Request, SessionGroup, Transport};
use fastrand::Rng;
use wire::function_hash;

use super::{BASELINE_SESSIONS_MAX, DensitySettings};
use crate::dataset::{Dataset, KEY_BYTES_MIN};
use crate::drive::{Patience, verdict};
use crate::loading::Progress;
use crate::measure::{Figures, Measure};
use crate::operator::{Operator, Tenant};
use crate::options::Access;
use crate::popularity::Popularity;
use crate::spin;
use crate::workload::Expected;

/// Bytes of a value.
const VALUE_BYTES: usize = 100;

/// How long the last answers are waited for, in seconds.
const DRAIN_SECONDS: f64 = 5.0;

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
    group: SessionGroup,
    places: Vec<Place>,
    tenants: usize,
}

/// A request under way.
#[derive(Clone, Copy)]
struct PendingInvocation {
    sent_ns: u64,
    number: u64,
}

/// A load of a crowd.
pub(super) struct CrowdLoad<'a> {
    crowd: &'a mut Crowd,
    pub(super) measure: Measure,
    popularity: Popularity,
    random: Rng,
    data: Dataset,
    frame_requests: usize,
    pending: Vec<PendingInvocation>,
    free: Vec<u32>,
    start: Instant,
}

/// What a load showed.
pub(super) struct CrowdSeen {
    pub(super) figures: Figures,
    pub(super) requests_per_frame: f64,
    pub(super) replies_per_frame: f64,
    pub(super) busy_percent: f64,
}

/// The objects of all tenants together.
fn dataset(settings: &DensitySettings) -> Result<Dataset, String> {
    Dataset::new(settings.objects * settings.tenants as u64, KEY_BYTES_MIN, VALUE_BYTES)
}

impl Crowd {
    /// Nobody yet; `tenants` is for the table.
    fn new(tenants: usize) -> Result<Self, String> {
        let group = SessionGroup::new(ClientConfig { transport: Transport::Udp, ..ClientConfig::default() })
            .map_err(|error| error.to_string())?;
        Ok(Self { group, places: Vec::new(), tenants })
    }

    /// Opens a session. Its stream rests, since a server has fewer streams than sessions.
    fn open(&mut self, access: &Access, place: Place) -> Result<(), String> {
        let address = access.address.to_string();
        let member = self
            .group
            .open(&address, &access.tenant, &access.secret)
            .map_err(|error| format!("cannot open a session of {}: {error}", access.tenant))?;
        self.group.rest_stream(member);
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
        let lost = |error: Error| format!("the server is lost: {error}");
        let (mut asked, mut answered, mut patience) = (0, 0, Patience::new());
        while answered < self.places.len() {
            while asked < self.places.len() && asked < answered + WOKEN_AT_ONCE {
                self.group.submit(asked, &Request::Ping, 0).map_err(lost)?;
                asked += 1;
            }
            let found = self.group.poll(&mut |_, _| {}).map_err(lost)?;
            answered += found;
            patience.saw(found);
        }
        (0..self.places.len()).for_each(|member| self.group.rest_stream(member));
        Ok(())
    }

    /// A load of `outstanding` requests, drawn among the sessions.
    pub(super) fn load(
        &mut self,
        outstanding: usize,
        frame_requests: usize,
        theta: f64,
        seed: u64,
    ) -> Result<CrowdLoad<'_>, String> {
        let keys = self.places.iter().map(|place| place.first + place.objects).max().unwrap_or(1);
        Ok(CrowdLoad {
            popularity: Popularity::new(self.places.len() as u64, theta)?,
            measure: Measure::new(),
            random: Rng::with_seed(seed),
            data: Dataset::new(keys, KEY_BYTES_MIN, VALUE_BYTES)?,
            frame_requests,
            pending: vec![PendingInvocation { sent_ns: 0, number: 0 }; outstanding],
            free: (0..outstanding as u32).rev().collect(),
            start: Instant::now(),
            crowd: self,
        })
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

impl CrowdLoad<'_> {
    /// Sends and receives for so many seconds from now on; what was seen meanwhile.
    pub(super) fn until(&mut self, seconds: f64) -> Result<CrowdSeen, String> {
        let (from, before) = (self.now_ns(), self.crowd.group.statistics());
        let end = from + (seconds * 1e9) as u64;
        let (mut now, mut busy, mut patience) = (from, 0, Patience::new());
        while now < end {
            let sent = self.free.len() >= self.frame_requests;
            if sent {
                self.fill(now)?;
            }
            let answers = self.poll()?;
            patience.saw(answers);
            let began = std::mem::replace(&mut now, self.now_ns());
            if sent || answers > 0 {
                busy += now - began;
            }
        }
        let (passed, after) = ((now - from) as f64, self.crowd.group.statistics());
        let per = |count: u64, frames: u64| count as f64 / frames.max(1) as f64;
        let figures = self.measure.figures(passed / 1e9);
        Ok(CrowdSeen {
            requests_per_frame: per(after.requests - before.requests, after.frames_sent - before.frames_sent),
            replies_per_frame: per(figures.requests, after.frames_received - before.frames_received),
            figures,
            busy_percent: 100.0 * busy as f64 / passed,
        })
    }

    /// Forgets what was seen.
    pub(super) fn clear(&mut self) {
        self.measure.clear();
    }

    /// Waits for what is under way.
    pub(super) fn drain(&mut self) -> Result<(), String> {
        let (began, mut patience) = (Instant::now(), Patience::new());
        while self.free.len() < self.pending.len() {
            if began.elapsed().as_secs_f64() > DRAIN_SECONDS {
                return Err("requests of the load got no answer".into());
            }
            patience.saw(self.poll()?);
        }
        Ok(())
    }

    fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    /// Queues the requests of one frame.
    fn fill(&mut self, now_ns: u64) -> Result<(), String> {
        for _ in 0..self.frame_requests {
            let member = self.popularity.pick(&mut self.random) as usize;
            let place = self.crowd.places[member];
            let number = place.first + self.random.u64(0..place.objects);
            let Some(tag) = self.free.pop() else { return Ok(()) };
            let request = Request::Invoke {
                extension: place.extension,
                version: 0,
                function: function_hash("touch"),
                table: place.table,
                key: self.data.key(number),
                arguments: &[],
            };
            self.pending[tag as usize] = PendingInvocation { sent_ns: now_ns, number: number + place.salt };
            match self.crowd.group.submit(member, &request, u64::from(tag)) {
                Ok(()) => {}
                // A popular tenant's window is full: another is drawn.
                Err(Error::Full) => self.free.push(tag),
                Err(error) => return Err(error.to_string()),
            }
        }
        Ok(())
    }

    fn poll(&mut self) -> Result<usize, String> {
        let Self { crowd, measure, pending, free, start, .. } = self;
        let mut now_ns = 0;
        let polled = crowd.group.poll(&mut |_, completion: Completion<'_>| {
            if now_ns == 0 {
                now_ns = start.elapsed().as_nanos() as u64;
            }
            let request = pending[completion.tag as usize];
            free.push(completion.tag as u32);
            match verdict(&completion, Expected::Value(request.number)) {
                None => measure.answered(now_ns.saturating_sub(request.sent_ns), 1),
                Some(failure) => measure.failed(failure),
            }
        });
        polled.map_err(|error| format!("the server is lost: {error}"))
    }
}
