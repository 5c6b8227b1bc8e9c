//! What an operator meets: starts that are refused and say why, few files that may be open, sessions that come and go.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Instant;

use client::Client;
use serde_json::Value;
use tests::raw::{PATIENCE, RawStream};
use tests::server::{Server, Settings, Tenant, binary};

/// Runs a server that is not to start.
fn refused(arguments: &[&str]) -> Output {
    let server = Command::new(binary("splinter-server")).env_clear().args(arguments).output();
    let ran = server.expect("the server runs");
    assert!(!ran.status.success(), "{arguments:?} started a server");
    ran
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_start_that_is_refused_says_what_is_in_the_way() {
    let server = Server::start();
    let (address, data) = (server.address().to_string(), server.directory().display().to_string());
    let elsewhere = tempfile::tempdir().expect("a temporary directory");
    let fresh = elsewhere.path().display().to_string();

    let taken = said(&refused(&["--listen", &address, "--data", &fresh]));
    assert!(taken.contains(&address) && taken.contains("--listen"), "{taken}");
    let shared = said(&refused(&["--listen", "127.0.0.1:0", "--data", &data]));
    assert!(shared.contains("another server has this data directory open"), "{shared}");
    let large = said(&refused(&["--listen", "127.0.0.1:0", "--data", &fresh, "--memory", "1000TiB"]));
    assert!(large.contains("this machine has"), "{large}");
    let level = refused(&["--listen", "127.0.0.1:0", "--data", &fresh, "--log", "banana"]);
    assert_eq!(level.status.code(), Some(2));
    assert!(said(&level).contains("error, warn, info"), "{}", said(&level));
}

#[test]
fn too_little_memory_is_refused_with_the_least_that_starts_and_leaves_no_directory() {
    let elsewhere = tempfile::tempdir().expect("a temporary directory");
    let data = elsewhere.path().join("data");
    for (cores, segment, tried) in
        [(1, "8MiB", "1MiB"), (1, "8MiB", "39MiB"), (6, "1MiB", "9MiB"), (3, "64KiB", "4096")]
    {
        let place = data.display().to_string();
        let count = cores.to_string();
        let start = ["--listen", "127.0.0.1:0", "--data", &place, "--cores", &count, "--segment", segment];
        let little = said(&refused(&[&start[..], &["--memory", tried]].concat()));
        let least =
            little.split_once("at least ").map(|(_, behind)| behind.split([' ', ',']).next().unwrap_or(""));
        let least = least.unwrap_or_else(|| panic!("no least is named: {little}"));
        assert!(!data.exists(), "{little}");
        let settings =
            Settings { cores, memory: least.into(), segment: segment.into(), ..Settings::default() };
        Server::start_with(settings).stop();
    }
    let place = data.display().to_string();
    let segment = refused(&["--listen", "127.0.0.1:0", "--data", &place, "--segment", "3MiB"]);
    assert!(said(&segment).contains("power of two") && !data.exists(), "{}", said(&segment));
}

#[test]
fn more_workers_than_processors_are_said_to_share_them() {
    let processors = std::thread::available_parallelism().expect("a number of processors").get();
    let start = |cores| {
        let settings =
            Settings { cores, memory: "512MiB".into(), segment: "1MiB".into(), ..Settings::default() };
        Server::start_with(settings).log()
    };
    let shared = start(processors + 1);
    assert!(shared.contains("share processors") && shared.contains("--cores"), "{shared}");
    let alone = start(1);
    assert!(!alone.contains("share processors"), "{alone}");
}

#[test]
fn a_log_in_a_file_has_no_colours() {
    let mut server = Server::start();
    server.stop();
    let log = server.log();
    assert!(log.contains("stopping") && !log.contains('\x1b'), "{log}");
}

#[test]
fn a_service_manager_hears_of_start_and_stop_and_a_json_log_is_an_object_per_line() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let socket = folder.path().join("notify");
    let manager = UnixDatagram::bind(&socket).expect("a socket");
    manager.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let hear = || {
        let mut message = [0; 64];
        let length = manager.recv(&mut message).expect("a message of the server");
        String::from_utf8_lossy(&message[..length]).into_owned()
    };
    let wrapper = vec!["env".into(), format!("NOTIFY_SOCKET={}", socket.display())];
    let arguments = vec!["--log-format".into(), "json".into()];
    let mut server = Server::start_with(Settings { wrapper, arguments, ..Settings::default() });
    assert_eq!(hear(), "READY=1\n");
    server.stop();
    assert_eq!(hear(), "STOPPING=1\n");
    let log = server.log();
    assert!(log.contains(r#""message":"stopping""#), "{log}");
    for line in log.lines() {
        let event: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert!(event["timestamp"].is_string() && event["level"].is_string(), "{line}");
    }
}

/// A server whose process may open so many files, as `prlimit` writes it.
fn with_files(files: &str) -> Server {
    let wrapper = vec!["prlimit".into(), format!("--nofile={files}")];
    Server::start_with(Settings { wrapper, ..Settings::default() })
}

#[test]
fn where_few_files_may_be_open_there_are_fewer_streams_and_strangers_keep_nobody_out() {
    let server = with_files("256:256");
    assert!(server.log().contains("fewer streams than"), "{}", server.log());
    let acme = server.tenant("acme");
    let silent = || (0..200).map(|_| RawStream::connect(server.address()).expect("a listener"));
    let mut held: Vec<RawStream> = silent().collect();
    let mut client = server.client(&acme);
    held.extend(silent());
    let table = client.table_create("data").expect("the stream was left in peace");
    client.put(table, b"k", b"v").expect("room");
    server.admin().tenant_create("other").expect("the administrator is let in");
    assert!(!server.log().contains("cannot accept"), "there were descriptors enough: {}", server.log());
}

#[test]
fn the_limit_of_open_files_is_raised_as_far_as_it_may_be() {
    let server = with_files("512:");
    assert!(server.log().contains("raised the limit of open files"), "{}", server.log());
}

#[test]
fn a_session_ends_with_its_client_and_leaves_no_trace_in_the_audit_log() {
    let server = Server::start();
    let mut admin = server.admin();
    let acme = server.tenant("acme");
    let acts = admin.audit(0, 100).expect("the audit log").len();
    let mut stays = server.client(&acme);
    for _ in 0..20 {
        server.client(&acme).ping().expect("an answer");
    }
    let deadline = Instant::now() + PATIENCE;
    loop {
        let open = admin.session_list().expect("the sessions");
        if open.len() == 1 {
            assert_eq!(open[0].client_id, stays.session().client_id());
            break;
        }
        assert!(Instant::now() < deadline, "sessions outlive their clients: {open:?}");
    }
    stays.ping().expect("the session of the client that stays is open");
    assert_eq!(admin.audit(0, 100).expect("the audit log").len(), acts);
}

/// Runs the command as the administrator.
fn administer(server: &Server, arguments: &[&str]) -> Output {
    let mut command = Command::new(binary("splinter"));
    command.env_clear().env("HOME", server.directory());
    command.env("SPLINTER_ADDRESS", server.address().to_string());
    command.env("SPLINTER_ADMIN_SECRET", server.admin_secret());
    command.args(arguments).output().expect("the command runs")
}

#[test]
fn the_command_gives_a_tenant_that_lost_its_secret_another_one() {
    let server = Server::start();
    let acme = server.tenant("acme");
    let path = server.directory().join("acme.secret");
    let file = path.to_str().expect("a path of letters");
    let rotated = administer(&server, &["tenant", "rotate", "acme", "--secret-file", file]);
    assert_eq!(rotated.status.code(), Some(0), "{}", said(&rotated));
    let secret = fs::read_to_string(&path).expect("the file").trim().to_owned();
    assert_eq!(fs::metadata(&path).expect("the file").permissions().mode() & 0o777, 0o600);
    server.client(&Tenant { secret, ..acme.clone() }).ping().expect("an answer");
    let address = server.address().to_string();
    let lost = Client::connect(&address, &acme.name, &acme.secret).map(drop).expect_err("it was rotated");
    assert!(lost.to_string().contains("splinter tenant rotate"), "{lost}");
    let nobody = administer(&server, &["tenant", "rotate", "nobody"]);
    assert_eq!(nobody.status.code(), Some(3), "{}", said(&nobody));
}

#[test]
fn the_command_lists_sessions_and_ends_them() {
    let server = Server::start();
    let acme = server.tenant("acme");
    let mut client = server.client(&acme);
    let id = client.session().client_id().to_string();
    let listed = administer(&server, &["session", "list"]);
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    let line = text.lines().find(|line| line.split_whitespace().next() == Some(id.as_str()));
    assert!(line.is_some_and(|line| line.contains("acme")), "{text}");
    assert_eq!(administer(&server, &["session", "revoke", &id]).status.code(), Some(0));
    let gone = administer(&server, &["session", "revoke", &id]);
    assert_eq!(gone.status.code(), Some(3));
    assert!(said(&gone).contains("there is no session of client"), "{}", said(&gone));
    client.ping().expect("a client whose session was ended opens another one");
    assert_ne!(client.session().client_id().to_string(), id);
}

#[test]
fn programs_see_the_status_of_what_is_missing_and_of_what_contradicts_itself() {
    let server = Server::start();
    let acme = server.tenant("acme");
    server.client(&acme).table_create("data").expect("a fresh name");
    let run = |arguments: &[&str]| {
        let mut command = Command::new(binary("splinter"));
        command.env_clear().env("HOME", server.directory());
        command.env("SPLINTER_ADDRESS", server.address().to_string());
        command.env("SPLINTER_TENANT", &acme.name).env("SPLINTER_SECRET", &acme.secret);
        let output = command.args(["--output", "json"]).args(arguments).output().expect("the command runs");
        let answer: Value = serde_json::from_slice(&output.stderr).expect("JSON");
        (output.status.code(), answer)
    };
    for (arguments, status) in [
        (&["get", "data", "nothing"][..], "NotFound"),
        (&["delete", "data", "nothing", "--if-version", "7"], "ConditionFailed"),
        (&["get", "nowhere", "nothing"], "UnknownTable"),
        (&["ext", "describe", "nothing"], "UnknownExtension"),
    ] {
        let (code, answer) = run(arguments);
        assert_eq!(answer["status"], status, "{arguments:?}: {answer}");
        assert_eq!(answer["exit_code"].as_i64(), code.map(i64::from), "{answer}");
    }
    let (code, answer) = run(&["invoke", "hello@1.greet", "--table", "data", "--version", "2"]);
    let text = answer["error"].as_str().expect("a text");
    assert_eq!(code, Some(2), "{answer}");
    assert!(text.contains("`hello@1` names version 1") && text.contains("--version names 2"), "{text}");
}

#[test]
fn the_demo_shows_its_first_build_while_it_goes_on() {
    let target = tempfile::tempdir().expect("a temporary directory");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests lies in the root");
    let mut demo = Command::new("scripts/demo")
        .current_dir(root)
        .env("CARGO_TARGET_DIR", target.path())
        .process_group(0)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the script starts");
    let lines = BufReader::new(demo.stderr.take().expect("a pipe")).lines();
    // Of some two hundred crates the first ones.
    let shown = lines.map_while(Result::ok).filter(|line| line.contains("Compiling")).take(3).count();
    let is_building = demo.try_wait().expect("a child").is_none();
    let group = format!("-{}", demo.id());
    let ended = Command::new("kill").args(["--", &group]).status().expect("kill is there");
    demo.wait().expect("a child");
    assert!(is_building && ended.success() && shown == 3, "{shown} crates shown, {ended}");
}
