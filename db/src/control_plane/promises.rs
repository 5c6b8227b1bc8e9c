//! Promises of all other servers not to find this one gone, with which it serves on while etcd does not answer.
//!
//! ```text
//!   renewed ──────── lease ──────────────┐ end   500 ms  fence
//!               2 s before the fence ──► ask all others, up to four times a second
//!                     all promise        ──► the fence moves: least promise, from the question on, less 500 ms
//!                     one does not       ──► the fence stays where it is, and passes
//! ```
//! A server that misses another one's registration promises no more than the time until it finds that one gone. So a server that
//! alone is cut off from etcd stops before others take over; if etcd is away for all, all serve on. Once the fence has passed no
//! promise moves it: others may have taken over in between.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use cluster::metadata::ServerRun;
use cluster::moment::Moment;
use cluster::peer::Purpose;
use cluster::promises::PromiseRound;
use net::{Stream, StreamError};

use super::Control;
use crate::durability::replicas::backup_thread::BackupHandle;
use crate::limits::{
    FENCE_AFTER_MS, PROMISE_ANSWER_MS, PROMISE_RECORD_BYTES, PROMISES_BEFORE_MS, PROMISES_LOOK_MS,
    STREAM_LOOK_MS,
};
use crate::peer;
use crate::process;

/// Starts the thread that asks, which ends when the server stops.
///
/// # Errors
/// If the thread cannot be started.
pub fn start(
    control: &Arc<Control>,
    stopping: &Arc<AtomicBool>,
    own: ServerRun,
) -> io::Result<JoinHandle<()>> {
    let control = Arc::clone(control);
    let mut asker = PromiseAsker { control, own, streams: BTreeMap::new(), logged: None };
    process::repeat("promises", stopping, Duration::from_millis(PROMISES_LOOK_MS), move || asker.look())
}

/// Serves the questions of another server, until it ends its stream or this one stops.
pub fn serve(control: &Control, mut stream: Stream, asker: u32) {
    let mut record = Vec::new();
    while control.migrations.as_ref().is_some_and(|own| !own.is_stopping()) {
        match stream.read_record(&mut record, Duration::from_millis(STREAM_LOOK_MS), PROMISE_RECORD_BYTES) {
            Ok(()) => {}
            Err(StreamError::Idle) => continue,
            Err(_) => return,
        }
        let Some(start) = number_of(&record) else { return };
        let time = control.promise(ServerRun { server: asker, start });
        if write(&mut stream, time.as_millis() as u32).is_err() {
            return;
        }
    }
}

/// What the log says while etcd does not answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Logged {
    Promised,
    Missing(u32),
    Passed,
}

/// The state of the thread that asks.
struct PromiseAsker {
    control: Arc<Control>,
    own: ServerRun,
    streams: BTreeMap<u32, Stream>,
    /// What was last logged during this absence of etcd.
    logged: Option<Logged>,
}

impl PromiseAsker {
    fn look(&mut self) {
        let (now, is_held) = (Moment::now(), self.control.lease_cache.is_held(Moment::now()));
        if is_held {
            self.logged = None;
        }
        let left_us = self.control.fence.left_us(self.control.clock.us_at(now));
        match left_us.filter(|_| self.control.ownership_guard.is_wanted()) {
            Some(left_us) if left_us > 0 && left_us < PROMISES_BEFORE_MS * 1_000 => {
                let whom = self.servers_to_ask();
                let mut round = PromiseRound::new(now, whom.clone());
                let asked = self.ask_all(&whom, &mut round);
                // An answer that comes later is none to the next question.
                self.streams.retain(|server, _| !round.is_missing(*server));
                if let Some(until) = round.until(Duration::from_millis(FENCE_AFTER_MS)) {
                    self.control.serve_until(until);
                }
                if !is_held {
                    self.log(asked.map_or_else(Logged::Missing, |()| Logged::Promised), left_us / 1_000);
                }
            }
            Some(0) if !is_held => self.log(Logged::Passed, 0),
            Some(_) => self.open_ahead(),
            None => self.streams.clear(),
        }
    }

    /// Returns the servers whose promises are needed.
    fn servers_to_ask(&self) -> BTreeSet<u32> {
        let others = self.control.lease_cache.others(self.own.server);
        let there = others.iter().filter(|(_, (_, is_there))| *is_there).map(|(server, _)| *server);
        there.chain(self.control.ownership_guard.backups()).collect()
    }

    /// Opens one of the streams that may be needed.
    fn open_ahead(&mut self) {
        let whom = self.servers_to_ask();
        self.streams.retain(|server, _| whom.contains(server));
        if let Some(server) = whom.into_iter().find(|server| !self.streams.contains_key(server))
            && let Some(stream) = self.open(server)
        {
            self.streams.insert(server, stream);
        }
    }

    /// Asks all, and takes the answers of those that answer in time. Fails with the first one that does not promise anything.
    fn ask_all(&mut self, whom: &BTreeSet<u32>, round: &mut PromiseRound) -> Result<(), u32> {
        for &server in whom {
            self.ask(server).ok_or(server)?;
        }
        let until = Instant::now() + Duration::from_millis(PROMISE_ANSWER_MS);
        for &server in whom {
            round.answered(server, self.answer(server, until).ok_or(server)?);
            if round.is_missing(server) {
                return Err(server);
            }
        }
        Ok(())
    }

    fn ask(&mut self, server: u32) -> Option<()> {
        let mut stream = match self.streams.remove(&server) {
            Some(stream) => stream,
            None => self.open(server)?,
        };
        write(&mut stream, self.own.start).ok()?;
        self.streams.insert(server, stream);
        Some(())
    }

    fn open(&self, server: u32) -> Option<Stream> {
        let migrations = self.control.migrations.as_ref()?;
        let (address, _) = *self.control.lease_cache.others(self.own.server).get(&server)?;
        let opened = peer::open(migrations.secret(), migrations.own(), (server, address), Purpose::Promises);
        opened.inspect_err(|error| tracing::debug!(server, %error, "cannot ask a server for promises")).ok()
    }

    /// Receives an answer; a stream without one is not used again.
    fn answer(&mut self, server: u32, until: Instant) -> Option<Duration> {
        let (mut stream, mut record) = (self.streams.remove(&server)?, Vec::new());
        let patience = until.saturating_duration_since(Instant::now());
        stream.read_record(&mut record, patience, PROMISE_RECORD_BYTES).ok()?;
        self.streams.insert(server, stream);
        Some(Duration::from_millis(number_of(&record)?.into()))
    }

    fn log(&mut self, now: Logged, left_ms: u64) {
        if self.logged.replace(now) == Some(now) {
            return;
        }
        match now {
            Logged::Promised => tracing::info!(
                "etcd does not answer: this server serves on while all other servers promise not to take over"
            ),
            Logged::Missing(server) => tracing::warn!(
                server,
                left_ms,
                "a server does not promise not to take over: this one stops serving soon unless it does"
            ),
            Logged::Passed => {
                tracing::warn!("this server serves nothing until etcd answers: others may have taken over");
            }
        }
    }
}

fn write(stream: &mut Stream, number: u32) -> Result<(), StreamError> {
    stream.write_record(&(PROMISE_RECORD_BYTES as u32).to_le_bytes(), &number.to_le_bytes())
}

fn number_of(record: &[u8]) -> Option<u32> {
    record.try_into().ok().map(u32::from_le_bytes)
}

impl Control {
    /// Returns for how long from now on this server will not find another one gone, nor give anybody the replicas of its log.
    fn promise(&self, run: ServerRun) -> Duration {
        let time = self.lease_cache.not_gone_for(run);
        let is_kept = |backup: &BackupHandle| backup.promise(run.server, time);
        let is_promised = !time.is_zero() && self.host.backup.as_ref().is_none_or(is_kept);
        if is_promised { time } else { Duration::ZERO }
    }

    /// Lets workers serve until this time, since no other server takes over before, unless they have stopped.
    fn serve_until(&self, until: Moment) {
        self.fence.extend(self.clock.now_us(), self.clock.us_at(until));
        if !self.is_fenced() {
            self.lease_cache.note_promises_of_others(until);
        }
    }
}
