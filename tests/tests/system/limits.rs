//! `splinter tenant limits` against a real server: what it shows, what it changes, how it refuses.

use std::process::{Command, Output};

use client::Status;
use tests::server::{Server, Tenant, binary};

use super::replies::said;

/// Runs the command as the administrator.
fn as_administrator(server: &Server, arguments: &[&str]) -> Output {
    run(server, &[("SPLINTER_ADMIN_SECRET", &server.admin_secret())], arguments)
}

/// Runs the command as a tenant.
fn as_tenant(server: &Server, tenant: &Tenant, arguments: &[&str]) -> Output {
    run(server, &[("SPLINTER_TENANT", &tenant.name), ("SPLINTER_SECRET", &tenant.secret)], arguments)
}

fn run(server: &Server, who: &[(&str, &str)], arguments: &[&str]) -> Output {
    let mut command = Command::new(binary("splinter"));
    command.env_clear().env("HOME", server.directory()).envs(who.iter().copied());
    command.env("SPLINTER_ADDRESS", server.address().to_string());
    command.args(["tenant", "limits"]).args(arguments).output().expect("the command runs")
}

/// The line of one limit, its words.
fn line(output: &Output, limit: &str) -> Vec<String> {
    let text = said(&output.stdout);
    let line = text.lines().find(|line| line.split_whitespace().next() == Some(limit));
    let line = line.unwrap_or_else(|| panic!("no {limit} in:\n{text}{}", said(&output.stderr)));
    line.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn limits_are_shown_set_and_reset_with_units_for_people_and_as_json() {
    let mut server = Server::start();
    let acme = server.tenant("acme");
    let shown = as_administrator(&server, &["acme"]);
    assert_eq!(line(&shown, "weight"), ["weight", "100", "100", "1", "to", "10,000"]);
    assert_eq!(line(&shown, "memory_bytes")[1], "unlimited");
    let changes = ["acme", "--set", "weight=300", "--set", "memory_bytes=64MiB"];
    let changed = as_administrator(&server, &changes);
    assert_eq!(changed.status.code(), Some(0), "{}", said(&changed.stderr));
    assert_eq!(line(&changed, "memory_bytes")[1..3], ["64MiB", "unlimited"]);

    server.kill();
    server.restart();
    let own = as_tenant(&server, &acme, &[]);
    assert_eq!((line(&own, "weight")[1].as_str(), line(&own, "memory_bytes")[1].as_str()), ("300", "64MiB"));
    let again = ["acme", "--set", "memory_bytes=unlimited", "--reset", "weight", "--output", "json"];
    let json = as_administrator(&server, &again);
    let json = said(&json.stdout);
    let entry = |name: &str| {
        let start =
            json.find(&format!("\"limit\":\"{name}\"")).map(|at| json[..at].rfind('{').expect("an object"));
        let entry = &json[start.expect("a limit of this name")..];
        entry[..=entry.find('}').expect("its end")].to_owned()
    };
    assert!(entry("memory_bytes").contains("\"value\":null"), "{json}");
    assert!(entry("weight").contains("\"value\":100"), "{json}");
}

/// Runs any other command of a tenant.
fn of_tenant(server: &Server, tenant: &Tenant, arguments: &[&str]) -> String {
    let output = server.command(tenant).args(arguments).output().expect("the command runs");
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", said(&output.stderr));
    said(&output.stdout)
}

#[test]
fn the_form_of_invocations_is_chosen_by_its_word_and_described() {
    let server = Server::start();
    let acme = server.tenant("acme");
    let folder = |name: &str| format!("{}/../ext/{name}", env!("CARGO_MANIFEST_DIR"));
    of_tenant(&server, &acme, &["table", "create", "t"]);
    for name in ["get", "put"] {
        let installed = of_tenant(&server, &acme, &["ext", "install", &folder(name)]);
        assert!(!installed.contains("wasm unavailable"), "{installed}");
    }
    let invoke = |value: &str| {
        let call = |function, arguments: &[&str]| {
            let fixed = ["invoke", function, "--table", "t", "--key", "key"];
            of_tenant(&server, &acme, &[&fixed[..], arguments].concat())
        };
        call("put.put", &["--arguments", value]);
        assert_eq!(call("get.get", &[]).trim_end(), value);
    };
    let wrong = as_administrator(&server, &["acme", "--set", "sandbox=1"]);
    assert_eq!(wrong.status.code(), Some(2));
    let text = said(&wrong.stderr);
    assert!(text.contains("the value of sandbox must be `native` or `wasm`, not `1`"), "{text}");
    assert_eq!(
        line(&as_tenant(&server, &acme, &[]), "sandbox"),
        ["sandbox", "wasm", "wasm", "native,", "wasm"]
    );
    for (form, promise) in [("native", "only the checked language"), ("wasm", "reaches only its own memory")]
    {
        let set = as_administrator(&server, &["acme", "--set", &format!("sandbox={form}")]);
        assert_eq!(line(&set, "sandbox")[1], form);
        invoke(&format!("written as {form}"));
        let described = of_tenant(&server, &acme, &["ext", "describe", "put"]);
        let expected = format!("your invocations run as {form}: ");
        assert!(described.contains(&expected) && described.contains(promise), "{described}");
        assert!(!described.contains("wasm unavailable"), "{described}");
        let json = of_tenant(&server, &acme, &["ext", "describe", "put", "--output", "json"]);
        assert!(json.contains(&format!("\"sandbox\":\"{form}\"")), "{json}");
        assert!(json.contains("\"wasm\":{\"available\":true}"), "{json}");
    }
}

#[test]
fn what_is_refused_says_what_would_be_taken() {
    let server = Server::start();
    let acme = server.tenant("acme");
    let unknown = as_administrator(&server, &["acme", "--set", "speed=3"]);
    assert_eq!(unknown.status.code(), Some(3));
    let text = said(&unknown.stderr);
    assert!(text.contains("`speed` is not a limit; use weight,") && text.contains("\nnext:  "), "{text}");
    let outside = as_administrator(&server, &["acme", "--set", "weight=0"]);
    assert_eq!(outside.status.code(), Some(5));
    assert!(said(&outside.stderr).contains("1 to 10000"), "{}", said(&outside.stderr));
    let unit = as_administrator(&server, &["acme", "--set", "memory_bytes=64MB"]);
    assert_eq!(unit.status.code(), Some(2));
    assert!(said(&unit.stderr).contains("64MiB"), "{}", said(&unit.stderr));
    let nobody = as_administrator(&server, &["nobody"]);
    assert_eq!(nobody.status.code(), Some(3));
    let set = as_tenant(&server, &acme, &["acme", "--set", "weight=300"]);
    assert_eq!(set.status.code(), Some(1), "no secret of the administrator");
    assert!(said(&set.stderr).contains("administrator"), "{}", said(&set.stderr));
    assert_eq!(line(&as_tenant(&server, &acme, &[]), "weight")[1], "100");
}

#[test]
fn a_tenant_that_is_full_goes_on_when_it_may_use_more_and_others_notice_nothing() {
    let server = Server::start();
    let (mut acme, table) = server.tenant_with_table("acme");
    let (mut other, others) = server.tenant_with_table("other");
    as_administrator(&server, &["acme", "--set", "memory_bytes=1MiB"]);
    let value = [7; 100_000];
    let mut written = 0;
    let refused = loop {
        match acme.put(table, &u64::to_le_bytes(written), &value) {
            Ok(_) => written += 1,
            Err(error) => break error,
        }
        other.put(others, &written.to_le_bytes(), &value).expect("no limit");
    };
    assert_eq!((written, refused.status()), (10, Some(Status::OverQuota)));
    let text = refused.to_string();
    assert!(text.contains("memory_bytes") && text.contains("splinter tenant limits"), "{text}");
    assert_eq!(
        acme.get(table, &u64::to_le_bytes(9)).expect("reads go on").expect("it is there").value,
        value
    );
    let raised = as_administrator(&server, &["acme", "--set", "memory_bytes=2MiB"]);
    assert_eq!(line(&raised, "memory_bytes")[1], "2MiB");
    acme.put(table, &u64::to_le_bytes(10), &value).expect("the same session has room now");
    acme.delete(table, &u64::to_le_bytes(10)).expect("deletes go on");
}
