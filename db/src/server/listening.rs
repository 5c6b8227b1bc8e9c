//! Accepts streams and gives each a control thread, as many as its limit allows.
//!
//! Who is received, how and how many is the [`Reception`]'s: there is one for clients and one for who reads
//! metrics. Ends when its listener is stopped; then it closes all streams and waits for their threads.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use net::{Listener, Stream, StreamCloser};

use super::control::lock;
use crate::limits::{CONTROL_STACK_BYTES, RECORD_TIMEOUT_MS};

/// How long to wait when the process is out of descriptors or threads.
const BREATH: Duration = Duration::from_millis(20);

/// How streams are received.
pub struct Reception {
    /// Name of their threads.
    pub name: &'static str,
    /// Streams at a time.
    pub connections_max: usize,
    /// Serves one until it is over.
    pub serve: Box<dyn Fn(Stream, SocketAddr) + Send + Sync>,
    /// Tells one that there are as many as may be.
    pub turn_away: fn(Stream),
}

#[derive(Default)]
struct Connections {
    open: Mutex<HashMap<u64, StreamCloser>>,
    count: AtomicUsize,
}

/// Accepts until the listener is stopped.
pub fn accept_all(reception: Reception, listener: &Listener, stopping: &AtomicBool) {
    let reception = Arc::new(reception);
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
        if connections.count.load(Ordering::Relaxed) >= reception.connections_max {
            tracing::warn!(%peer, "a connection was turned away: there are as many as may be");
            (reception.turn_away)(stream);
            continue;
        }
        number += 1;
        match spawn(&reception, &connections, stream, peer, number) {
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
    reception: &Arc<Reception>,
    connections: &Arc<Connections>,
    stream: Stream,
    peer: SocketAddr,
    number: u64,
) -> std::io::Result<JoinHandle<()>> {
    let closer = stream.closer()?;
    let reception = Arc::clone(reception);
    let guard = Registered::new(connections, number, closer);
    let name = format!("{}-{number}", reception.name);
    thread::Builder::new().name(name).stack_size(CONTROL_STACK_BYTES).spawn(move || {
        let _guard = guard;
        (reception.serve)(stream, peer);
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
