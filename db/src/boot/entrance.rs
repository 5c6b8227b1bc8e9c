//! The listeners of streams and of readers of metrics, which receive from the beginning of a start on.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use net::{Listener, StopHandle};

use super::devices::when_free;
use super::{BootError, no_thread};
use crate::control_plane::streams::Streams;
use crate::front::gate::Gate;
use crate::front::listening::{self, Reception};
use crate::front::{connection, metrics_http};

/// Listeners with their threads, which end when this is dropped.
#[derive(Default)]
pub(super) struct Entrance {
    pub(super) gate: Arc<Gate>,
    /// Set when the server ends.
    pub(super) stopping: Arc<AtomicBool>,
    /// The address of the readers' listener, if there is one.
    pub(super) metrics: Option<SocketAddr>,
    stops: Vec<StopHandle>,
    threads: Vec<JoinHandle<()>>,
}

impl Entrance {
    /// Starts the threads of the listeners.
    ///
    /// # Errors
    /// If the address of the readers is taken, or the kernel gives no thread.
    pub(super) fn open(
        clients: Listener,
        readers: Option<SocketAddr>,
        streams: &Arc<Streams>,
    ) -> Result<Self, BootError> {
        let mut entrance = Entrance::default();
        let reception = connection::reception(&entrance.gate, streams, &entrance.stopping);
        entrance.receive("listener", clients, reception)?;
        if let Some(readers) = readers {
            let (readers, address) = listen_for_readers(readers)?;
            entrance.metrics = Some(address);
            let reception = metrics_http::reception(&entrance.gate);
            entrance.receive("metrics", readers, reception)?;
        }
        Ok(entrance)
    }

    /// Starts the thread `name`, which receives streams.
    fn receive(&mut self, name: &str, listener: Listener, reception: Reception) -> Result<(), BootError> {
        let (stop, stopping) = (listener.stop_handle(), Arc::clone(&self.stopping));
        let accepting = thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || listening::accept_all(reception, &listener, &stopping));
        self.add(stop, accepting.map_err(no_thread)?);
        Ok(())
    }

    /// Adds another listener, which is stopped with the others.
    pub(super) fn add(&mut self, stop: StopHandle, thread: JoinHandle<()>) {
        self.stops.push(stop);
        self.threads.push(thread);
    }

    /// Ends the listeners and their streams; returns the threads to wait for.
    pub(super) fn end(&mut self) -> Vec<JoinHandle<()>> {
        self.stopping.store(true, Ordering::Relaxed);
        self.gate.end();
        self.stops.iter().for_each(StopHandle::stop);
        std::mem::take(&mut self.threads)
    }
}

impl Drop for Entrance {
    fn drop(&mut self) {
        for thread in self.end() {
            // Its streams end within a bounded time.
            let _ = thread.join();
        }
    }
}

/// Opens the listener of the metrics port; returns it with its address.
fn listen_for_readers(address: SocketAddr) -> Result<(Listener, SocketAddr), BootError> {
    when_free(|| Listener::bind(address))
        .and_then(|listener| listener.local().map(|local| (listener, local)))
        .map_err(|error| BootError::new(&format!("cannot serve metrics on TCP {address}"), error))
}
