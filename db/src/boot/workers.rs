//! Starts the worker threads, each with its core of the store and its port.
//!
//! If a worker does not start, those before it are stopped. A worker that ends with an error logs it; the main thread
//! notices the end.

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use net::SharedPort;
use store::Store;

use super::BootError;
use crate::clock::Clock;
use crate::config::Config;
use crate::durability::log_thread::LogHandle;
use crate::metrics::WorkerMetrics;
use crate::process::{pin_thread, take_short_turns};
use crate::remote::Wants;
use crate::view::change::{Change, ChangeSender, change_queue};
use crate::view::{Fence, Views};
use crate::worker::ports::Ports;
use crate::worker::siblings::SiblingWorkers;
use crate::worker::{Worker, WorkerParts};

/// The running workers, in the order of their cores.
pub(super) struct Started {
    pub(super) senders: Vec<ChangeSender>,
    pub(super) metrics: Vec<Arc<WorkerMetrics>>,
    pub(super) threads: Vec<JoinHandle<()>>,
    /// The view and the fence that workers check.
    pub(super) views: Arc<Views>,
    pub(super) fence: Arc<Fence>,
}

pub(super) fn start<P: SharedPort + 'static>(
    config: &Config,
    store: &Arc<Store>,
    ports: Vec<P>,
    (clock, view): (Clock, u64),
    siblings: &Arc<SiblingWorkers>,
    (wants, log): (Option<&Wants>, Option<&LogHandle>),
) -> Result<Started, BootError> {
    let (views, fence) = (Arc::new(Views::new(view)), Arc::default());
    let mut started = Started { senders: Vec::new(), metrics: Vec::new(), threads: Vec::new(), views, fence };
    let handles: Arc<[P::Handle]> = ports.iter().map(P::handle).collect();
    for (index, port) in ports.into_iter().enumerate() {
        let (sender, changes) = change_queue(port.waker());
        let metrics = Arc::new(WorkerMetrics::new());
        let core = store.core(index);
        let parts = WorkerParts {
            core,
            ports: Ports::new(port, index, Arc::clone(&handles)),
            siblings: Arc::clone(siblings),
            changes,
            metrics: Arc::clone(&metrics),
            clock,
            idle: config.idle,
            views: Arc::clone(&started.views),
            fence: Arc::clone(&started.fence),
            log: log.map(|log| log.waker.clone()),
            remote: wants.map(|wants| Arc::clone(&wants.reads)),
            isolation: config.isolation,
            push_back_after: config.push_back_after,
        };
        let cpu = config.pin.get(index).copied();
        let thread = thread::Builder::new()
            .name(format!("worker-{index}"))
            .spawn(move || run_worker(index, cpu, parts))
            .map_err(|error| BootError::new("cannot start a worker", error));
        started.senders.push(sender);
        started.metrics.push(metrics);
        match thread {
            Ok(thread) => started.threads.push(thread),
            Err(error) => {
                for sender in &started.senders {
                    sender.send(Change::Stop);
                }
                return Err(error);
            }
        }
    }
    Ok(started)
}

fn run_worker<P: SharedPort>(index: usize, cpu: Option<usize>, parts: WorkerParts<P>) {
    if let Some(cpu) = cpu
        && let Err(error) = pin_thread(cpu)
    {
        tracing::warn!(worker = index, cpu, %error, "cannot pin the worker: it runs unpinned");
    }
    // If workers share a CPU with other threads, a request waits for their slices.
    if let Err(error) = take_short_turns(0) {
        tracing::debug!(worker = index, %error, "cannot shorten the worker's time slices");
    }
    let result: io::Result<()> = Worker::new(parts).and_then(Worker::run);
    if let Err(error) = result {
        tracing::error!(worker = index, %error, "the worker ended");
    }
}
