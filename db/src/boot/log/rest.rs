//! What is left of the log when the server begins to serve: replayed meanwhile, what somebody waits for first.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use store::{FoundCompletion, Store};

use super::parts::{self, Left};
use crate::boot::{BootError, no_thread};
use crate::control_plane::Control;
use crate::control_plane::migrations::Migrations;
use crate::durability::ahead::Puller;
use crate::durability::log_reader::LogError;
use crate::durability::recovery::Rest;
use crate::front::gate::Gate;
use crate::limits::PULLER_LOOK_US;
use crate::process;
use crate::session::completions::{Completions, reply_of};

/// See the module's head.
pub(in crate::boot) struct RestOfLog {
    pub(super) rest: Rest,
    pub(super) store: Arc<Store>,
    pub(super) completions: Arc<Completions>,
    /// Until when clients of before may come back.
    pub(super) until_us: u64,
    /// What parts of tables do not keep of it.
    pub(super) left: Left,
    /// The first of the store's cores that may replay it.
    pub(super) first_core: usize,
}

/// The server that serves meanwhile.
#[derive(Clone)]
struct Serving {
    control: Arc<Control>,
    gate: Arc<Gate>,
    stopping: Arc<AtomicBool>,
}

impl RestOfLog {
    /// Returns whether there is anything to replay.
    pub(super) fn is_left(&self) -> bool {
        self.rest.is_left()
    }

    /// Replays all on these cores, says so by `replayed`, and removes what parts do not keep, unless it is to stop.
    ///
    /// # Errors
    /// [`LogError`]: then tables lack objects.
    pub(super) fn end(
        self,
        cores: Range<usize>,
        replayed: impl FnOnce(),
        (gate, stopping): (&Gate, &AtomicBool),
    ) -> Result<(), LogError> {
        let Self { rest, store, completions, until_us, left, .. } = self;
        let completed = |found: FoundCompletion| {
            let (client_id, reply) = reply_of(found);
            completions.recovered(client_id, reply, until_us);
        };
        let replaying = cores.clone().map(|index| store.core(index)).collect();
        let ended = rest.end(replaying, &completed, (&gate.replay, stopping))?;
        let Some(report) = ended else { return Ok(()) };
        completions.set_look_ahead(None);
        replayed();
        parts::discard(&left, &store.core(cores.start), stopping);
        if stopping.load(Ordering::Relaxed) {
            return Ok(());
        }
        if report.segments > 0 {
            report.tell(store.statistics().objects);
        }
        gate.note_replayed();
        Ok(())
    }

    /// Starts the threads that replay it: one that ends when all is done, and one for what somebody waits for.
    ///
    /// # Errors
    /// If the disk gives no further access, or the kernel no thread.
    pub(in crate::boot) fn start(
        self,
        control: &Arc<Control>,
        (gate, stopping): (&Arc<Gate>, &Arc<AtomicBool>),
    ) -> Result<[JoinHandle<()>; 2], BootError> {
        let (control, gate, stopping) = (Arc::clone(control), Arc::clone(gate), Arc::clone(stopping));
        let serving = Serving { control, gate, stopping };
        let pulling = serving.clone();
        let puller = self.rest.puller(self.store.core(self.first_core));
        let puller = puller.map_err(|error| super::cannot_open(&error))?;
        let early = self.rest.early_replies().map_err(|error| super::cannot_open(&error))?;
        let look_ahead = move |client: u64, first_unacknowledged: u64| {
            let found = early.of(client, first_unacknowledged)?;
            Ok(found.into_iter().map(|found| reply_of(found).1).collect())
        };
        self.completions.set_look_ahead(Some(Arc::new(look_ahead)));
        let replaying = thread::Builder::new().name("replay".to_owned());
        let replaying = replaying.spawn(move || serving.replay(self)).map_err(no_thread)?;
        let pulling = thread::Builder::new().name("puller".to_owned()).spawn(move || pulling.pull(puller));
        Ok([replaying, pulling.map_err(no_thread)?])
    }
}

impl Serving {
    fn replay(&self, rest: RestOfLog) {
        // The threads of the replay are as this one.
        if let Err(error) = process::take_short_turns(0) {
            tracing::debug!(%error, "the log is replayed in turns of usual length");
        }
        let cores = rest.first_core + 1..rest.store.cores();
        let tables = Arc::clone(rest.rest.tables());
        // Everything is there: nobody waits for what is still to be removed.
        let wake_all = || tables.values().for_each(|table| self.control.wake(table, None));
        if let Err(error) = rest.end(cores, wake_all, (&self.gate, &self.stopping)) {
            return tracing::error!(%error, "cannot replay the log of durable tables");
        }
        if self.gate.has_replayed() {
            self.control.migrations.iter().for_each(Migrations::admit);
        }
    }

    fn pull(&self, mut puller: Puller) {
        if let Err(error) = process::take_short_turns(0) {
            tracing::debug!(%error, "what a request waits for is read in turns of usual length");
        }
        let wake = |table: &store::Table, hashes: &[u64]| self.control.wake(table, Some(hashes));
        while !self.gate.has_replayed() && !self.stopping.load(Ordering::Relaxed) {
            match puller.step(&wake) {
                Ok(true) => {}
                Ok(false) => thread::park_timeout(Duration::from_micros(PULLER_LOOK_US)),
                Err(error) => {
                    return tracing::error!(%error, "cannot read the log: requests wait for its replay");
                }
            }
        }
    }
}
