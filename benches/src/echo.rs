//! The floor under every latency: a bare polled UDP echo of the same sizes, on the same two cores.
//!
//! One thread answers, one asks, one datagram at a time, both spinning on non-blocking sockets; nothing
//! is decoded and nothing is looked up. What a get takes longer than this is what the server and the
//! client library cost.

use std::io::ErrorKind;
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;

use wire::limits::{FRAME_HEADER_BYTES, GROUP_HEADER_BYTES, MESSAGE_HEADER_BYTES};

use crate::machine;
use crate::measure::{Figures, Measure};

/// What the echo does. The default sizes are those of the frames of one get of a 30-byte key and of its
/// answer with a 100-byte value.
#[derive(Args, Clone, Debug, Serialize)]
pub struct EchoSettings {
    /// Core of the answering thread.
    #[arg(long, default_value_t = 0)]
    pub server_cpu: usize,
    /// Core of the asking thread.
    #[arg(long, default_value_t = 1)]
    pub cpu: usize,
    /// Bytes of a datagram to the server.
    #[arg(long, default_value_t = GET_FRAME_BYTES + 30)]
    pub request_bytes: usize,
    /// Bytes of a datagram back.
    #[arg(long, default_value_t = OBJECT_FRAME_BYTES + 100)]
    pub reply_bytes: usize,
    /// Seconds before measuring.
    #[arg(long, default_value_t = 0.5)]
    pub warmup: f64,
    /// Seconds measured.
    #[arg(long, default_value_t = 5.0)]
    pub seconds: f64,
}

/// Bytes of a frame with one message, the body apart.
const FRAME_BYTES: usize = FRAME_HEADER_BYTES + GROUP_HEADER_BYTES + MESSAGE_HEADER_BYTES;

/// Bytes of a get's frame, the key apart: the table.
const GET_FRAME_BYTES: usize = FRAME_BYTES + 4;

/// Bytes of the frame of a get's answer, the value apart: the version.
const OBJECT_FRAME_BYTES: usize = FRAME_BYTES + 8;

/// Bytes of the largest datagram of an echo.
const DATAGRAM_BYTES_MAX: usize = 65_507;

/// Runs the echo to its end.
pub fn run(settings: &EchoSettings) -> Result<Figures, String> {
    if settings.request_bytes > DATAGRAM_BYTES_MAX || settings.reply_bytes > DATAGRAM_BYTES_MAX {
        return Err(format!("a datagram has at most {DATAGRAM_BYTES_MAX} bytes"));
    }
    let server = socket().map_err(|error| format!("cannot open the echo's socket: {error}"))?;
    let client = socket().map_err(|error| format!("cannot open the echo's socket: {error}"))?;
    let address = server.local_addr().map_err(|error| error.to_string())?;
    client.connect(address).map_err(|error| error.to_string())?;
    let stop = Arc::new(AtomicBool::new(false));
    let answering = thread::spawn({
        let (stop, settings) = (Arc::clone(&stop), settings.clone());
        move || answer(&server, &settings, &stop)
    });
    let asked = machine::pin(settings.cpu).and_then(|()| ask(&client, settings));
    stop.store(true, Ordering::Relaxed);
    answering.join().map_err(|_| "the answering thread panicked".to_string())??;
    asked
}

fn socket() -> std::io::Result<UdpSocket> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

fn answer(socket: &UdpSocket, settings: &EchoSettings, stop: &AtomicBool) -> Result<(), String> {
    machine::pin(settings.server_cpu)?;
    let mut request = vec![0; settings.request_bytes + 1];
    let reply = vec![1; settings.reply_bytes];
    while !stop.load(Ordering::Relaxed) {
        match socket.recv_from(&mut request) {
            Ok((_, peer)) => drop(socket.send_to(&reply, peer).map_err(|error| error.to_string())?),
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
            Err(error) => return Err(format!("the echo cannot receive: {error}")),
        }
    }
    Ok(())
}

fn ask(socket: &UdpSocket, settings: &EchoSettings) -> Result<Figures, String> {
    let mut measure = Measure::new();
    let request = vec![2; settings.request_bytes];
    let mut reply = vec![0; settings.reply_bytes + 1];
    for seconds in [settings.warmup, settings.seconds] {
        measure.clear();
        let (start, span) = (Instant::now(), Duration::from_secs_f64(seconds));
        let mut sent = start;
        while sent - start < span {
            socket.send(&request).map_err(|error| error.to_string())?;
            loop {
                match socket.recv(&mut reply) {
                    Ok(_) => break,
                    Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error.to_string()),
                    // Loopback loses nothing that small; a second of silence means the other side is gone.
                    Err(_) if sent.elapsed() > Duration::from_secs(1) => {
                        return Err("the answering thread is silent".into());
                    }
                    Err(_) => std::hint::spin_loop(),
                }
            }
            let now = Instant::now();
            measure.answered((now - sent).as_nanos() as u64, 1);
            sent = now;
        }
    }
    Ok(measure.figures(settings.seconds))
}

#[cfg(test)]
mod tests {
    use super::{EchoSettings, FRAME_BYTES, GET_FRAME_BYTES, OBJECT_FRAME_BYTES, run};
    use wire::{Request, reply};

    fn settings(request_bytes: usize) -> EchoSettings {
        EchoSettings { server_cpu: 0, cpu: 0, request_bytes, reply_bytes: 164, warmup: 0.0, seconds: 0.05 }
    }

    #[test]
    fn an_echo_answers_and_is_timed() {
        let figures = std::thread::spawn(|| run(&settings(92))).join().unwrap().unwrap();
        assert!(figures.requests > 0);
        assert!(figures.latency_us_p50 > 0.0);
    }

    #[test]
    fn the_default_sizes_are_those_of_a_get_and_its_answer() {
        let get = Request::Get { table: 1, key: &[b'k'; 30] };
        assert_eq!(GET_FRAME_BYTES + 30, FRAME_BYTES + get.body_bytes());
        let object = reply::Object { version: 1, ttl_ms: None, value: &[b'v'; 100] };
        assert_eq!(OBJECT_FRAME_BYTES + 100, FRAME_BYTES + object.body_bytes());
    }

    #[test]
    fn an_echo_of_more_than_a_datagram_is_refused() {
        assert!(run(&settings(70_000)).is_err());
    }
}
