//! What an operator and a tenant see from outside: the metrics port, `splinter stats`, `splinter trace`.

use std::io::Read;
use std::net::SocketAddr;
use std::process::{Command, Stdio};

use client::{Client, ClientConfig, Transport};
use serde_json::Value;
use tests::package::install_source;
use tests::patience::comes;
use tests::server::{Server, Settings, Tenant, binary, fetch, patient};

const SAMPLE: &str = r#"
#![no_std]
use sandstorm::{Args, Db, Error, Reply};

sandstorm::extension! { write touch }

/// Writes what it read under the key.
async fn touch(db: &Db<'_>, args: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> {
    let value = db.get(args.table(), args.key()).await?.ok_or(Error::NotFound)?;
    db.put(args.table(), args.key(), value).await
}
"#;

/// A server that shows metrics, and the address of their port.
fn server() -> (Server, SocketAddr) {
    server_with(Settings::default())
}

fn server_with(settings: Settings) -> (Server, SocketAddr) {
    let wrapper = vec!["env".to_owned(), "SPLINTER_METRICS=127.0.0.1:0".to_owned()];
    let server = Server::start_with(Settings { wrapper, ..settings });
    let metrics = server.metrics();
    (server, metrics)
}

fn fetched(metrics: SocketAddr, path: &str) -> String {
    fetch(metrics, path).expect("the port is open")
}

fn splinter(server: &Server) -> Command {
    let mut command = Command::new(binary("splinter"));
    command.env_clear().env("HOME", server.directory());
    command.env("SPLINTER_ADDRESS", server.address().to_string()).args(["--output", "json"]);
    command
}

fn as_tenant(server: &Server, tenant: &Tenant) -> Command {
    let mut command = splinter(server);
    command.env("SPLINTER_TENANT", &tenant.name).env("SPLINTER_SECRET", &tenant.secret);
    command
}

#[test]
fn metrics_and_stats_agree_on_what_a_tenant_did() {
    let (server, metrics) = server();
    let ann = server.tenant("ann");
    let mut client = server.client(&ann);
    let table = client.table_create("t").expect("a fresh name");
    for _ in 0..10 {
        client.get(table, b"k").expect("an answer");
    }
    assert!(fetched(metrics, "/health").ends_with("\r\n\r\nok\n"));
    let text = fetched(metrics, "/metrics");
    let line = text.lines().find_map(|line| line.strip_prefix("splinter_tenant_gets_total{tenant=\"ann\"} "));
    // What is sent twice on a busy machine counts twice.
    let gets: u64 = line.expect("the tenant is shown").parse().expect("a number");
    assert!(gets >= 10, "{gets}");
    let mut administrator = splinter(&server);
    administrator.env("SPLINTER_ADMIN_SECRET", server.admin_secret());
    for command in [administrator.args(["stats", "--tenant", "ann"]), as_tenant(&server, &ann).arg("stats")] {
        let output = command.output().expect("the command runs");
        let counters: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        // Nor does a copy that came late count less.
        assert!(counters["gets"].as_u64() >= Some(gets), "{counters}");
        assert_eq!(counters["tables"], 1);
    }
    // The store's are the server's: whoever looks in vain hears why.
    let mut command = as_tenant(&server, &ann);
    let output = command.args(["stats", "store"]).output().expect("the command runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("`store`") && said.contains("administrator"), "{said}");
}

#[test]
fn what_passes_shared_memory_is_counted_by_core_and_for_the_administrator() {
    let [with, without] = ["udp,shm", "udp"]
        .map(|transport| server_with(Settings { transport: transport.to_owned(), ..Settings::default() }));
    let (server, metrics) = with;
    let figure = |name: &str| {
        let text = fetched(metrics, "/metrics");
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("splinter_shm_{name} ")));
        line.unwrap_or_else(|| panic!("no {name}")).parse::<u64>().expect("a number")
    };
    let ann = server.tenant("ann");
    // One that does not insist goes by UDP where the server does not let it in within some milliseconds.
    let config = ClientConfig { transport: Transport::Shm, ..patient() };
    let address = server.address().to_string();
    let mut client = Client::connect_with(&address, &ann.name, &ann.secret, config).expect("it is let in");
    let table = client.table_create("t").expect("a fresh name");
    // A frame is counted behind its sending: the answer to the last one says that those before are.
    for _ in 0..11 {
        client.get(table, b"k").expect("an answer");
    }
    let of_core = |name: &str| figure(&format!("{name}{{core=\"0\"}}"));
    assert_eq!(
        (of_core("links"), of_core("links_made_total"), of_core("links_cut_total")),
        (1, 1, 0),
        "the client is on this host"
    );
    let frames = ["frames_received_total", "frames_sent_total"].map(of_core);
    assert!(frames.iter().all(|frames| *frames >= 10), "{frames:?}");
    assert_eq!((of_core("frames_lost_total"), figure("links_refused_total")), (0, 0));
    let mut administrator = splinter(&server);
    administrator.env("SPLINTER_ADMIN_SECRET", server.admin_secret()).args(["stats", "shm"]);
    let output = administrator.output().expect("the command runs");
    let counters: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((counters["shm_links"].as_u64(), counters["shm_links_made"].as_u64()), (Some(1), Some(1)));
    assert!(counters["shm_frames_received"].as_u64() >= Some(10), "{counters}");
    drop(client);
    comes("the link is over with its client", || (of_core("links") == 0).then_some(()));
    assert_eq!(of_core("links_made_total"), 1);
    assert!(!fetched(without.1, "/metrics").contains("splinter_shm"));
}

#[test]
fn a_server_whose_metrics_port_is_taken_says_so_and_ends() {
    let (server, metrics) = server();
    let data = tempfile::tempdir().expect("a directory");
    let mut second = Command::new(binary("splinter-server"));
    second.args([
        "--listen",
        "127.0.0.1:0",
        "--memory",
        "64MiB",
        "--metrics",
        &metrics.to_string(),
        "--data",
    ]);
    let output = second.arg(data.path()).output().expect("the server runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains(&format!("cannot serve metrics on TCP {metrics}")), "{said}");
    drop(server);
}

#[test]
fn a_trace_is_shown_while_the_function_is_invoked() {
    let (server, _) = server();
    let ann = server.tenant("ann");
    let mut client = server.client(&ann);
    let table = client.table_create("t").expect("a fresh name");
    client.put(table, b"k", b"value").expect("room");
    install_source(&mut client, "sample", SAMPLE).expect("a good extension");
    let mut command = as_tenant(&server, &ann);
    command.args(["trace", "sample", "--function", "touch", "--count", "2", "--seconds", "60"]);
    let mut tracing = command.stdout(Stdio::piped()).spawn().expect("the command runs");
    while tracing.try_wait().expect("a child").is_none() {
        client.invoke("sample.touch", table, b"k", b"").expect("it works");
    }
    let mut text = String::new();
    tracing.stdout.take().expect("piped").read_to_string(&mut text).expect("text");
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let (last, traces) = lines.split_last().expect("lines");
    assert_eq!((last["traces"].as_u64(), traces.len()), (Some(2), 2), "{text}");
    for trace in traces {
        assert_eq!((&trace["function"], &trace["status"]), (&"touch".into(), &"Ok".into()), "{trace}");
        // Where others have the processor, what is done in one poll as a rule is done in several.
        let polls = trace["polls"].as_array().expect("polls");
        let sum = |figure: &dyn Fn(&Value) -> Option<u64>| polls.iter().filter_map(figure).sum::<u64>();
        let calls = ["get", "put"].map(|kind| sum(&|poll| poll["calls"][kind]["count"].as_u64()));
        assert_eq!(calls, [1, 1], "{trace}");
        assert!(sum(&|poll| poll["commit_ns"].as_u64()) > 0, "{trace}");
        assert!(trace["ns"].as_u64() >= Some(sum(&|poll| poll["ns"].as_u64())), "{trace}");
    }
    // The command has ended its tracing, so that of something else is not held off.
    let next = as_tenant(&server, &ann).args(["trace", "sample", "--seconds", "0"]).output();
    let next = next.expect("the command runs");
    assert_eq!(next.status.code(), Some(0), "{}", String::from_utf8_lossy(&next.stderr));
    for (name, function, status) in
        [("sample", "nosuch", "UnknownFunction"), ("nosuch", "touch", "UnknownExtension")]
    {
        let refused = as_tenant(&server, &ann).args(["trace", name, "--function", function]).output();
        let refused = refused.expect("the command runs");
        let said: Value = serde_json::from_slice(&refused.stderr).expect("JSON");
        assert_eq!((refused.status.code(), &said["status"]), (Some(3), &status.into()), "{said}");
    }
}

#[test]
fn what_was_written_counts_before_a_segment_is_full() {
    let (server, metrics) = server();
    // A durable table would add the completion record of each put.
    let (mut client, table) = server.tenant_with_table_in_memory("acme");
    // A reader that comes too soon after others is told so.
    let written = || {
        comes("the metrics", || {
            let text = fetched(metrics, "/metrics");
            let value =
                text.lines().find_map(|line| line.strip_prefix("splinter_store_written_bytes_total "))?;
            Some(value.parse::<u64>().expect("a number"))
        })
    };
    assert_eq!(written(), 0);
    let mut expected = 0;
    for number in 0..100_u64 {
        client.put(table, &number.to_le_bytes(), &[7; 1_000]).expect("room");
        // Key, value and a head of 20, up to a multiple of 8.
        expected += 1_032;
    }
    comes("all that was written", || (written() >= expected).then_some(()));
    assert_eq!(written(), expected);
}
