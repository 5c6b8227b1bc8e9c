//! The benches of isolation, of transports and of clients, with tiny sizes: they measure something, print it, and leave nothing behind.
//!
//! What they measure is no claim of these tests: a loaded machine would break it. A binary of its own: no request of a bench
//! may fail, and each keeps two cores busy.

use std::fs;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use benches::command::{Command, Options};
use clap::Parser;
use serde_json::Value;
use tests::server::{Server, binary};

/// One at a time: each bench keeps two cores busy.
static TURN: Mutex<()> = Mutex::new(());

/// The command as it would be given, short, with figures to `folder`.
fn command(server: &Server, folder: &Path, name: &str, more: &[&str]) -> Command {
    let (address, folder) = (server.address().to_string(), folder.to_str().expect("a path of letters"));
    let secret = server.admin_secret();
    let always = ["splinter-bench", name, "--address", &address, "--admin-secret", &secret, "--out", folder];
    let short = ["--seconds", "0.2", "--warmup", "0.05", "--runs", "1"];
    let words = always.iter().chain(&short).chain(more);
    Options::try_parse_from(words).expect("the command line is good").command
}

/// The lines of JSON that a bench left.
fn lines(folder: &Path, name: &str) -> Vec<Value> {
    let text = fs::read_to_string(folder.join(format!("{name}.jsonl"))).expect("there are figures");
    text.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect()
}

/// Every element of a plot is closed, in order.
fn check_plot(path: &Path) {
    let text = fs::read_to_string(path).expect("there is a plot");
    let mut open = Vec::new();
    for piece in text.split('<').skip(1) {
        let (tag, _) = piece.split_once('>').expect("a tag ends");
        let name = tag.split([' ', '\n', '/']).find(|word| !word.is_empty()).expect("a tag has a name");
        match (tag.starts_with('/'), tag.ends_with('/')) {
            (true, _) => assert_eq!(open.pop(), Some(name), "{}", path.display()),
            (false, false) => open.push(name),
            (false, true) => {}
        }
    }
    assert_eq!(open, Vec::<&str>::new());
    assert!(text.starts_with("<svg") && text.contains("<text"), "{}", path.display());
}

/// No tenant of a bench is left.
fn nobody_is_left(server: &Server) {
    let tenants = server.admin().tenant_list().expect("an answer");
    assert!(tenants.is_empty(), "{tenants:?}");
}

#[test]
fn the_neighbour_bench_measures_every_case_and_its_loops_end_with_the_typed_error() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let (server, folder) = (Server::start(), tempfile::tempdir().expect("a folder"));
    let words = ["--rate", "500", "--keys", "100", "--loops", "3"];
    let Command::Neighbour(settings) = command(&server, folder.path(), "neighbour", &words) else {
        panic!("another command");
    };
    benches::neighbour::run(&settings).expect("it is measured");
    let lines = lines(folder.path(), "neighbour");
    let rows: Vec<&Value> = lines.iter().filter(|line| line["run"] == 0).collect();
    assert_eq!(rows.len(), 6);
    for row in rows {
        assert!(row["victim"]["requests"].as_u64() > Some(0), "{row}");
        assert_eq!(row["victim"]["errors"], serde_json::json!({}), "{row}");
        assert_eq!(row["settings"]["sandbox"], "wasm", "{row}");
    }
    let loops = lines.last().expect("the loops come last");
    assert_eq!(
        (&loops["loops"], &loops["answered_otherwise"], &loops["traces_left"]),
        (&3.into(), &0.into(), &0.into())
    );
    check_plot(&folder.path().join("neighbour.svg"));
    check_plot(&folder.path().join("loops.svg"));
    nobody_is_left(&server);
}

#[test]
fn the_density_bench_gets_right_answers_of_many_tenants() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let (server, folder) = (Server::start(), tempfile::tempdir().expect("a folder"));
    let words = ["--tenants", "12", "--extensions", "3", "--outstanding", "16", "--frame-requests", "4"];
    let Command::Density(settings) = command(&server, folder.path(), "density", &words) else {
        panic!("another command");
    };
    benches::density::run(&settings).expect("it is measured");
    let lines = lines(folder.path(), "density");
    let rows: Vec<&Value> = lines.iter().filter(|line| line["run"] == 0).collect();
    assert_eq!(rows.len(), 6, "three loads, each with much outstanding and with little");
    for row in rows {
        assert!(row["figures"]["requests"].as_u64() > Some(0), "{row}");
        assert_eq!(row["figures"]["errors"], serde_json::json!({}), "{row}");
    }
    check_plot(&folder.path().join("density.svg"));
    nobody_is_left(&server);
}

#[test]
fn the_fairness_bench_accounts_for_all_shares() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let (server, folder) = (Server::start(), tempfile::tempdir().expect("a folder"));
    let words = ["--weights", "1,2,3", "--sandbox", "native"];
    let Command::Fairness(settings) = command(&server, folder.path(), "fairness", &words) else {
        panic!("another command");
    };
    benches::fairness::run(&settings).expect("it is measured");
    let lines = lines(folder.path(), "fairness");
    for row in lines.iter().filter(|line| line["run"] == 0) {
        let shares = row["shares"].as_array().expect("shares");
        let percent: f64 = shares.iter().filter_map(|share| share["percent"].as_f64()).sum();
        assert!(shares.len() == 3 && (percent - 100.0).abs() < 0.01, "{row}");
        assert_eq!(row["settings"]["sandbox"], "native", "{row}");
    }
    assert_eq!(lines.len(), 2 + 6);
    check_plot(&folder.path().join("fairness.svg"));
    nobody_is_left(&server);
}

#[test]
fn the_transports_bench_measures_each_way_or_says_why_not() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().expect("a folder");
    let path = |path: &Path| path.to_str().expect("a path of letters").to_owned();
    let (server, client) = (path(&binary("splinter-server")), path(&binary("splinter-bench")));
    let words = ["splinter-bench", "transports", "--ways", "udp,udp-packed,shm,shm-packed,memif"];
    let short = ["--runs", "1", "--seconds", "0.2", "--keys", "1000", "--outstanding", "100,300"];
    let programs = ["--server", &server, "--client", &client, "--out", &path(folder.path())];
    let words = words.iter().chain(&short).chain(&programs);
    let Command::Transports(settings) = Options::try_parse_from(words).expect("a good command line").command
    else {
        panic!("another command");
    };
    benches::transports::run(&settings).expect("it is measured");
    let lines = lines(folder.path(), "transports");
    let of = |way: &str, run: Value| -> Value {
        let found = lines.iter().find(|line| line["way"] == way && line["run"] == run);
        found.unwrap_or_else(|| panic!("no line of {way}")).clone()
    };
    for way in ["udp", "udp-packed", "shm", "shm-packed"] {
        let (seen, median) = (&of(way, 0.into())["seen"], of(way, Value::Null));
        assert!(seen["latency_us_p50"].as_f64() > Some(0.0), "{way}: {seen}");
        let loads = seen["loads"].as_array().expect("several loads");
        // Of as many sessions as the largest needs.
        assert_eq!(loads.iter().map(|load| &load["outstanding"]).collect::<Vec<_>>(), [100, 300], "{way}");
        for load in loads {
            assert!(load["requests_per_second"].as_f64() > Some(0.0), "{way}: {load}");
            assert!(load["server_busy"].as_f64() > Some(0.0), "{way}: {load}");
            assert_eq!(load["moved"]["stream_requests"], 0, "{way}: all fit their frames");
        }
        // A few are sent again where the machine is loaded, or share a frame with one that is, so this is no equality.
        let each = median["requests_per_frame_sent"]["median"].as_f64().expect("a figure");
        assert_eq!(each > 2.0, way.ends_with("-packed"), "{way}: {each} requests in a frame");
        assert!(each < 1.01 || way.ends_with("-packed"), "{way}: {each} requests in a frame");
    }
    let without = of("memif", Value::Null);
    assert!(
        without["failure"].as_str().is_some_and(|why| why.contains("cargo build --release")),
        "{without}"
    );
    check_plot(&folder.path().join("transports.svg"));
}

#[test]
fn the_bench_of_clients_measures_every_interface() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().expect("a folder");
    let path = |path: &Path| path.to_str().expect("a path of letters").to_owned();
    let (server, folder_path) = (path(&binary("splinter-server")), path(folder.path()));
    let words = ["splinter-bench", "clients", "--runs", "1", "--seconds", "0.2", "--keys", "1000"];
    let words = words.iter().copied().chain(["--server", &server, "--out", &folder_path]);
    let Command::Clients(settings) = Options::try_parse_from(words).expect("a good command line").command
    else {
        panic!("another command");
    };
    benches::clients::run(&settings).expect("it is measured");
    let medians: Vec<_> =
        lines(folder.path(), "clients").into_iter().filter(|line| line["run"].is_null()).collect();
    assert_eq!(medians.len(), 7);
    for median in medians {
        assert!(median["per_second"]["median"].as_f64() > Some(0.0), "{median}");
    }
}
