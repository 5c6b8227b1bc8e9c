//! Accepts streams and gives each a control thread, as many as the limit allows.
//!
//! Ends when its listener is stopped; then it closes all streams and waits for their threads.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use net::{Listener, Stream, StreamCloser};

use super::connection;
use super::control::{Control, lock};
use crate::limits::{CONNECTIONS_MAX, CONTROL_STACK_BYTES, RECORD_TIMEOUT_MS};

/// How long to wait when the process is out of descriptors or threads.
const BREATH: Duration = Duration::from_millis(20);

#[derive(Default)]
struct Connections {
    open: Mutex<HashMap<u64, StreamCloser>>,
    count: AtomicUsize,
}

/// Accepts until the listener is stopped.
pub fn accept_all(control: &Arc<Control>, listener: &Listener, stopping: &Arc<AtomicBool>) {
    let connections = Arc::new(Connections::default());
    let mut threads: Vec<JoinHandle<()>> = Vec::new();
    let mut number = 0;
    loop {
        let (stream, peer) = match listener.accept(Duration::from_millis(RECORD_TIMEOUT_MS)) {
            Ok(Some(accepted)) => accepted,
            Ok(None) => break,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                thread::sleep(BREATH);
                continue;
            }
        };
        threads.retain(|thread| !thread.is_finished());
        if connections.count.load(Ordering::Relaxed) >= CONNECTIONS_MAX {
            tracing::warn!(%peer, "a connection was turned away: there are as many as may be");
            connection::turn_away(stream);
            continue;
        }
        number += 1;
        match spawn(control, &connections, stream, peer, stopping, number) {
            Ok(thread) => threads.push(thread),
            Err(error) => tracing::warn!(%error, %peer, "a connection was closed"),
        }
    }
    stopping.store(true, Ordering::Relaxed);
    for closer in lock(&connections.open).values() {
        closer.close();
    }
    for thread in threads {
        // A control thread that panicked has taken its stream with it and nothing else.
        let _ = thread.join();
    }
}

fn spawn(
    control: &Arc<Control>,
    connections: &Arc<Connections>,
    stream: Stream,
    peer: SocketAddr,
    stopping: &Arc<AtomicBool>,
    number: u64,
) -> std::io::Result<JoinHandle<()>> {
    let closer = stream.closer()?;
    let (control, stopping) = (Arc::clone(control), Arc::clone(stopping));
    let guard = Registered::new(connections, number, closer);
    thread::Builder::new().name(format!("stream-{number}")).stack_size(CONTROL_STACK_BYTES).spawn(move || {
        let _guard = guard;
        connection::serve(&control, stream, peer, &stopping);
    })
}

/// A connection in the list of open ones, for as long as its thread lives.
struct Registered {
    connections: Arc<Connections>,
    number: u64,
}

impl Registered {
    fn new(connections: &Arc<Connections>, number: u64, closer: StreamCloser) -> Self {
        lock(&connections.open).insert(number, closer);
        connections.count.fetch_add(1, Ordering::Relaxed);
        Self { connections: Arc::clone(connections), number }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        lock(&self.connections.open).remove(&self.number);
        self.connections.count.fetch_sub(1, Ordering::Relaxed);
    }
}
