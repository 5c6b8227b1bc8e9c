//! Many objects with one command: from a file, from the line, as texts, as JSON.

use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Output, Stdio};

use serde_json::Value;
use tests::server::{Server, Tenant};

use super::replies::said;

/// Runs the command as a tenant, with something to read.
fn run(server: &Server, tenant: &Tenant, line: &str, input: &str) -> Output {
    let mut command = server.command(tenant);
    command.args(line.split(' ')).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the command runs");
    // Who refuses the line does not read.
    let _ = child.stdin.take().expect("a pipe").write_all(input.as_bytes());
    child.wait_with_output().expect("the command ends")
}

/// Runs the command, which succeeds, and returns what it prints.
fn printed_by(server: &Server, tenant: &Tenant, line: &str, input: &str) -> String {
    let output = run(server, tenant, line, input);
    assert!(output.status.success(), "{line}: {}", said(&output.stderr));
    said(&output.stdout)
}

#[test]
fn what_a_command_prints_another_one_writes() {
    let server = Server::start();
    let (mut client, table) = server.tenant_with_table("other");
    client.put(table, b"kept", b"apart").unwrap();
    let acme = server.tenant("acme");
    let done = |line: &str, input: &str| printed_by(&server, &acme, line, input);
    done("table create from --ordered", "");
    done("table create to", "");
    let lines: String = (0..3_000).map(|number| format!("key{number:04}\tvalue {number}\n")).collect();
    let text = lines + "0x00ff\t0x0180\nempty\t\n\nkey0007\tthe last line counts\n";
    assert_eq!(done("put from --from -", &text), "3,003 written, 0 refused\n");
    let printed: Value =
        serde_json::from_str(&done("scan from --limit 10000 --output json", "")).expect("JSON");
    let objects = printed["objects"].as_array().expect("objects");
    assert_eq!(objects.len(), 3_002);
    let lines: String = objects.iter().map(|object| format!("{object}\n")).collect();
    assert_eq!(done("put to --from - --format json --ttl 1h", &lines), "3,002 written, 0 refused\n");
    let read = done("get to key0007 0x00ff empty --output json", "");
    let read: Value = serde_json::from_str(&read).expect("JSON");
    let hex = |index: usize| read["objects"][index]["value"]["hex"].as_str().expect("hex").to_owned();
    assert_eq!((hex(1), hex(2)), ("0180".to_owned(), String::new()));
    assert_eq!(read["objects"][0]["value"]["text"], "the last line counts");
    let keys: String = (0..3_000).map(|number| format!("key{number:04}\n")).collect();
    assert_eq!(done("delete to --from -", &keys), "3,000 deleted, 0 refused\n");
    assert_eq!(done("delete to 0x00ff empty", ""), "2 deleted, 0 refused\n");
    assert_eq!(client.get(table, b"kept").unwrap().expect("nobody touched it").value, b"apart");
}

#[test]
fn what_scans_and_enumerations_print_is_loaded_with_its_times_to_live() {
    let server = Server::start();
    let acme = server.tenant("acme");
    let done = |line: &str, input: &str| printed_by(&server, &acme, line, input);
    done("table create from --ordered", "");
    let lines: String = (0..1_500).map(|number| format!("stays{number:04}\t{number}\n")).collect();
    done("put from --from -", &lines);
    done("put from --from - --ttl 1d", "goes\tsoon\n0x00\t0xff\n");
    for (table, printing) in
        [("scanned", "scan from --limit 10000"), ("enumerated", "table enumerate from --limit 10000")]
    {
        let printed = done(&format!("{printing} --output json"), "");
        let answer: Value = serde_json::from_str(&printed).expect("one JSON value");
        assert_eq!(answer["objects"].as_array().map(Vec::len), Some(1_502), "{printing}");
        assert!(printed.lines().count() > 1_502, "an object a line, so that nobody needs to hold them all");
        done(&format!("table create {table}"), "");
        // As it was printed, and as a program may have written it anew in one line.
        for input in [printed, answer.to_string()] {
            let put = done(&format!("put {table} --from - --format json"), &input);
            assert_eq!(put, "1,502 written, 0 refused\n", "{printing}");
        }
        for key in ["goes", "0x00"] {
            let read: Value =
                serde_json::from_str(&done(&format!("get {table} {key} --output json"), "")).expect("JSON");
            let ttl_ms = read["ttl_ms"].as_u64().expect("it expires");
            assert!((80_000_000..=86_400_000).contains(&ttl_ms), "{printing} {key}: {ttl_ms}");
        }
        let stays: Value =
            serde_json::from_str(&done(&format!("get {table} stays0007 --output json"), "")).expect("JSON");
        assert_eq!((&stays["ttl_ms"], &stays["value"]["text"]), (&Value::Null, &"7".into()), "{printing}");
    }
    let keys = "stays0007\tits value is not looked at\nstays0008\n";
    let read = done("get scanned --from - --output json", keys);
    let read: Value = serde_json::from_str(&read).expect("JSON");
    let texts = [0, 1].map(|index| read["objects"][index]["value"]["text"].clone());
    assert_eq!(texts, [Value::from("7"), Value::from("8")]);
    let nothing = done("scan from --prefix nothing --output json", "");
    assert_eq!(done("put scanned --from - --format json", &nothing), "0 written, 0 refused\n");
}

#[test]
fn scans_and_enumerations_go_on_with_the_cursor_that_they_printed() {
    let server = Server::start();
    let acme = server.tenant("acme");
    let done = |line: &str, input: &str| printed_by(&server, &acme, line, input);
    done("table create data --ordered", "");
    let lines: String = (0..2_000).map(|number| format!("key{number:04}\t{number}\n")).collect();
    done("put data --from -", &lines);
    for listing in ["scan data", "table enumerate data"] {
        let (mut keys, mut more) = (BTreeSet::new(), String::new());
        loop {
            let page = done(&format!("{listing} --limit 600{more}"), "");
            keys.extend(page.lines().filter(|line| line.starts_with("key")).skip(1).map(str::to_owned));
            match page.lines().find_map(|line| line.strip_prefix("more: ")) {
                Some(next) => more = format!(" {next}"),
                None => break,
            }
            assert!(more.starts_with(" --cursor "), "{listing}: {more}");
        }
        assert_eq!(keys.len(), 2_000, "{listing}");
    }
}

#[test]
fn what_is_refused_is_told_line_by_line_and_the_rest_is_done() {
    let server = Server::start();
    let acme = server.tenant("acme");
    let splinter = |line: &str, input: &str| run(&server, &acme, line, input);
    assert!(splinter("table create data", "").status.success());
    assert!(splinter("put data there 1", "").status.success());
    let output = splinter("put data --from - --if-absent --output json", "new\t1\nthere\t2\nnewer\t3\n");
    assert_eq!(output.status.code(), Some(4));
    let answer: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&answer["written"], &answer["refused"]), (&2.into(), &1.into()));
    let refusal = &answer["refusals"][0];
    assert_eq!((&refusal["line"], &refusal["status"]), (&2.into(), &"ConditionFailed".into()));
    let failure: Value = serde_json::from_slice(&output.stderr).expect("JSON");
    assert_eq!(failure["exit_code"], 4);
    assert!(failure["error"].as_str().expect("words").starts_with("1 of 3 objects were refused"));
    let output = splinter("get data new nothing there", "");
    assert_eq!(output.status.code(), Some(3));
    assert!(said(&output.stdout).contains("nothing        -  "), "{}", said(&output.stdout));
    assert!(said(&output.stderr).contains("1 of the 3 objects"), "{}", said(&output.stderr));
    let output = splinter("delete data new nothing", "");
    assert_eq!(output.status.code(), Some(3));
    assert!(said(&output.stdout).starts_with("1 deleted, 1 refused\n2: nothing: "));
    // What is before a line that is wrong is written, and the message says how much that was.
    let output = splinter("put data --from -", "a\t1\nb\t2\nc\t0x1\nd\t4\n");
    assert_eq!(output.status.code(), Some(1));
    let words = said(&output.stderr);
    assert!(
        words.contains("2 done before the error") && words.contains("line 3 of standard input"),
        "{words}"
    );
    assert!(splinter("get data a b", "").status.success());
    assert_eq!(splinter("get data d", "").status.code(), Some(3));
    assert_eq!(splinter("put data --from /no/such/file", "").status.code(), Some(1));
}
