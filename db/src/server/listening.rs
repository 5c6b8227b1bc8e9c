//! Accepts streams and gives each a control thread, as many as there are places.
//!
//! Who is received and how is the [`Reception`]'s: there is one for clients and one for who reads metrics; who
//! has to leave when there are too many, [`Streams`] says. Ends when its listener is stopped; then it closes
//! all streams and waits for their threads.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use net::{Listener, Stream};

use super::refusal::SourcePrefix;
use super::streams::{Place, Streams};
use crate::limits::{CONTROL_STACK_BYTES, RECORD_TIMEOUT_MS, STREAM_ROOM_MS};

/// How long to wait when the process is out of descriptors or threads.
const BREATH: Duration = Duration::from_millis(20);

/// Serves a stream of this peer, in this place.
pub type Serve = dyn Fn(Stream, SocketAddr, &Place) + Send + Sync;

/// How streams are received.
pub struct Reception {
    /// Name of their threads.
    pub name: &'static str,
    /// Their places.
    pub streams: Arc<Streams>,
    /// Serves one until it is over.
    pub serve: Box<Serve>,
    /// Tells one that there are as many as may be.
    pub turn_away: fn(Stream),
}

/// Accepts until the listener is stopped.
pub fn accept_all(reception: Reception, listener: &Listener, stopping: &AtomicBool) {
    let reception = Arc::new(reception);
    let mut threads: Vec<JoinHandle<()>> = Vec::new();
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
        match receive(&reception, stream, peer) {
            Ok(thread) => threads.extend(thread),
            Err(error) => tracing::warn!(%error, %peer, "a connection was closed"),
        }
    }
    stopping.store(true, Ordering::Relaxed);
    reception.streams.close_all();
    for thread in threads {
        // A control thread that panicked has taken its stream with it and nothing else.
        let _ = thread.join();
    }
}

/// Starts the thread of a stream, if there is a place for it.
fn receive(
    reception: &Arc<Reception>,
    stream: Stream,
    peer: SocketAddr,
) -> io::Result<Option<JoinHandle<()>>> {
    let (closer, patience) = (stream.closer()?, Duration::from_millis(STREAM_ROOM_MS));
    let Some(place) = reception.streams.enter(closer, SourcePrefix::of(peer.ip()), patience) else {
        tracing::debug!(%peer, "a connection was turned away");
        (reception.turn_away)(stream);
        return Ok(None);
    };
    let reception = Arc::clone(reception);
    let name = format!("{}-{}", reception.name, place.number());
    let thread = thread::Builder::new().name(name).stack_size(CONTROL_STACK_BYTES);
    thread.spawn(move || (reception.serve)(stream, peer, &place)).map(Some)
}
