//! The form in which a tenant's invocations run, through the whole server: chosen and changed by the administrator under
//! load, kept over a restart, the caller's for what is granted, told to tenants, and refused where there is no module.

use std::fs;
use std::path::Path;

use cluster::secret::{self, SecretHash};
use control::{AdminRequest, LimitChange, Placement, Right, TenantLimitEntry};
use wire::{Condition, Request, Status};

use super::client::{Client, Ended, Refused};
use super::extensions::{COUNTER, install, install_as, invoke, is_outlived, package};
use super::grants::{grant, resolve};
use super::versions::{byte_of, describe, repeating};
use super::{Site, file};

const NATIVE: u64 = 0;
const WASM: u64 = 1;

/// A package that compiles for 64 bits only.
fn wide() -> Vec<(String, Vec<u8>)> {
    package(&COUNTER.replace("0..args.reader().u32()?", "0..args.reader().u32()?.min(MOST as u32)").replace(
        "/// Replies with as many",
        "const MOST: usize = u32::MAX as usize + 9;\n\n/// Replies with as many",
    ))
}

/// Asks for a form; the answer is the value of the limit, or the text of the refusal.
fn choose(site: &Site, tenant: &str, value: u64) -> Result<u64, (Status, String)> {
    change(site, tenant, value, false)
}

/// Like [`choose`], also where a version has no module.
fn force(site: &Site, tenant: &str, value: u64) -> Result<u64, (Status, String)> {
    change(site, tenant, value, true)
}

fn change(site: &Site, tenant: &str, value: u64, force: bool) -> Result<u64, (Status, String)> {
    let changes = vec![LimitChange { limit: "sandbox", value: Some(value) }];
    let answer = site.administrator().ask(&AdminRequest::TenantLimitsSet { name: tenant, changes, force });
    answer.map(|answer| sandbox_in(&answer)).map_err(readable)
}

fn chosen(client: &mut Client) -> u64 {
    sandbox_in(&client.control.ask(&AdminRequest::TenantLimits { name: None }).expect("its own"))
}

fn sandbox_in(answer: &[u8]) -> u64 {
    let limits = control::decode::<Vec<TenantLimitEntry>>(answer).expect("limits");
    limits.iter().find(|limit| limit.name == "sandbox").expect("a limit of this name").value
}

fn readable((status, text): Refused) -> (Status, String) {
    (status, String::from_utf8(text).expect("text"))
}

/// Invocations that have run in modules so far.
fn in_modules(site: &Site) -> u64 {
    site.counter("invocations_wasm")
}

#[test]
fn a_change_under_load_fails_no_invocation_and_loses_no_write() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start_compiling(directory.path(), 1, file(directory.path()));
    let (mut client, table) = site.tenant_with_table("ann");
    let extension = install(&mut client, "counter", &package(COUNTER)).expect("a good extension").extension;
    let delta = 1_i64.to_le_bytes();
    let request = invoke(extension, "add", table, &delta);
    let (count, mut submitted, mut done, mut executed, mut sum) = (6_000_u64, 0, 0, 0, 0);
    assert_eq!(choose(&site, "ann", NATIVE), Ok(NATIVE));
    let mut changes = [(1_000, WASM), (2_000, NATIVE), (3_000, WASM), (4_000, NATIVE)].into_iter().peekable();
    while done < count {
        while submitted < count && client.submit(submitted, &request) {
            submitted += 1;
        }
        client.step(&mut |_, (status, body): Ended| {
            done += 1;
            if !is_outlived(status, &body) {
                sum += u64::from_le_bytes(body.try_into().expect("a sum"));
                executed += 1;
            }
        });
        if let Some((_, value)) = changes.next_if(|(after, _)| done >= *after) {
            assert_eq!(choose(&site, "ann", value), Ok(value));
        }
    }
    assert!(changes.peek().is_none() && executed > 0);
    assert_eq!(sum, executed * (executed + 1) / 2, "each execution answered another sum");
    let ran = in_modules(&site);
    assert!((1..count).contains(&ran), "{ran} of {count} in modules");
    assert!(site.counter("instances_made") > 0);
    assert_eq!(client.status(&request), Status::Ok);
    assert_eq!(in_modules(&site), ran, "it is native again");
}

#[test]
fn the_form_lasts_over_a_restart_and_may_be_reset() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start_compiling(directory.path(), 1, file(directory.path()));
    let secret = site.create_tenant("ann");
    let mut client = site.client("ann", &secret);
    let table = client.create_table("t");
    let extension = install(&mut client, "counter", &package(COUNTER)).expect("a good extension").extension;
    assert_eq!(chosen(&mut client), WASM, "a new tenant");
    assert_eq!((choose(&site, "ann", NATIVE), chosen(&mut client)), (Ok(NATIVE), NATIVE));
    assert_eq!(
        choose(&site, "ann", 2),
        Err((Status::OutOfRange, "sandbox must be native or wasm, not 2".into()))
    );
    site.server.stop();

    let site = Site::start_compiling(directory.path(), 1, file(directory.path()));
    let mut client = site.client("ann", &secret);
    assert_eq!(chosen(&mut client), NATIVE);
    assert_eq!(describe(&mut client, "counter").sandbox.as_deref(), Some("native"));
    let add = |delta: i64| delta.to_le_bytes();
    let mut sum = |delta| client.call(&invoke(extension, "add", table, &add(delta))).1;
    assert_eq!((sum(5), in_modules(&site)), (add(5).to_vec(), 0));
    site.limit("ann", "sandbox", None);
    assert_eq!((sum(2), in_modules(&site)), (add(7).to_vec(), 1));
    let described = describe(&mut client, "counter");
    assert_eq!((described.sandbox.as_deref(), described.no_module.as_deref()), (Some("wasm"), Some("")));
    site.server.stop();

    let site = Site::start_compiling(directory.path(), 1, file(directory.path()));
    assert_eq!(chosen(&mut site.client("ann", &secret)), WASM, "what was reset");
}

/// A tenant whose record is of a release without modules.
#[test]
fn a_tenant_of_an_earlier_release_stays_native() {
    let directory = tempfile::tempdir().expect("a directory");
    let metadata = file(directory.path());
    let secret = secret::generate().expect("randomness");
    metadata.tenant_create("ann", SecretHash::of(secret.as_bytes()).expect("randomness")).expect("room");
    let site = Site::start_compiling(directory.path(), 1, metadata);
    assert_eq!(chosen(&mut site.client("ann", &secret)), NATIVE);
    site.limit("ann", "sandbox", None);
    assert_eq!(chosen(&mut site.client("ann", &secret)), WASM);
}

#[test]
fn a_granted_extension_runs_in_the_form_of_its_caller() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start_compiling(directory.path(), 1, file(directory.path()));
    let (mut ann, anns) = site.tenant_with_table("ann");
    let (mut bob, bobs) = site.tenant_with_table("bob");
    let extension = install(&mut ann, "counter", &package(COUNTER)).expect("a good extension").extension;
    grant(&mut ann, "counter", "bob", Right::Invoke).expect("ann's");
    let granted = resolve(&mut bob, "ann/counter").expect("granted");
    let delta = 1_i64.to_le_bytes();
    for (of_ann, of_bob) in [(NATIVE, WASM), (WASM, NATIVE), (WASM, WASM)] {
        assert_eq!((choose(&site, "ann", of_ann), choose(&site, "bob", of_bob)), (Ok(of_ann), Ok(of_bob)));
        for (client, id, table, form) in
            [(&mut ann, extension, anns, of_ann), (&mut bob, granted, bobs, of_bob)]
        {
            let before = in_modules(&site);
            assert_eq!(client.status(&invoke(id, "add", table, &delta)), Status::Ok);
            assert_eq!(in_modules(&site) - before, form);
        }
        let seen = describe(&mut bob, "ann/counter").sandbox;
        assert_eq!(seen.as_deref(), Some(if of_bob == WASM { "wasm" } else { "native" }));
    }
    let sums = [(&mut ann, anns), (&mut bob, bobs)];
    for (client, table) in sums {
        let (status, body) = client.call(&Request::Get { table, key: b"k" });
        assert_eq!((status, &body[8..]), (Ok(Status::Ok), &3_i64.to_le_bytes()[..]), "each in its own table");
    }
}

#[test]
fn canary_and_kept_versions_run_in_modules_too() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start_compiling(directory.path(), 1, file(directory.path()));
    let (mut client, table) = site.tenant_with_table("ann");
    let name = "counter";
    let extension = install(&mut client, name, &repeating(1)).expect("a good extension").extension;
    assert_eq!(choose(&site, "ann", WASM), Ok(WASM));
    install_as(&mut client, name, &repeating(2), Placement::Canary(50)).expect("a good extension");
    let one = 1_u32.to_le_bytes();
    let request = invoke(extension, "repeat", table, &one);
    let canary = (0..200).filter(|_| byte_of(&mut client, &request, 0) == Ok(2)).count();
    assert!((50..150).contains(&canary), "{canary} of 200 at 50 percent");
    client.control.ask(&AdminRequest::ExtensionPromote { name }).expect("a canary");
    for (version, expected) in [(0, 2), (1, 1), (2, 2)] {
        assert_eq!(byte_of(&mut client, &request, version), Ok(expected));
    }
    assert!(in_modules(&site) >= 203);
    assert!(
        describe(&mut client, name).versions.iter().all(|version| version.no_module.as_deref() == Some(""))
    );
    assert_eq!(choose(&site, "ann", NATIVE), Ok(NATIVE));
    let before = in_modules(&site);
    assert_eq!((byte_of(&mut client, &request, 1), in_modules(&site)), (Ok(1), before));
}

#[test]
fn a_source_without_a_module_is_not_installed_by_a_tenant_in_wasm() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start_compiling(directory.path(), 1, file(directory.path()));
    let (mut ann, _) = site.tenant_with_table("ann");
    let (status, text) =
        install(&mut ann, "counter", &wide()).map_err(readable).expect_err("it has no module");
    assert_eq!(status, Status::Unavailable);
    assert!(
        text.starts_with("`counter` has no module to run with sandbox=wasm: wasm unavailable: "),
        "{text}"
    );
    assert!(text.contains("overflow") && text.contains("MOST"), "what the compiler says: {text}");
    let nothing = ann.control.ask(&AdminRequest::ExtensionDescribe { name: "counter" }).map_err(readable);
    assert_eq!(nothing.map_err(|(status, _)| status), Err(Status::UnknownExtension));
}

#[test]
fn what_has_no_module_says_why_where_it_is_to_run_as_one() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start_compiling(directory.path(), 1, file(directory.path()));
    let (mut ann, table) = site.tenant_with_table("ann");
    let (mut bob, bobs) = site.tenant_with_table("bob");
    install(&mut ann, "other", &package(COUNTER)).expect("a good extension");
    for tenant in ["ann", "bob"] {
        assert_eq!(choose(&site, tenant, NATIVE), Ok(NATIVE));
    }
    let installed = install(&mut ann, "counter", &wide()).expect("a good extension for 64 bits");
    let why = installed.no_module.expect("the server says");
    assert!(why.starts_with("wasm unavailable: ") && why.contains("MOST"), "{why}");
    let one = 1_u32.to_le_bytes();
    let request = invoke(installed.extension, "repeat", table, &one);
    assert_eq!(ann.status(&request), Status::Ok);

    let (status, text) = choose(&site, "ann", WASM).expect_err("one version has no module");
    assert_eq!(status, Status::Unavailable);
    assert!(text.starts_with("`counter@1` has no module") && text.contains("wasm unavailable: "), "{text}");
    assert!(text.contains("overflow") && !text.contains('\n'), "the reason in one line: {text}");
    assert_eq!((chosen(&mut ann), ann.status(&request)), (NATIVE, Status::Ok));
    let described = describe(&mut ann, "counter");
    assert_eq!((described.no_module.as_ref(), described.sandbox.as_deref()), (Some(&why), Some("native")));
    assert_eq!(described.versions[0].no_module.as_ref(), Some(&why));

    // What a tenant was granted does not keep it native: its owner could keep it so.
    grant(&mut ann, "counter", "bob", Right::Invoke).expect("ann's");
    let granted = resolve(&mut bob, "ann/counter").expect("granted");
    let of_bob = invoke(granted, "repeat", bobs, &one);
    assert_eq!((bob.status(&of_bob), choose(&site, "bob", WASM)), (Status::Ok, Ok(WASM)));
    let (status, text) = bob.call(&of_bob);
    let text = String::from_utf8(text).expect("text");
    assert_eq!(status, Ok(Status::Unavailable));
    assert_eq!(
        text,
        "ann/counter@1 has no module to run with sandbox=wasm (wasm unavailable: its owner sees why)"
    );
    let seen = describe(&mut bob, "ann/counter").no_module;
    assert_eq!(seen.as_deref(), Some("wasm unavailable: its owner sees why"), "the source is ann's");

    // The version is not kept any more, so nothing stands in the way; the next one says what to expect.
    install(&mut ann, "counter", &package(COUNTER)).expect("a good extension");
    choose(&site, "ann", WASM).expect_err("it is still kept");
    let gone = AdminRequest::ExtensionRemove { name: "counter", version: 1 };
    ann.control.ask(&gone).expect("it is not current");
    assert_eq!(choose(&site, "ann", WASM), Ok(WASM));
    assert_eq!(choose(&site, "ann", NATIVE), Ok(NATIVE));
    install(&mut ann, "counter", &wide()).expect("an installation with a warning");
    choose(&site, "ann", WASM).expect_err("the current version would not run");
    assert_eq!(force(&site, "ann", WASM), Ok(WASM), "the operator decides");
    let writes = invoke(installed.extension, "add", table, b"12345678");
    for request in [&request, &writes] {
        let (status, text) = ann.call(request);
        let text = String::from_utf8(text).expect("text");
        assert_eq!(status, Ok(Status::Unavailable));
        assert!(
            text.starts_with("counter@3 has no module to run with sandbox=wasm (wasm unavailable: "),
            "{text}"
        );
    }
    assert_eq!(choose(&site, "ann", WASM), Ok(WASM), "no change");
    assert_eq!((choose(&site, "ann", NATIVE), ann.status(&request)), (Ok(NATIVE), Status::Ok));
}

#[test]
fn the_projects_get_and_put_run_in_modules() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start_compiling(directory.path(), 1, file(directory.path()));
    let (mut client, table) = site.tenant_with_table("ann");
    assert_eq!(choose(&site, "ann", WASM), Ok(WASM));
    let [get, put] = ["get", "put"].map(|name| {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ext").join(name);
        let files = ["Cargo.toml", "src/lib.rs"]
            .map(|path| (path.to_owned(), fs::read(folder.join(path)).expect("a file of the project")));
        install(&mut client, name, &files).expect("a good extension").extension
    });
    let read = invoke(get, "get", table, b"");
    assert_eq!(client.status(&read), Status::NotFound);
    for bytes in [0, 1, 1000] {
        let value = vec![bytes as u8; bytes];
        assert_eq!(client.status(&invoke(put, "put", table, &value)), Status::Ok);
        assert_eq!(client.call(&read).1, value);
        let (status, body) = client.call(&Request::Get { table, key: b"k" });
        assert_eq!((status, &body[8..]), (Ok(Status::Ok), &value[..]));
    }
    let plain = Request::Put { table, key: b"k", value: b"by a client", condition: Condition::Always };
    assert_eq!((client.status(&plain), client.call(&read).1), (Status::Ok, b"by a client".to_vec()));
    assert!(in_modules(&site) >= 8);
}
