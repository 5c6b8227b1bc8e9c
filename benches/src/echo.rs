//! The floor under every latency: a bare polled echo of the same sizes, on the same two cores.
//!
//! One thread answers, one asks, one frame at a time, both spinning: over sockets of kernel UDP, or over the rings of
//! shared memory that the server's port has. Nothing is decoded and nothing is looked up. What a get takes longer than
//! this is what the server and the client library cost.
//!
//! With `--asleep` both sleep in the kernel over a TCP stream, as a server's log and its backups do: the floor under what
//! these add.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use clap::Args;
use net::{
    Batch, Entry, HostPort, ListenerAddress, ListenerLimits, Outbox, Port, ShmListener, UdpConfig, shm,
};
use serde::Serialize;
use wire::limits::{FRAME_HEADER_BYTES, GROUP_HEADER_BYTES, MESSAGE_HEADER_BYTES};

use crate::machine;
use crate::measure::{Figures, Measure};
use crate::options::TransportOption;
use crate::process::Folder;

/// The options of `splinter-bench echo`. The default sizes are those of the frames of one get with a 30-byte key and of
/// its reply with a 100-byte value.
#[derive(Args, Clone, Debug, Serialize)]
pub struct EchoSettings {
    /// Core of the echoing thread.
    #[arg(long, default_value_t = 0)]
    pub server_cpu: usize,
    /// Core of the sending thread.
    #[arg(long, default_value_t = 1)]
    pub cpu: usize,
    /// Transport of frames.
    #[arg(long, value_enum, default_value = "udp")]
    pub transport: TransportOption,
    /// Sleep until something comes, over TCP in place of the transport.
    #[arg(long)]
    pub asleep: bool,
    /// Bytes of a frame to the server side.
    #[arg(long, default_value_t = GET_FRAME_BYTES + 30)]
    pub request_bytes: usize,
    /// Bytes of a frame back.
    #[arg(long, default_value_t = OBJECT_FRAME_BYTES + 100)]
    pub reply_bytes: usize,
    /// Seconds of warm-up.
    #[arg(long, default_value_t = 0.5)]
    pub warmup: f64,
    /// Seconds to measure.
    #[arg(long, default_value_t = 5.0)]
    pub seconds: f64,
}

/// Bytes of a frame with one message, the body apart.
const FRAME_BYTES: usize = FRAME_HEADER_BYTES + GROUP_HEADER_BYTES + MESSAGE_HEADER_BYTES;

/// Bytes of a get's frame, the key apart: the table.
const GET_FRAME_BYTES: usize = FRAME_BYTES + 4;

/// Bytes of the frame of a get's answer, the value apart: the version.
const OBJECT_FRAME_BYTES: usize = FRAME_BYTES + 8;

/// An answer that does not come for so long never will.
const PATIENCE: Duration = Duration::from_secs(1);

/// Bytes of the largest datagram of an echo.
const DATAGRAM_BYTES_MAX: usize = 65_507;

/// The side that answers.
trait Answering {
    /// Answers what has arrived, if something has.
    fn turn(&mut self, reply: &[u8]) -> Result<(), String>;
}

/// The side that asks.
trait Asking {
    /// Sends a request.
    fn send(&mut self, request: &[u8]) -> Result<(), String>;

    /// Whether the answer has arrived, which is taken then.
    fn take(&mut self) -> Result<bool, String>;
}

/// Runs the echo to its end.
pub fn run(settings: &EchoSettings) -> Result<Figures, String> {
    let largest = settings.request_bytes.max(settings.reply_bytes);
    if settings.asleep {
        let (answering, asking) = tcp_pair(settings)?;
        return between(answering, asking, settings);
    }
    match settings.transport {
        TransportOption::Udp => {
            let (answering, asking) = udp_pair(largest)?;
            between(answering, asking, settings)
        }
        TransportOption::Shm => {
            let (answering, asking) = shm_pair(largest)?;
            between(answering, asking, settings)
        }
    }
}

fn between(
    mut answering: impl Answering + Send + 'static,
    asking: impl Asking,
    settings: &EchoSettings,
) -> Result<Figures, String> {
    let stop = Arc::new(AtomicBool::new(false));
    let answers = thread::spawn({
        let (stop, settings) = (Arc::clone(&stop), settings.clone());
        move || {
            machine::pin(settings.server_cpu)?;
            let reply = vec![1; settings.reply_bytes];
            while !stop.load(Ordering::Relaxed) {
                answering.turn(&reply)?;
            }
            Ok::<(), String>(())
        }
    });
    let asked = machine::pin(settings.cpu).and_then(|()| ask(asking, settings));
    stop.store(true, Ordering::Relaxed);
    answers.join().map_err(|_| "the answering thread panicked".to_string())??;
    asked
}

fn ask(mut asking: impl Asking, settings: &EchoSettings) -> Result<Figures, String> {
    let mut measure = Measure::default();
    let request = vec![2; settings.request_bytes];
    for seconds in [settings.warmup, settings.seconds] {
        measure.clear();
        let (start, span) = (Instant::now(), Duration::from_secs_f64(seconds));
        let mut sent = start;
        while sent - start < span {
            asking.send(&request)?;
            let mut looks = 0_u32;
            while !asking.take()? {
                looks = looks.wrapping_add(1);
                if looks.is_multiple_of(1 << 16) && sent.elapsed() > PATIENCE {
                    return Err("the answering thread is silent".into());
                }
                std::hint::spin_loop();
            }
            let now = Instant::now();
            measure.answered((now - sent).as_nanos() as u64, 1);
            sent = now;
        }
    }
    Ok(measure.figures(settings.seconds))
}

/// A socket, and room for what arrives.
struct UdpEnd {
    socket: UdpSocket,
    arrived: Box<[u8]>,
}

/// Two sockets for datagrams of up to `largest` bytes; the second speaks with the first alone.
fn udp_pair(largest: usize) -> Result<(UdpEnd, UdpEnd), String> {
    if largest > DATAGRAM_BYTES_MAX {
        return Err(format!("a datagram has at most {DATAGRAM_BYTES_MAX} bytes"));
    }
    let end = || -> io::Result<UdpEnd> {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        socket.set_nonblocking(true)?;
        Ok(UdpEnd { socket, arrived: vec![0; largest + 1].into() })
    };
    let both = || -> io::Result<(UdpEnd, UdpEnd)> {
        let (answering, asking) = (end()?, end()?);
        asking.socket.connect(answering.socket.local_addr()?)?;
        Ok((answering, asking))
    };
    both().map_err(|error| format!("cannot open the echo's sockets: {error}"))
}

impl Answering for UdpEnd {
    fn turn(&mut self, reply: &[u8]) -> Result<(), String> {
        match self.socket.recv_from(&mut self.arrived) {
            Ok((_, peer)) => self.socket.send_to(reply, peer).map(drop).map_err(|error| error.to_string()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                std::hint::spin_loop();
                Ok(())
            }
            Err(error) => Err(format!("the echo cannot receive: {error}")),
        }
    }
}

impl Asking for UdpEnd {
    fn send(&mut self, request: &[u8]) -> Result<(), String> {
        self.socket.send(request).map(drop).map_err(|error| error.to_string())
    }

    fn take(&mut self) -> Result<bool, String> {
        match self.socket.recv(&mut self.arrived) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// The end of a stream, on which reads block, and room for what arrives.
struct TcpEnd {
    stream: TcpStream,
    arrived: Box<[u8]>,
}

/// Both ends of a stream.
fn tcp_pair(settings: &EchoSettings) -> Result<(TcpEnd, TcpEnd), String> {
    let both = || -> io::Result<(TcpEnd, TcpEnd)> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let asking = TcpStream::connect(listener.local_addr()?)?;
        let (answering, _) = listener.accept()?;
        for stream in [&asking, &answering] {
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(PATIENCE))?;
        }
        let end = |stream, bytes: usize| TcpEnd { stream, arrived: vec![0; bytes].into() };
        Ok((end(answering, settings.request_bytes), end(asking, settings.reply_bytes)))
    };
    both().map_err(|error| format!("cannot open the echo's stream: {error}"))
}

impl Answering for TcpEnd {
    fn turn(&mut self, reply: &[u8]) -> Result<(), String> {
        match self.stream.read_exact(&mut self.arrived) {
            Ok(()) => self.stream.write_all(reply).map_err(|error| error.to_string()),
            // Nobody asks any more.
            Err(_) => Ok(()),
        }
    }
}

impl Asking for TcpEnd {
    fn send(&mut self, request: &[u8]) -> Result<(), String> {
        self.stream.write_all(request).map_err(|error| error.to_string())
    }

    fn take(&mut self) -> Result<bool, String> {
        self.stream.read_exact(&mut self.arrived).map_err(|error| error.to_string())?;
        Ok(true)
    }
}

/// A port, and room for what arrives and leaves.
struct ShmEnd {
    port: HostPort,
    batch: Batch,
    outbox: Outbox,
}

/// The end at whose listener the other has knocked; both end together.
struct Host {
    end: ShmEnd,
    stop: net::StopHandle,
    listener: Option<JoinHandle<()>>,
    /// Where the listener is.
    _folder: Folder,
}

/// The end that has knocked.
struct Guest {
    end: ShmEnd,
    host: SocketAddr,
}

/// Lets everybody in, to the only core.
struct Everybody;

impl shm::Admission for Everybody {
    fn admit(&mut self, _: shm::Attacher<'_>) -> Result<usize, String> {
        Ok(0)
    }

    fn is_over(&mut self, _: &[u8]) -> bool {
        false
    }

    fn note(&mut self, text: &str) {
        eprintln!("{text}");
    }
}

/// Two ports and a link between them, for frames of up to `largest` bytes.
fn shm_pair(largest: usize) -> Result<(Host, Guest), String> {
    let failed = |error: io::Error| format!("cannot open the echo's ports: {error}");
    let (host, mut guest) = (ShmEnd::open().map_err(failed)?, ShmEnd::open().map_err(failed)?);
    if largest > host.port.frame_bytes_max() {
        return Err(format!("a frame has at most {} bytes", host.port.frame_bytes_max()));
    }
    let folder = Folder::make("echo")?;
    let address = ListenerAddress { path: folder.join("listener"), user: shm::own_user() };
    let limits = ListenerLimits { of_core: 1, of_user: 1 };
    let listener = ShmListener::open(&address.path, vec![host.port.link_point()], limits).map_err(failed)?;
    let stop = listener.stop_handle();
    // A listener that breaks lets nobody in, which the guest notices.
    let listener = thread::spawn(move || drop(listener.run(&mut Everybody)));
    let host = Host { end: host, stop, listener: Some(listener), _folder: folder };
    let pending = guest.port.attach(&address, b"echo");
    let link = match pending.and_then(|pending| guest.port.enter(pending, PATIENCE)) {
        Ok(Entry::Attached(link)) => link,
        Ok(Entry::Waiting(_)) => return Err("no shared memory: the listener says nothing".into()),
        Err(error) => return Err(format!("no shared memory: {error}")),
    };
    guest.port.set_peer(link).map_err(failed)?;
    Ok((host, Guest { end: guest, host: link }))
}

impl ShmEnd {
    fn open() -> io::Result<Self> {
        let port = HostPort::bind(SocketAddr::from(([127, 0, 0, 1], 0)), UdpConfig::default())?;
        let outbox = Outbox::new(port.frame_bytes_max());
        Ok(Self { port, batch: Batch::new(), outbox })
    }

    fn send(&mut self, frame: &[u8], peer: SocketAddr) -> Result<(), String> {
        self.outbox.push(frame, peer);
        self.port.send(&mut self.outbox).map(drop).map_err(|error| error.to_string())
    }

    fn receive(&mut self) -> Result<usize, String> {
        self.port.receive(&mut self.batch).map_err(|error| error.to_string())
    }
}

impl Answering for Host {
    fn turn(&mut self, reply: &[u8]) -> Result<(), String> {
        for frame in 0..self.end.receive()? {
            let (_, peer) = self.end.batch.frame(frame);
            self.end.send(reply, peer)?;
        }
        Ok(())
    }
}

impl Asking for Guest {
    fn send(&mut self, request: &[u8]) -> Result<(), String> {
        self.end.send(request, self.host)
    }

    fn take(&mut self) -> Result<bool, String> {
        Ok(self.end.receive()? > 0)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.stop.stop();
        // One that panicked has said so.
        let _ = self.listener.take().map(JoinHandle::join);
    }
}

#[cfg(test)]
mod tests {
    use super::{EchoSettings, FRAME_BYTES, GET_FRAME_BYTES, OBJECT_FRAME_BYTES, run};
    use crate::options::TransportOption;
    use wire::{Request, reply};

    fn settings(transport: TransportOption, request_bytes: usize) -> EchoSettings {
        let (warmup, seconds) = (0.0, 0.05);
        EchoSettings {
            asleep: false,
            server_cpu: 0,
            cpu: 0,
            transport,
            request_bytes,
            reply_bytes: 164,
            warmup,
            seconds,
        }
    }

    #[test]
    fn an_echo_answers_and_is_timed() {
        for transport in [TransportOption::Udp, TransportOption::Shm] {
            let settings = settings(transport, 92);
            let figures = std::thread::spawn(move || run(&settings)).join().unwrap().unwrap();
            assert!(figures.requests > 0);
            assert!(figures.latency_us_p50 > 0.0);
        }
    }

    #[test]
    fn the_default_sizes_are_those_of_a_get_and_its_answer() {
        let get = Request::Get { table: 1, key: &[b'k'; 30] };
        assert_eq!(GET_FRAME_BYTES + 30, FRAME_BYTES + get.body_bytes());
        let object = reply::Object { version: 1, ttl_ms: None, value: &[b'v'; 100] };
        assert_eq!(OBJECT_FRAME_BYTES + 100, FRAME_BYTES + object.body_bytes());
    }

    #[test]
    fn an_echo_of_more_than_a_frame_is_refused() {
        assert!(run(&settings(TransportOption::Udp, 70_000)).is_err());
        assert!(run(&settings(TransportOption::Shm, 1_473)).is_err());
    }
}
