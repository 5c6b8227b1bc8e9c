//! A server while it replays its log: it says how far it is, and who comes early waits.

use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use client::{Client, ClientConfig, Durability, ServerState, server_state};
use tests::patience::comes;
use tests::server::{Server, fetch, patient};

use super::{create, settings};

/// Objects of the log: in a debug build their replay takes tenths of a second.
const OBJECTS: u32 = 20_000;
const TOGETHER: usize = 500;

fn fill(client: &mut Client, table: u32) {
    let value = [7; 1_000];
    for first in (0..OBJECTS).step_by(TOGETHER) {
        let keys: Vec<_> = (first..first + TOGETHER as u32).map(u32::to_be_bytes).collect();
        let objects: Vec<_> = keys.iter().map(|key| (&key[..], &value[..])).collect();
        let written = client.multi_put(table, &objects).expect("the server answers");
        assert!(written.iter().all(Result::is_ok), "there is room");
    }
}

#[test]
fn a_server_that_replays_says_how_far_it_is_and_who_comes_early_waits() {
    let metrics = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port");
    let mut server = Server::start_with(settings("256MiB", &["--metrics", &metrics.to_string()]));
    let tenant = server.tenant("acme");
    let mut client = server.client(&tenant);
    let table = create(&mut client, "data", Durability::Written, false);
    fill(&mut client, table);
    client.table_alter("data", Durability::Synced).expect("it is on the disk");
    client.put(table, b"last", b"1").expect("and all before it");
    server.kill();

    let (address, is_up) = (server.address(), AtomicBool::new(false));
    let look = || server_state(&address.to_string(), &ClientConfig::default());
    let mut seen: Vec<ServerState> = Vec::new();
    let [mut was_starting, mut was_unknown] = [String::new(), String::new()];
    thread::scope(|scope| {
        let wait = server.command(&tenant).args(["server", "wait", "--output", "json"]).spawn();
        let starting = scope.spawn(|| {
            server.restart();
            is_up.store(true, Ordering::SeqCst);
        });
        comes("somebody listens", || look().ok());
        // It comes before the server serves, and is served when it does.
        let early = scope.spawn(|| {
            let (address, tenant) = (address.to_string(), &tenant);
            let mut client = Client::connect_with(&address, &tenant.name, &tenant.secret, patient());
            client
                .as_mut()
                .map(|client| client.get(table, b"last"))
                .expect("it is let in")
                .expect("an answer")
        });
        while !is_up.load(Ordering::SeqCst) {
            let state = look().expect("the server answers from the beginning on");
            if !state.is_serving && was_starting.is_empty() {
                was_starting = fetch(metrics, "/health").unwrap_or_default();
                was_unknown = fetch(metrics, "/unknown").unwrap_or_default();
            }
            seen.push(state);
        }
        starting.join().expect("it starts");
        assert!(early.join().expect("no panic").is_some(), "nothing is missing");
        let waited = wait.expect("the command runs").wait().expect("it ends");
        assert!(waited.success());
    });
    let states = seen.iter().filter(|state| !state.is_serving && state.log_bytes > 0);
    println!("{} looks while it replayed: {:?}", states.clone().count(), seen.first());
    assert!(states.clone().count() > 0, "it was seen at work");
    assert!(seen.is_sorted_by_key(|state| (state.is_serving, state.replayed_bytes)));
    assert!(was_starting.contains(" 503 ") && was_starting.contains("% of the log"), "{was_starting}");
    assert!(was_unknown.contains(" 404 "), "{was_unknown}");
    let last = look().expect("it serves");
    assert!(last.is_serving && last.replayed_bytes == last.log_bytes && last.log_bytes > 0, "{last:?}");
    assert!(fetch(metrics, "/health").expect("it serves").contains(" 200 "));
    let shown = fetch(metrics, "/metrics").expect("it serves");
    assert!(shown.contains("\nsplinter_serving 1\n"), "{shown}");
    assert!(shown.contains(&format!("\nsplinter_log_replayed_bytes {}\n", last.log_bytes)), "{shown}");
}
