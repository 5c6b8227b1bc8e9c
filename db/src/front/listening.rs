//! Accepts streams and starts a control thread for each, within the connection permits.
//!
//! A [`Reception`] defines how streams are served: there is one for clients and one for readers of metrics.
//! [`Streams`] decides which stream is closed when there are too many. The loop ends when its listener is stopped;
//! then it closes all streams and waits for their threads, for a bounded time.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use net::{Listener, Stream};

use crate::control_plane::streams::{ConnectionPermit, Streams};
use crate::limits::{CONTROL_STACK_BYTES, RECORD_TIMEOUT_MS, STREAM_ROOM_MS, STREAMS_STOP_MS};
use crate::process::Joining;
use crate::sync::lock;
use crate::worker::response_limiter::SourcePrefix;

/// Pause when the process has no descriptors or threads left.
const BREATH: Duration = Duration::from_millis(20);

/// A function that serves a peer's stream under a permit.
pub type Serve = dyn Fn(Stream, SocketAddr, &ConnectionPermit) + Send + Sync;

/// The way in which a listener's streams are received.
pub struct Reception {
    /// Name of their threads.
    pub name: &'static str,
    /// Their connection permits.
    pub streams: Arc<Streams>,
    /// Serves one stream until it ends.
    pub serve: Box<Serve>,
    /// Tells a stream's peer that the maximum number of streams is reached.
    pub turn_away: fn(Stream),
}

/// Accepts streams until the listener is stopped.
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
            Err(error) => tracing::warn!(%error, %peer, "cannot serve a connection; closed it"),
        }
    }
    stopping.store(true, Ordering::Relaxed);
    reception.streams.close_all();
    let joining = Joining::within(Duration::from_millis(STREAMS_STOP_MS));
    for thread in threads {
        joining.join(thread);
    }
}

/// Starts the thread of a stream, if it gets a permit. If the system cannot create a thread, a stream that has opened
/// nothing is closed to make room.
fn receive(
    reception: &Arc<Reception>,
    stream: Stream,
    peer: SocketAddr,
) -> io::Result<Option<JoinHandle<()>>> {
    let (closer, patience) = (stream.closer()?, Duration::from_millis(STREAM_ROOM_MS));
    let Some(place) = reception.streams.enter(closer, SourcePrefix::of(peer.ip()), patience) else {
        tracing::debug!(%peer, "refused a connection: no stream is free");
        (reception.turn_away)(stream);
        return Ok(None);
    };
    let number = place.number();
    // Held until a thread takes it.
    let waiting = Arc::new(Mutex::new(Some((stream, place))));
    let start = || {
        let (reception, waiting) = (Arc::clone(reception), Arc::clone(&waiting));
        let name = format!("{}-{number}", reception.name);
        thread::Builder::new().name(name).stack_size(CONTROL_STACK_BYTES).spawn(move || {
            let received = lock(&waiting).take();
            if let Some((stream, place)) = received {
                (reception.serve)(stream, peer, &place);
            }
        })
    };
    with_room(&reception.streams, number, patience, start).map(Some)
}

/// Starts the resources of the stream with this number. If the system has none left, closes a stream that has opened
/// nothing and retries for `patience`.
fn with_room<T>(
    streams: &Streams,
    number: u64,
    patience: Duration,
    start: impl Fn() -> io::Result<T>,
) -> io::Result<T> {
    let mut started = start();
    if started.is_err() && streams.close_one_before(number) {
        let deadline = Instant::now() + patience;
        while started.is_err() && Instant::now() < deadline {
            thread::sleep(BREATH / 20);
            started = start();
        }
    }
    started
}

#[cfg(test)]
mod tests {
    use std::io::{self, Read};
    use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
    use std::time::Duration;

    use net::Stream;

    use super::with_room;
    use crate::config::StreamLimits;
    use crate::control_plane::streams::{Holder, Streams};
    use crate::worker::response_limiter::SourcePrefix;

    const PATIENCE: Duration = Duration::from_secs(60);

    #[test]
    fn where_no_more_threads_are_made_who_comes_gets_that_of_a_stranger() {
        let streams = Streams::new(StreamLimits::default());
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let enter = || {
            let peer = TcpStream::connect(listener.local_addr().expect("an address")).expect("a listener");
            let socket = listener.accept().expect("a connection").0;
            let stream = Stream::over(socket, PATIENCE).expect("a working socket");
            let from = SourcePrefix::of(IpAddr::V4(Ipv4Addr::LOCALHOST));
            let closer = stream.closer().expect("a descriptor");
            let place = streams.enter(closer, from, Duration::ZERO).expect("a place");
            peer.set_read_timeout(Some(Duration::from_millis(1))).expect("a working socket");
            (place, peer, stream)
        };
        let out_of_threads = || io::Error::from(io::ErrorKind::WouldBlock);
        let (first, opened) = (enter(), enter());
        opened.0.take(Holder::Operator).expect("always");
        let (second, comes) = (enter(), enter());
        for (_, peer, _) in [&first, &second] {
            let start = || match (&*peer).read(&mut [0]) {
                Ok(0) => Ok(()),
                _ => Err(out_of_threads()),
            };
            with_room(&streams, comes.0.number(), PATIENCE, start).expect("the oldest stranger was closed");
        }
        let start = || -> io::Result<()> { Err(out_of_threads()) };
        assert!(
            with_room(&streams, comes.0.number(), PATIENCE, start).is_err(),
            "nobody is left to be closed"
        );
        let census = streams.census();
        assert_eq!((census.unopened, census.leaving, census.operators), (1, 2, 1));
    }
}
