//! The metrics port: what it shows is what was done, in the format that Prometheus reads, whatever else is sent
//! to it.

mod format;

use std::io::{Read, Write};
use std::iter;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use db::limits::{INVOCATIONS_PER_TIMING, METRICS_CONNECTIONS_MAX};
use wire::{Condition, Request, Status};

use super::client::Client;
use super::extensions::{COUNTER, install, invoke, package};
use super::logs::TALKER;
use super::{Site, file};
use format::Exposition;

/// Sends bytes to the metrics port and gives all that comes back.
fn ask(site: &Site, request: &[u8]) -> String {
    let mut socket = connect(site);
    // A server that has refused already may have closed.
    let _ = socket.write_all(request);
    let _ = socket.shutdown(Shutdown::Write);
    answer(socket)
}

fn connect(site: &Site) -> TcpStream {
    let socket = TcpStream::connect(metrics_port(site)).expect("a listener");
    socket.set_read_timeout(Some(Duration::from_secs(60))).expect("a working socket");
    socket
}

fn metrics_port(site: &Site) -> SocketAddr {
    site.server.metrics().expect("a server that shows metrics")
}

fn answer(mut socket: TcpStream) -> String {
    let mut answer = Vec::new();
    // What came before a reset counts.
    let _ = socket.read_to_end(&mut answer);
    String::from_utf8(answer).expect("text")
}

/// The number behind `HTTP/1.1`.
fn status(answer: &str) -> &str {
    answer.strip_prefix("HTTP/1.1 ").map_or("none", |rest| &rest[..3])
}

fn body(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").expect("a head").1
}

/// Everything that the metrics port shows.
pub fn scrape(site: &Site) -> Exposition {
    // In the older version the body comes as it is.
    let ask = || ask(site, b"GET /metrics HTTP/1.0\r\n\r\n");
    // Who looks again and again until something comes may be told to look less often.
    let answer = iter::repeat_with(ask).find(|answer| status(answer) != "429").expect("an answer");
    assert_eq!(status(&answer), "200");
    assert!(answer.contains("Content-Type: text/plain; version=0.0.4"), "{answer}");
    Exposition::parse(body(&answer))
}

/// A client of a fresh tenant with one table that sends nothing twice.
pub fn patient_tenant(site: &Site, name: &str) -> (Client, u32) {
    let secret = site.create_tenant(name);
    let mut client = Client::open_patient(site, name, &secret).expect("the right secret");
    let table = client.create_table("t");
    (client, table)
}

#[test]
fn what_is_shown_is_what_was_done() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start_compiling(directory.path(), 1, file(directory.path()));
    let (mut ann, table) = patient_tenant(&site, "ann");
    let (mut bob, other) = patient_tenant(&site, "bob");
    let talker = install(&mut ann, "talker", &package(TALKER)).expect("a good extension").extension;
    let before = scrape(&site);
    for number in 0..10_u8 {
        let key = [number];
        let put = Request::Put { table, key: &key, value: b"value", condition: Condition::Always };
        assert_eq!(ann.status(&put), Status::Ok);
        assert_eq!(ann.status(&Request::Get { table, key: &key }), Status::Ok);
    }
    assert_eq!(bob.status(&Request::Get { table: other, key: b"absent" }), Status::NotFound);
    for arguments in [&[2][..], &[2], &[2], &[]] {
        ann.status(&invoke(talker, "say", table, arguments));
    }
    let after = scrape(&site);
    let grown = |name: &str, labels: &[(&str, &str)]| after.value(name, labels) - before.value(name, labels);
    assert_eq!(grown("splinter_core_puts_total", &[("core", "0")]), 10.0);
    assert_eq!(grown("splinter_core_gets_total", &[("core", "0")]), 11.0);
    assert_eq!(grown("splinter_core_requests_total", &[("core", "0")]), 25.0);
    assert_eq!(after.value("splinter_tenant_objects", &[("tenant", "ann")]), 10.0);
    assert_eq!(after.value("splinter_tenant_objects", &[("tenant", "bob")]), 0.0);
    assert_eq!(after.value("splinter_table_objects", &[("tenant", "ann"), ("table", "t")]), 10.0);
    let of_ann = |name: &str| grown(name, &[("tenant", "ann")]);
    assert_eq!(of_ann("splinter_tenant_requests_total"), 24.0);
    assert_eq!(of_ann("splinter_tenant_puts_total"), 10.0);
    assert_eq!(of_ann("splinter_tenant_gets_total"), 10.0);
    assert_eq!(of_ann("splinter_tenant_invokes_total"), 4.0);
    assert!(of_ann("splinter_tenant_invocation_seconds_total") > 0.0);
    let answers = |tenant, status| {
        after.find("splinter_tenant_answers_total", &[("tenant", tenant), ("status", status)])
    };
    assert_eq!((answers("ann", "ok"), answers("ann", "malformed")), (Some(23.0), Some(1.0)));
    assert_eq!((answers("bob", "ok"), answers("bob", "not_found")), (None, Some(1.0)));
    let values_bytes = 10.0 * b"value".len() as f64;
    assert!(of_ann("splinter_tenant_received_bytes_total") > values_bytes);
    assert!(of_ann("splinter_tenant_sent_bytes_total") > values_bytes);
    assert_eq!(after.value("splinter_store_objects", &[]), 10.0);
    assert_eq!(after.value("splinter_tenant_sessions", &[("tenant", "ann")]), 1.0);
    let version = [("tenant", "ann"), ("extension", "talker"), ("version", "1")];
    assert_eq!(before.find("splinter_extension_calls_total", &version), None, "shown once it was called");
    assert_eq!(after.value("splinter_extension_calls_total", &version), 4.0);
    let [tenant, extension, number] = version;
    let errors =
        |kind| after.value("splinter_extension_errors_total", &[tenant, extension, number, ("kind", kind)]);
    assert_eq!((errors("other_error"), errors("panicked")), (1.0, 0.0));
    after.check_growth(&before);
    // One of some is timed, and not where its thread loses the core meanwhile.
    for _ in 0..8 * INVOCATIONS_PER_TIMING {
        ann.status(&invoke(talker, "say", table, &[2]));
    }
    let (timed, median) = (scrape(&site), [tenant, extension, number, ("quantile", "0.5")]);
    assert!(timed.find("splinter_extension_run_seconds", &median).is_some());
    assert!(timed.value("splinter_extension_run_seconds_count", &version) >= 1.0);
    assert_eq!(body(&ask(&site, b"GET /health HTTP/1.0\r\n\r\n")), "ok\n");
}

#[test]
fn what_invocations_read_and_write_is_shown_with_their_version() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start_compiling(directory.path(), 1, file(directory.path()));
    let (mut ann, table) = patient_tenant(&site, "ann");
    let counter = install(&mut ann, "counter", &package(COUNTER)).expect("a good extension").extension;
    for _ in 0..20 {
        let delta = 5_i64.to_le_bytes();
        assert_eq!(ann.status(&invoke(counter, "add", table, &delta)), Status::Ok);
        assert_eq!(ann.status(&invoke(counter, "length", table, &[])), Status::Ok);
    }
    let shown = scrape(&site);
    let version = [("tenant", "ann"), ("extension", "counter"), ("version", "1")];
    let value = |name: &str| shown.value(&format!("splinter_extension_{name}_total"), &version);
    assert_eq!((value("calls"), value("read_objects"), value("written_objects")), (40.0, 40.0, 20.0));
    // A key of one byte and a number.
    assert_eq!(value("written_bytes"), 20.0 * 9.0);
    assert!(value("read_bytes") >= 20.0 * 8.0);
    // Shown, whatever it is: a thread that loses its core in a poll is preempted, however short the function is.
    value("preemptions");
    assert_eq!((value("conflicts"), value("yields")), (0.0, 0.0));
    assert!(value("cpu_seconds") > 0.0);
}

#[test]
fn whatever_is_sent_gets_a_status_and_the_server_serves_on() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start(directory.path(), 1, 1);
    let (mut ann, table) = site.tenant_with_table("ann");
    let long = [b"GET /metrics?".as_slice(), &[b'x'; 20_000], b" HTTP/1.1\r\n\r\n"].concat();
    let cases: [(&[u8], &str); 9] = [
        (b"GET / HTTP/1.1\r\n\r\n", "404"),
        (b"GET /metrics/../etc/passwd HTTP/1.1\r\n\r\n", "404"),
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", "405"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\n\n", "400"),
        (b"GET /metrics HTTP/1.1\r\nno colon\r\n\r\n", "400"),
        (b"GET /metrics HTTP/9.9\r\n\r\n", "400"),
        (b"GET \xff\xfe HTTP/1.1\r\n\0: \r\n\r\n", "400"),
        (&long, "431"),
        (b"GET /metrics HTTP/1.1\r\n", "none"),
    ];
    for (request, expected) in cases {
        let answer = ask(&site, request);
        assert_eq!(status(&answer), expected, "{} got {answer}", request.escape_ascii());
    }
    let head = ask(&site, b"HEAD /metrics HTTP/1.1\r\n\r\n");
    assert_eq!((status(&head), body(&head)), ("200", ""));
    let chunked = ask(&site, b"GET /metrics?a=b HTTP/1.1\r\nHost: here\r\n\r\n");
    assert!(chunked.contains("Transfer-Encoding: chunked") && chunked.ends_with("\r\n0\r\n\r\n"));
    assert_eq!(ann.status(&Request::Get { table, key: b"k" }), Status::NotFound);
}

#[test]
fn connections_that_say_nothing_are_limited_in_number_and_time() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start(directory.path(), 1, 1);
    let (mut ann, table) = site.tenant_with_table("ann");
    let mut silent: Vec<TcpStream> = (0..3 * METRICS_CONNECTIONS_MAX).map(|_| connect(&site)).collect();
    let last = silent.len() - 1;
    silent[last].write_all(b"GET /metrics HT").expect("the server reads");
    assert_eq!(ann.status(&Request::Get { table, key: b"k" }), Status::NotFound);
    // Who asks something gets a place, for which the oldest of them is closed.
    scrape(&site);
    // Of the others some stay until their time is over.
    for socket in silent {
        assert!(["none", "408"].contains(&status(&answer(socket))));
    }
    scrape(&site);
}

#[test]
fn who_asks_too_often_is_told_so() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start(directory.path(), 1, 1);
    let health = || ask(&site, b"GET /health HTTP/1.0\r\n\r\n");
    let refused = (0..10_000).find(|_| status(&health()) == "429");
    assert!(refused.is_some(), "a limit there is");
    // The bucket fills again.
    while status(&health()) != "200" {}
}
