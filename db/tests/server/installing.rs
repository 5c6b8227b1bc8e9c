//! What a tenant's limits say about installations: bytes of code, time of the compiler.

use control::{AdminRequest, ExtensionDescription};
use wire::Status;
use wire::reply::Throttled;

use super::client::{Client, Refused};
use super::extensions::{COUNTER, install, invoke, package};
use super::{Site, file};

/// Bytes of the artefacts of an extension's versions.
fn code_bytes(client: &mut Client, name: &str) -> u64 {
    let answer = client.control.ask(&AdminRequest::ExtensionDescribe { name }).expect("it is installed");
    let description = control::decode::<ExtensionDescription>(&answer).expect("a description");
    description.versions.iter().map(|version| version.artefact_bytes).sum()
}

/// A source like no other, so that it is compiled.
fn fresh(number: u32) -> Vec<(String, Vec<u8>)> {
    package(&format!("{COUNTER}\n/// Number {number}.\npub fn number() -> u32 {{ {number} }}\n"))
}

fn refused(result: Result<control::ExtensionInstalled, Refused>) -> (Status, String) {
    let (status, text) = result.expect_err("a limit is used up");
    (status, String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn versions_that_are_kept_count_as_code_until_they_are_removed() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start_compiling(directory.path(), 1, file(directory.path()));
    let (mut ann, table) = site.tenant_with_table("ann");
    let (mut bob, _) = site.tenant_with_table("bob");
    let extension = install(&mut ann, "counter", &package(COUNTER)).expect("a good extension").extension;
    let bytes = code_bytes(&mut ann, "counter");
    site.limit("ann", "code_bytes", Some(2 * bytes));
    install(&mut ann, "counter", &package(COUNTER)).expect("a second version fits");
    for name in ["counter", "other"] {
        let (status, text) = refused(install(&mut ann, name, &package(COUNTER)));
        assert_eq!(status, Status::OverQuota);
        assert!(text.contains("code_bytes") && text.contains("ext remove"), "{text}");
    }
    install(&mut bob, "counter", &package(COUNTER)).expect("bob's limit is bob's");
    let remove = AdminRequest::ExtensionRemove { name: "counter", version: 1 };
    ann.control.ask(&remove).expect("it is not current");
    install(&mut ann, "other", &package(COUNTER)).expect("there is room again");
    site.limit("ann", "code_bytes", Some(0));
    assert_eq!(refused(install(&mut ann, "counter", &package(COUNTER))).0, Status::OverQuota);
    let one = 1_i64.to_le_bytes();
    assert_eq!(ann.status(&invoke(extension, "add", table, &one)), Status::Ok, "what is there goes on");
}

#[test]
fn who_used_up_the_time_of_the_compiler_is_told_when_to_come_back_and_others_install() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start_compiling(directory.path(), 1, file(directory.path()));
    let (mut ann, _) = site.tenant_with_table("ann");
    let (mut bob, _) = site.tenant_with_table("bob");
    site.limit("ann", "compile_ms_per_minute", Some(1));
    let nonsense = install(&mut ann, "nonsense", &package("#![no_std]\nfn f() -> u8 { 1.5 }\n"));
    assert!(matches!(refused(nonsense).0, Status::SourceRefused | Status::CompileFailed));
    let (status, body) = install(&mut ann, "counter", &fresh(1)).expect_err("what fails costs time as well");
    assert_eq!(status, Status::Throttled);
    let throttled = Throttled::decode(&body).expect("a time");
    assert_eq!(throttled.limit, b"compile_ms_per_minute");
    assert!(throttled.after_us > 60_000_000, "a millisecond a minute: {throttled:?}");
    install(&mut bob, "counter", &fresh(2)).expect("bob's limit is bob's");
    site.limit("ann", "compile_ms_per_minute", Some(0));
    let (status, text) = refused(install(&mut ann, "counter", &fresh(1)));
    assert!(status == Status::OverQuota && text.contains("compile_ms_per_minute"), "{text}");
    site.limit("ann", "compile_ms_per_minute", Some(u64::MAX));
    install(&mut ann, "counter", &fresh(1)).expect("the change holds at once");
}

#[test]
fn what_is_installed_comes_back_whatever_the_limits_say_by_then() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start_compiling(directory.path(), 1, file(directory.path()));
    let secret = site.create_tenant("ann");
    let mut ann = site.client("ann", &secret);
    let table = ann.create_table("t");
    let extension = install(&mut ann, "counter", &package(COUNTER)).expect("a good extension").extension;
    site.limit("ann", "compile_ms_per_minute", Some(0));
    site.limit("ann", "code_bytes", Some(0));
    site.server.stop();

    let site = Site::start_compiling(directory.path(), 1, file(directory.path()));
    let mut ann = site.client("ann", &secret);
    let one = 1_i64.to_le_bytes();
    assert_eq!(ann.status(&invoke(extension, "add", table, &one)), Status::Ok);
    assert!(matches!(refused(install(&mut ann, "more", &package(COUNTER))).0, Status::OverQuota));
}
