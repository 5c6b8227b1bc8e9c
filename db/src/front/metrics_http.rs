//! The metrics port: the server's counters over HTTP in the format of Prometheus.
//!
//! ```text
//!   GET /metrics  ─▶ snapshot: names, counters, handles     locks of the control plane, each for a copy of a list
//!                 ─▶ families, one after the other          no lock; sent as they come, 64 KiB at a time
//!   GET /health   ─▶ 200 while all workers run and the disk works, else 503, as while the server starts
//! ```
//! Only control threads serve metrics, a few at a time, one answer each, with limits on the bytes read, on the time
//! and on each source's rate. Workers write their counters as always and are not involved. Counters only grow while
//! the server runs. Anyone who can reach the port can read the names of all tenants: see docs/security.md.

mod extensions;
mod http;
mod server;
mod tenants;
mod text;

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};

use wire::ServerState;

use super::gate::Gate;
use super::listening::Reception;
use crate::config::StreamLimits;
use crate::control_plane::Control;
use crate::control_plane::streams::{ConnectionPermit, Holder, Streams};
use crate::limits::{METRICS_CONNECTIONS_MAX, METRICS_REQUESTS_BURST, METRICS_REQUESTS_PER_SECOND};
use crate::sync::lock;
use crate::worker::response_limiter::{ResponseLimiter, ResponseRate};
use extensions::Versions;
use http::{Fault, HttpResponse, Request};
use tenants::{ShownTables, ShownTenants};
use text::{Kind, MetricsText};

/// Content type that names the format to Prometheus.
const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Returns the reception of readers of metrics.
#[must_use]
pub fn reception(gate: &Arc<Gate>) -> Reception {
    let gate = Arc::clone(gate);
    let rate = ResponseRate { burst: METRICS_REQUESTS_BURST, per_second: METRICS_REQUESTS_PER_SECOND };
    let requests = Mutex::new(ResponseLimiter::new(rate));
    // Readers of metrics are not tenants.
    let places = METRICS_CONNECTIONS_MAX;
    let streams = Streams::new(StreamLimits { places, of_tenant: 0, reserve: places });
    Reception {
        name: "metrics",
        streams,
        serve: Box::new(move |stream, peer, place| {
            // A reader that leaves early gets no answer.
            let _ = serve(&gate, &requests, stream.into_socket(), (peer, place));
        }),
        turn_away: |stream| http::turn_away(stream.into_socket()),
    }
}

/// Answers one request.
fn serve(
    gate: &Gate,
    requests: &Mutex<ResponseLimiter>,
    mut socket: TcpStream,
    (peer, place): (SocketAddr, &ConnectionPermit),
) -> io::Result<()> {
    let request = match Request::read(&mut socket) {
        Ok(request) => request,
        Err(Fault::Gone) => return Ok(()),
        Err(Fault::Refused(status)) => return HttpResponse::refuse(socket, status),
    };
    let Some(control) = gate.control() else { return starting(gate, &request, socket)?.close() };
    if !lock(requests).take_for(peer, control.clock.now_us()) {
        return HttpResponse::refuse(socket, "429 Too Many Requests");
    }
    if place.take(Holder::Operator).is_err() {
        // The stream was closed for another one before the request was complete.
        return Ok(());
    }
    let answer = match request.path.as_str() {
        "/metrics" => metrics((control, gate), &request, socket),
        "/health" => health(control, &request, socket),
        _ => HttpResponse::refusal(socket, "404 Not Found"),
    }?;
    // The answer is sent; a reader that is slow to leave must not keep others out.
    place.give_up();
    answer.close()
}

/// Answers while the server starts: how far it is.
fn starting(gate: &Gate, request: &Request, socket: TcpStream) -> io::Result<HttpResponse> {
    let ServerState { replayed_bytes, log_bytes, .. } = gate.state();
    if !matches!(request.path.as_str(), "/metrics" | "/health") {
        return HttpResponse::refusal(socket, "404 Not Found");
    }
    if request.path == "/health" {
        let percent = replayed_bytes * 100 / log_bytes.max(1);
        let body = format!("starting: {percent} % of the log is replayed\n");
        let status = "503 Service Unavailable";
        let mut answer = HttpResponse::begin(socket, request, status, "text/plain; charset=utf-8")?;
        answer.write(body.as_bytes())?;
        return answer.end();
    }
    let mut answer = HttpResponse::begin(socket, request, "200 OK", CONTENT_TYPE)?;
    let mut text = MetricsText::new(|chunk: &[u8]| answer.write(chunk));
    write_replay(gate, &mut text)?;
    text.end()?;
    answer.end()
}

/// Writes how far the replay of the log is, or was at the start.
fn write_replay<W: FnMut(&[u8]) -> io::Result<()>>(gate: &Gate, text: &mut MetricsText<W>) -> io::Result<()> {
    let ServerState { is_serving, replayed_bytes, log_bytes } = gate.state();
    text.family("splinter_serving", Kind::Gauge, "1 once the server serves, 0 while it starts.")?;
    text.sample(&[], u64::from(is_serving))?;
    let help = "Bytes of the log that the start has replayed.";
    text.family("splinter_log_replayed_bytes", Kind::Gauge, help)?;
    text.sample(&[], replayed_bytes)?;
    text.family("splinter_log_replay_bytes", Kind::Gauge, "Bytes of the log that the start had to replay.")?;
    text.sample(&[], log_bytes)
}

fn health(control: &Control, request: &Request, socket: TcpStream) -> io::Result<HttpResponse> {
    let has_failed = control.log.as_ref().is_some_and(|log| log.waker.has_failed());
    let (status, body) = match control.workers_ended() {
        0 if has_failed => {
            ("503 Service Unavailable", "the disk of the durable tables has failed\n".to_owned())
        }
        0 if !control.has_settled() => {
            ("503 Service Unavailable", "waiting until other servers have the log\n".to_owned())
        }
        0 if control.is_fenced() => (
            "503 Service Unavailable",
            "no lease and no promises: other servers may serve what this one owns\n".to_owned(),
        ),
        0 => ("200 OK", "ok\n".to_owned()),
        ended => ("503 Service Unavailable", format!("{ended} workers have ended\n")),
    };
    let mut answer = HttpResponse::begin(socket, request, status, "text/plain; charset=utf-8")?;
    answer.write(body.as_bytes())?;
    answer.end()
}

fn metrics(
    (control, gate): (&Control, &Gate),
    request: &Request,
    socket: TcpStream,
) -> io::Result<HttpResponse> {
    let snapshot = MetricsSnapshot::of(control);
    let mut answer = HttpResponse::begin(socket, request, "200 OK", CONTENT_TYPE)?;
    let mut text = MetricsText::new(|chunk: &[u8]| answer.write(chunk));
    write_replay(gate, &mut text)?;
    snapshot.write(control, &mut text)?;
    text.end()?;
    answer.end()
}

/// Data that is copied under locks before anything is written.
struct MetricsSnapshot {
    /// Whether the metadata could be read.
    has_names: bool,
    tenants: ShownTenants,
    tables: ShownTables,
    versions: Versions,
}

impl MetricsSnapshot {
    fn of(control: &Control) -> Self {
        // Those of the server matter most when something has failed.
        let names = control.tenant_names().inspect_err(|error| {
            tracing::warn!(%error, "metrics without tenants: the metadata cannot be read");
        });
        let has_names = names.is_ok();
        let tenants = ShownTenants::of(control, names.unwrap_or_default());
        let tables = ShownTables::of(control, &tenants);
        let versions = Versions::of(control, &tenants);
        Self { has_names, tenants, tables, versions }
    }

    fn write<W: FnMut(&[u8]) -> io::Result<()>>(
        &self,
        control: &Control,
        text: &mut MetricsText<W>,
    ) -> io::Result<()> {
        text.family("splinter_build_info", Kind::Gauge, "Version of the server, as a label.")?;
        text.sample(&[("version", env!("CARGO_PKG_VERSION"))], 1)?;
        text.family("splinter_uptime_seconds", Kind::Gauge, "Time since the server started.")?;
        text.seconds(&[], "", control.clock.now_us() * 1000)?;
        text.family(
            "splinter_metadata_readable",
            Kind::Gauge,
            "1 if the metadata can be read; if not, no tenants are shown.",
        )?;
        text.sample(&[], u64::from(self.has_names))?;
        text.family(
            "splinter_metrics_left_out",
            Kind::Gauge,
            "Tenants, tables and versions not shown because there are too many.",
        )?;
        text.sample(&[("of", "tenants")], self.tenants.left_out)?;
        text.sample(&[("of", "tables")], self.tables.left_out)?;
        text.sample(&[("of", "versions")], self.versions.left_out)?;
        server::write(control, text)?;
        self.tenants.write(text)?;
        self.tables.write(text)?;
        self.versions.write(text)
    }
}
