//! A client that ignores its credits floods a core's port: others' requests in there are answered all the same.
//!
//! A binary of its own: beside a flood the kernel may drop what other tests send once.
//!
//! `cargo test --release -p tests --test flood -- --nocapture` shows the latency of the one beside it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use client::Request;
use tests::effort::rounds;
use tests::patience::Stopping;
use tests::raw::{PATIENCE, RawSession};
use tests::server::Server;
use wire::FrameWriter;
use wire::limits::FRAME_BYTES_MAX;

/// A full frame of gets of a session, as many as fit; and how many they are.
fn full_frame(session: &RawSession, table: u32) -> (Vec<u8>, u64) {
    let (request, mut writer) = (Request::Get { table, key: b"k" }, FrameWriter::new());
    let mut frame = vec![0; FRAME_BYTES_MAX];
    writer.start(&mut frame, session.opened.view);
    assert!(writer.group(&mut frame, session.opened.token, 1, 0), "an empty frame has room for a group");
    let mut messages = 0;
    while let Some(body) =
        writer.message(&mut frame, request.opcode(), 0, messages as u32 + 1, request.body_bytes())
    {
        request.encode(body);
        messages += 1;
    }
    let bytes = writer.finish(&mut frame);
    frame.truncate(bytes);
    (frame, messages)
}

/// Sends a frame over and over until it is told to stop, and takes no answer.
fn flood(session: &RawSession, frame: &[u8], stop: &AtomicBool, sent: &AtomicU64) {
    while !stop.load(Ordering::Relaxed) {
        // The kernel may refuse; then the next one.
        if session.send(frame).is_ok() {
            sent.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn statistic(server: &Server, name: &str) -> u64 {
    let statistics = server.admin().statistics().expect("the administrator may");
    statistics.iter().find(|statistic| statistic.name == name).expect("a counter").value
}

fn latencies(what: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_micros();
    println!("{what}: p50 {} us, p99 {} us, p99.9 {} us", at(0.5), at(0.99), at(0.999));
}

#[test]
fn a_flood_of_one_session_does_not_push_the_requests_of_others_out() {
    let server = Server::start();
    let mallory = server.tenant("mallory");
    let table = server.client(&mallory).table_create("data").expect("a fresh name");
    let session = RawSession::open(server.address(), &mallory.name, &mallory.secret).expect("the secret");
    let (mut acme, acme_table) = server.tenant_with_table("acme");
    acme.put(acme_table, b"k", b"untouched").expect("room");
    let (frame, messages) = full_frame(&session, table);
    let (stop, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut gets = |count: usize| -> Vec<Duration> {
        let get = |_| {
            let begin = Instant::now();
            let found = acme.get(acme_table, b"k").expect("an answer in time").expect("it is there");
            assert_eq!(found.value, b"untouched");
            begin.elapsed()
        };
        (0..count).map(get).collect()
    };
    latencies("alone", gets(2_000));
    let dropped = statistic(&server, "frames_dropped");
    let begin = Instant::now();
    thread::scope(|scope| {
        // Also a test that fails ends the flood.
        let _stopping = Stopping(&stop);
        scope.spawn(|| flood(&session, &frame, &stop, &sent));
        // What the kernel drops comes again after milliseconds: a get beside a flood can take that long.
        latencies("beside the flood", gets(rounds(40, 200)));
        let waits = Instant::now();
        while statistic(&server, "retries") == 0 {
            assert!(waits.elapsed() < 5 * PATIENCE, "no batch was as large");
        }
    });
    let per_second = sent.load(Ordering::Relaxed) * messages * 1_000 / begin.elapsed().as_millis() as u64;
    println!(
        "{per_second} requests/s of the flood; gets {}, retries {}, dropped messages {}, frames {}",
        statistic(&server, "gets"),
        statistic(&server, "retries"),
        statistic(&server, "messages_dropped"),
        statistic(&server, "frames_dropped") - dropped
    );
    latencies("after it", gets(2_000));
}
