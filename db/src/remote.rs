//! The thread that reads objects of other servers for invocations on this server. [`serving`] hands the questions of
//! other servers to workers (`worker/peer_reads.rs`).
//!
//! ```text
//!   workers ── wants, in a bounded queue ──► this thread ── records of many reads ──► a stream to each other server
//!   workers ◄── Change::Answers ──────────── this thread ◄── answers in any order ───┘
//! ```
//! Streams stay open. The table's map ([`Maps`]) names the owner of an object; [`OpenQuestions`] decides what to do if
//! that changes, or no server answers. The thread never waits for one server: separate threads open streams, and a
//! server that does not read its questions gets no more of them.

pub mod serving;

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::peer;
use cluster::peer::Purpose;
use cluster::remote::message::{Answers, Question, Questions, Reply};
use cluster::remote::questions::{End, OpenQuestions, Owner};
use control::Subject;
use net::{Duplex, Sleeper, StreamError, Waker};
use wire::{Body, TabletMap, TenantId};

use crate::control_plane::Control;
use crate::limits::{
    CONTROL_STACK_BYTES, RECORD_TIMEOUT_MS, REMOTE_IDLE_MS, REMOTE_LOOK_MS, REMOTE_MAPS_MAX,
    REMOTE_MESSAGE_BYTES_MAX, REMOTE_UNTAKEN_BYTES_MAX,
};
use crate::ops::remote::{RemoteAnswer, RemoteOutcome, RemoteReads, Want};
use crate::sync::lock;
use crate::tenant::account::RemoteValue;
use crate::view::change::Change;

/// The queue of remote reads, before the thread starts.
pub struct Wants {
    /// The queue, for workers.
    pub reads: Arc<RemoteReads>,
    sleeper: Sleeper,
}

impl Wants {
    /// Creates an empty queue.
    ///
    /// # Errors
    /// If the process has no descriptors left.
    pub fn new() -> io::Result<Self> {
        let sleeper = Sleeper::alone()?;
        let reads = Arc::new(RemoteReads::new(sleeper.waker()));
        Ok(Self { reads, sleeper })
    }

    /// Returns a waker for the thread that will take the reads.
    #[must_use]
    pub fn waker(&self) -> Waker {
        self.sleeper.waker()
    }
}

/// Starts the thread, which ends when the server stops.
///
/// # Errors
/// If the thread cannot be started.
pub fn start(control: &Arc<Control>, stopping: &Arc<AtomicBool>, wants: Wants) -> io::Result<JoinHandle<()>> {
    let (control, stopping) = (Arc::clone(control), Arc::clone(stopping));
    thread::Builder::new().name("remote".to_owned()).spawn(move || {
        let mut asking = Asking::new(control, wants);
        while !stopping.load(Ordering::Relaxed) {
            asking.round();
            asking.sleep();
        }
    })
}

/// A server, and the stream to it if one could be opened.
type OpenedServer = (u32, Option<Duplex>);

/// The state of the thread.
struct Asking {
    control: Arc<Control>,
    wants: Wants,
    opened: (Sender<OpenedServer>, Receiver<OpenedServer>),
    maps: Maps,
    questions: OpenQuestions<Want>,
    streams: BTreeMap<u32, Duplex>,
    /// Answers for each worker.
    answers: Vec<Vec<RemoteAnswer>>,
}

impl Asking {
    fn new(control: Arc<Control>, wants: Wants) -> Self {
        let answers = control.workers.iter().map(|_| Vec::new()).collect();
        Self {
            control,
            wants,
            opened: channel(),
            maps: Maps::default(),
            questions: OpenQuestions::default(),
            streams: BTreeMap::new(),
            answers,
        }
    }

    fn round(&mut self) {
        let now_us = self.control.clock.now_us();
        while let Ok((server, opened)) = self.opened.1.try_recv() {
            match opened {
                Some(stream) => {
                    self.streams.insert(server, stream);
                    self.questions.opened(server);
                }
                None => {
                    let over = self.questions.refused(server, now_us);
                    over.into_iter().for_each(|want| self.end(&want, RemoteOutcome::Away));
                }
            }
        }
        self.receive(now_us);
        while let Some(want) = self.wants.reads.take() {
            let owner = self.maps.owner(&self.control, &want);
            self.questions.take(want, owner, now_us);
        }
        let (maps, control) = (&mut self.maps, &self.control);
        for (want, end) in self.questions.step(now_us, |want| maps.owner_now(control, want)) {
            let outcome = match end {
                End::Here => RemoteOutcome::Here,
                End::Away => RemoteOutcome::Away,
            };
            self.end(&want, outcome);
        }
        while let Some((server, address)) = self.questions.to_open(now_us) {
            self.open(server, address);
        }
        self.send(now_us);
        for (worker, answers) in self.control.workers.iter().zip(&mut self.answers) {
            if !answers.is_empty() {
                // A worker that has ended has ended its invocations.
                let _ = worker.send(Change::Answers(std::mem::take(answers).into()));
            }
        }
    }

    /// Receives answers from all streams.
    fn receive(&mut self, now_us: u64) {
        let mut broken = Vec::new();
        let mut over = Vec::new();
        for (&server, stream) in &mut self.streams {
            loop {
                let answers = match stream.receive() {
                    Ok(None) => break,
                    Ok(Some(record)) => Answers::decode(record)
                        .map_err(|_| StreamError::Broken(io::ErrorKind::InvalidData.into())),
                    Err(error) => Err(error),
                };
                match answers {
                    Ok(answers) => {
                        for (number, reply) in answers {
                            over.extend(outcome_of(&mut self.questions, (server, number), reply, now_us));
                        }
                    }
                    Err(error) => {
                        tracing::debug!(server, %error, "a stream of reads ended");
                        broken.push(server);
                        break;
                    }
                }
            }
        }
        broken.into_iter().for_each(|server| self.lost(server, now_us));
        over.into_iter().for_each(|(want, outcome)| self.end(&want, outcome));
    }

    fn lost(&mut self, server: u32, now_us: u64) {
        self.streams.remove(&server);
        self.questions.lost(server, now_us);
    }

    /// Queues the outcome of a read for its worker.
    fn end(&mut self, want: &Want, outcome: RemoteOutcome) {
        if let Some(answers) = self.answers.get_mut(usize::from(want.asker.worker)) {
            answers.push(RemoteAnswer { asker: want.asker, outcome });
        }
    }

    /// Sends the questions that can be sent.
    fn send(&mut self, now_us: u64) {
        let mut broken = Vec::new();
        for (&server, stream) in &mut self.streams {
            let mut sent = stream.flush();
            while sent.is_ok() && stream.untaken_bytes() < REMOTE_UNTAKEN_BYTES_MAX {
                let batch = self.questions.batch(server, |want| want.key.len());
                if batch.is_empty() {
                    break;
                }
                // Records of their own, so that others do not wait for the disk with them.
                let (for_disk, others): (Vec<_>, Vec<_>) = batch
                    .into_iter()
                    .partition(|&number| self.questions.get(number).is_some_and(|want| want.for_disk));
                for (numbers, for_disk) in [(others, false), (for_disk, true)] {
                    if numbers.is_empty() || sent.is_err() {
                        continue;
                    }
                    let asked = record_of(&self.questions, &numbers, for_disk);
                    sent = stream.send(&(asked.bytes().len() as u32).to_le_bytes(), asked.bytes());
                }
            }
            if let Err(error) = sent {
                tracing::debug!(server, %error, "a stream of reads ended");
                broken.push(server);
            }
        }
        broken.into_iter().for_each(|server| self.lost(server, now_us));
    }

    /// Opens a stream to a server on a separate thread.
    fn open(&self, server: u32, address: SocketAddr) {
        let (control, post) = (Arc::clone(&self.control), self.opened.0.clone());
        let waker = self.wants.waker();
        let opening = thread::Builder::new().name(format!("opening-{server}"));
        let started = opening.stack_size(CONTROL_STACK_BYTES).spawn(move || {
            // The thread may have ended with the server.
            let _ = post.send((server, open(&control, server, address)));
            waker.wake();
        });
        if let Err(error) = started {
            tracing::warn!(%error, "cannot start a thread to open a stream to another server");
            let _ = self.opened.0.send((server, None));
        }
    }

    fn sleep(&self) {
        let look_ms = if self.questions.is_empty() { REMOTE_IDLE_MS } else { REMOTE_LOOK_MS };
        let now_us = self.control.clock.now_us();
        let due =
            self.questions.next_due_us().map(|due_us| Duration::from_micros(due_us.saturating_sub(now_us)));
        let timeout = Duration::from_millis(look_ms);
        let timeout = due.map_or(timeout, |due| due.min(timeout));
        if let Err(error) = Duplex::sleep_over(&self.wants.sleeper, self.streams.values(), timeout) {
            tracing::warn!(%error, "cannot wait for the streams of remote reads");
            thread::sleep(Duration::from_millis(REMOTE_LOOK_MS));
        }
    }
}

/// Returns the record of these questions.
fn record_of(questions: &OpenQuestions<Want>, numbers: &[u64], for_disk: bool) -> Questions {
    let mut asked = Questions::new(for_disk);
    for &number in numbers {
        let Some(Want { tenant, table, key, .. }) = questions.get(number) else { continue };
        asked.push(&Question { number, tenant: tenant.0, table: *table, key });
    }
    asked
}

/// Returns a read with its outcome, if the reply ends it.
fn outcome_of(
    questions: &mut OpenQuestions<Want>,
    (server, number): (u32, u64),
    reply: Reply<'_>,
    now_us: u64,
) -> Option<(Want, RemoteOutcome)> {
    if matches!(reply, Reply::NotOwned | Reply::Later) {
        questions.not_answered(server, number, now_us);
        return None;
    }
    let want = questions.answered(server, number)?;
    let outcome = match reply {
        Reply::Found { version, value } => match RemoteValue::keep(want.place.account(), value) {
            Some(value) => RemoteOutcome::Found(version, Arc::new(value)),
            None => RemoteOutcome::NoRoom,
        },
        _ => RemoteOutcome::Absent,
    };
    Some((want, outcome))
}

fn open(control: &Control, server: u32, address: SocketAddr) -> Option<Duplex> {
    let migrations = control.migrations.as_ref()?;
    let opened = peer::open(migrations.secret(), migrations.own(), (server, address), Purpose::Reads);
    let stream =
        opened.inspect_err(|error| tracing::debug!(server, %error, "cannot open a stream for reads")).ok()?;
    Duplex::over(stream, Duration::from_millis(RECORD_TIMEOUT_MS), REMOTE_MESSAGE_BYTES_MAX).ok()
}

struct KnownMap {
    bytes: Arc<[u8]>,
    map: TabletMap,
}

/// The tablet maps of the tables that invocations read at other servers, as far as this server knows them.
///
/// A worker includes its map of the table, which may be older than an earlier one; a question that a server did not
/// answer is looked up again in the control plane, which follows the metadata.
#[derive(Default)]
struct Maps {
    known: HashMap<u32, KnownMap>,
}

impl Maps {
    /// Returns the owner of an object as far as known without asking.
    fn owner(&mut self, control: &Control, want: &Want) -> Owner {
        self.see(want.table, &want.map);
        self.find(control, want)
    }

    /// Returns the owner of an object as the control plane knows it now.
    fn owner_now(&mut self, control: &Control, want: &Want) -> Owner {
        if let Some(bytes) = newest(control, want.tenant, want.table) {
            self.see(want.table, &bytes);
        }
        self.find(control, want)
    }

    /// Stores a map, unless a newer one is known.
    fn see(&mut self, table: u32, bytes: &Arc<[u8]>) {
        let known = self.known.get(&table);
        if known.is_some_and(|known| Arc::ptr_eq(&known.bytes, bytes)) {
            return;
        }
        let Ok(map) = TabletMap::decode(bytes) else { return };
        if known.is_some_and(|known| known.map.version() > map.version()) {
            return;
        }
        if self.known.len() >= REMOTE_MAPS_MAX {
            self.known.clear();
        }
        self.known.insert(table, KnownMap { bytes: Arc::clone(bytes), map });
    }

    fn find(&self, control: &Control, want: &Want) -> Owner {
        let Some(KnownMap { map, .. }) = self.known.get(&want.table) else { return Owner::Unknown };
        let key = &want.key;
        let position = wire::position(key, want.hash, map.is_tagged(), store::hash);
        let place = &map.servers()[map.server_of(position)];
        if control.migrations.as_ref().is_some_and(|migrations| migrations.own() == place.number) {
            return Owner::Here;
        }
        place.address.parse().map_or(Owner::Unknown, |address| Owner::Server(place.number, address))
    }
}

/// Returns the map of a tenant's table, or of one granted to it.
fn newest(control: &Control, tenant: TenantId, table: u32) -> Option<Arc<[u8]>> {
    let own = control.table_of(table).filter(|entry| entry.tenant == tenant);
    let entry = own.or_else(|| {
        let granted = lock(&control.grants).iter().find_map(|grant| {
            let row = &grant.row;
            let is_it = row.id == table && row.to == tenant && row.right.subject() == Subject::Table;
            is_it.then(|| (row.owner, row.name.clone()))
        });
        granted.and_then(|(owner, name)| control.table(owner, &name))
    });
    entry?.map.clone()
}
