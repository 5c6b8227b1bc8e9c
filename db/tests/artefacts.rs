//! Extensions from source to answer: built in the sandbox, loaded, run on a worker, replaced, unloaded.
//!
//! Each case of misbehaviour ends with a typed status, leaves no write behind and leaves the worker healthy.

#[path = "support/worker.rs"]
mod worker;

use std::fs;
use std::sync::Arc;
use std::thread;

use db::extension::registry::{Choice, InstallError};
use db::extension::{CallMode, Extension};
use db::metrics::Counter;
use wire::{Status, TenantId};
use worker::{TENANT, Worker, install, package, registry};

/// Runs one invocation to its end: status and body.
fn call(
    worker: &mut Worker,
    extension: &Arc<Extension>,
    function: &str,
    key: &[u8],
    arguments: &[u8],
) -> (Status, Vec<u8>) {
    let mut answer = None;
    worker
        .run(extension, function, key, arguments, &mut |status, body| answer = Some((status, body.to_vec())));
    answer.expect("an invocation that started ends")
}

const MISBEHAVING: &str = include_str!("support/misbehave.rs");

#[test]
fn misbehaviour_ends_one_invocation_with_a_typed_status_and_nothing_else() {
    let cache = tempfile::tempdir().expect("a folder");
    let registry = registry(cache.path());
    let installed =
        install(&registry, "misbehave", MISBEHAVING, 1, 1).unwrap_or_else(|error| panic!("{error}"));
    let extension = &installed.extension;
    let mut worker = Worker::default();
    worker.put(b"healthy", b"yes");
    let cases = [
        ("panics", Status::ExtensionPanicked, "key of 3 bytes"),
        ("panics_in_drop", Status::ExtensionPanicked, "with a bomb at hand"),
        ("panics_while_it_says_why", Status::ExtensionPanicked, "panic"),
        ("uses_up_its_memory", Status::ExtensionOutOfMemory, "memory"),
        ("grows_a_vector_for_ever", Status::ExtensionOutOfMemory, "memory"),
        ("recurses", Status::ExtensionStackOverflow, ""),
        ("has_a_huge_frame", Status::ExtensionStackOverflow, ""),
        ("floods_its_reply", Status::ReplyTooLarge, ""),
        ("fails", Status::ExtensionError, "as announced"),
        ("reads_beyond_a_slice", Status::ExtensionPanicked, "index out of bounds"),
        ("loops_in_drop", Status::ExtensionPanicked, "nothing is unwound"),
    ];
    for round in 0..20 {
        for (function, status, text) in cases {
            let (answered, body) = call(&mut worker, extension, function, b"key", b"");
            assert_eq!(answered, status, "{function} in round {round}");
            assert!(String::from_utf8_lossy(&body).contains(text), "{function}: {body:?}");
            assert_eq!(
                call(&mut worker, extension, "healthy", b"mark", b"").0,
                Status::NotFound,
                "{function} wrote"
            );
            let (answered, body) = call(&mut worker, extension, "healthy", b"healthy", b"");
            assert_eq!((answered, body.as_slice()), (Status::Ok, &b"yes"[..]), "after {function}");
        }
    }
    assert_eq!(worker.lent.metrics.value(Counter::InvocationsPanicked), 20 * 5);
    assert_eq!(worker.lent.metrics.value(Counter::InvocationsOutOfMemory), 20 * 4);
    assert_eq!(worker.lent.core.held_pins(), 0);
}

/// Tries of each thread; some forty thousand stacks are left in all.
const TRIES: usize = 10_000;

#[test]
fn workers_leave_stacks_side_by_side_and_every_answer_is_its_own() {
    let cache = tempfile::tempdir().expect("a folder");
    let registry = registry(cache.path());
    let installed =
        install(&registry, "misbehave", MISBEHAVING, 1, 1).unwrap_or_else(|error| panic!("{error}"));
    let seed = std::env::var("SPLINTER_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(20_260_417);
    println!("SPLINTER_SEED={seed}");
    let cases = [
        ("panics", Status::ExtensionPanicked),
        ("panics_while_it_says_why", Status::ExtensionPanicked),
        ("uses_up_its_memory", Status::ExtensionOutOfMemory),
        ("recurses", Status::ExtensionStackOverflow),
        ("has_a_huge_frame", Status::ExtensionStackOverflow),
        ("loops_in_drop", Status::ExtensionPanicked),
    ];
    thread::scope(|scope| {
        for number in 0..4_u64 {
            let extension = &installed.extension;
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed + number);
                let mut worker = Worker::default();
                for attempt in 0..TRIES {
                    let (function, status) = cases[random.usize(..cases.len())];
                    assert_eq!(call(&mut worker, extension, function, b"key", b"").0, status, "{function}");
                    let value = attempt.to_le_bytes();
                    worker.put(b"healthy", &value);
                    let answer = call(&mut worker, extension, "healthy", b"healthy", b"");
                    assert_eq!(answer, (Status::Ok, value.to_vec()), "after {function}");
                    while worker.lent.core.step() {}
                }
                assert_eq!(call(&mut worker, extension, "healthy", b"mark", b"").0, Status::NotFound);
            });
        }
    });
}

const COUNTING: &str = r#"
#![no_std]
use sandstorm::{Args, Db, Error, Reply};

sandstorm::extension! { write count, read peek }

/// Adds one.
async fn count(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let sum = db.increment(args.table(), args.key(), STEP).await?;
    db.yield_now().await;
    reply.i64(sum)
}

/// Looks.
async fn peek(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    reply.write(db.get(args.table(), args.key()).await?.unwrap_or_default())
}

const STEP: i64 = 1;
"#;

#[test]
fn a_new_version_takes_over_and_the_old_one_is_unloaded_when_it_has_ended() {
    let cache = tempfile::tempdir().expect("a folder");
    let registry = registry(cache.path());
    let first = install(&registry, "count", COUNTING, 4, 1).expect("installed");
    assert_eq!(first.functions[0].doc.trim(), "Adds one.");
    assert_eq!(first.extension.functions()[0].mode, CallMode::Write);
    assert_eq!(first.extension.functions()[1].mode, CallMode::Read);
    assert!(first.artefact_bytes > 0 && first.compile_ms > 0 && first.source_bytes > 100);
    let mut worker = Worker::default();
    assert_eq!(
        call(&mut worker, &first.extension, "count", b"n", b""),
        (Status::Ok, 1_i64.to_le_bytes().to_vec())
    );

    let doubled = COUNTING.replace("i64 = 1", "i64 = 10");
    let second = install(&registry, "count", &doubled, 4, 2).expect("installed");
    assert_eq!((second.extension.id, second.extension.version), (4, 2));
    assert!(Arc::ptr_eq(&registry.find(TENANT, "count").expect("live"), &first));
    let both = Choice { current: 2, canary: None, kept: vec![1, 2] };
    let active = registry.set_choice(TENANT, "count", both).expect("loaded");
    assert_eq!((active.current().version, registry.retired()), (2, 0));
    drop(active);
    let alone = Choice { current: 2, canary: None, kept: vec![2] };
    registry.set_choice(TENANT, "count", alone).expect("loaded");
    assert!(Arc::ptr_eq(&registry.find(TENANT, "count").expect("live"), &second));
    assert_eq!(call(&mut worker, &first.extension, "count", b"n", b"").1, 2_i64.to_le_bytes());
    assert_eq!(call(&mut worker, &second.extension, "count", b"n", b"").1, 12_i64.to_le_bytes());
    assert_eq!(registry.retired(), 1);
    // Other tests of this process may have the same source loaded from folders of their own.
    let folder = cache.path().to_str().expect("a path in UTF-8");
    let mapped = |hash: &str| {
        let maps = fs::read_to_string("/proc/self/maps").expect("maps");
        maps.lines().any(|line| line.contains(folder) && line.contains(hash))
    };
    let (old, new) = (first.content_hash.clone(), second.content_hash.clone());
    assert!(mapped(&old) && mapped(&new));
    drop(first);
    assert_eq!(call(&mut worker, &second.extension, "peek", b"n", b"").1, 12_i64.to_le_bytes());
    registry.collect();
    assert_eq!(registry.retired(), 0);
    assert!(!mapped(&old) && mapped(&new));
}

#[test]
fn identical_source_is_built_and_loaded_once_and_tenants_stay_apart() {
    let cache = tempfile::tempdir().expect("a folder");
    let registry = registry(cache.path());
    let mine = install(&registry, "count", COUNTING, 1, 1).expect("installed");
    let other = TenantId(2);
    let theirs = registry
        .install(other, "count", package("count", COUNTING), 5, || Ok::<_, String>((2, 1)))
        .expect("installed");
    assert_eq!(mine.content_hash, theirs.content_hash);
    assert_eq!(theirs.compile_ms, 0);
    assert_eq!(theirs.extension.tenant, other);
    assert!(std::ptr::eq(mine.extension.functions(), theirs.extension.functions()));
    assert!(!Arc::ptr_eq(&mine.extension.log, &theirs.extension.log));
    let mut worker = Worker::default();
    assert_eq!(call(&mut worker, &mine.extension, "count", b"n", b"").0, Status::Ok);
    assert_eq!(call(&mut worker, &theirs.extension, "count", b"n", b"").0, Status::UnknownTable);
    assert_eq!(registry.names(other).len(), 1);
    registry.remove_tenant(other);
    assert!(registry.find(other, "count").is_none() && registry.names(other).is_empty());
    assert!(registry.remove(TENANT, "count"));
    assert!(!registry.remove(TENANT, "count"));
}

#[test]
fn a_failed_installation_leaves_the_version_before_it_in_place() {
    let cache = tempfile::tempdir().expect("a folder");
    let registry = registry(cache.path());
    let first = install(&registry, "count", COUNTING, 1, 1).expect("installed");
    let unsound = COUNTING.replace("const STEP: i64 = 1;", "const STEP: i64 = unsafe { 1 };");
    let broken = COUNTING.replace("i64 = 1", "i64 = false");
    let expected = [
        (unsound.as_str(), Status::SourceRefused),
        (&broken, Status::CompileFailed),
        ("", Status::SourceRefused),
    ];
    for (source, status) in expected {
        let error = install(&registry, "count", source, 1, 2).expect_err("refused");
        assert_eq!(error.status(), Some(status), "{error}");
        assert!(!error.to_string().is_empty());
    }
    let unrecorded = registry.install(TENANT, "count", package("count", COUNTING), 0, || Err("no room"));
    assert!(matches!(unrecorded, Err(InstallError::Customer("no room"))));
    assert!(Arc::ptr_eq(&registry.find(TENANT, "count").expect("live"), &first));
}

/// What the compiler let pass when it was installed, and would not in a new installation.
const FORGETFUL: &str = r#"
#![no_std]
use sandstorm::{Args, Db, Error, Reply};

sandstorm::extension! { write put }

async fn put(db: &Db<'_>, args: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> {
    db.put(args.table(), args.key(), b"never");
    Ok(())
}
"#;

#[test]
fn what_was_installed_before_is_brought_back_though_it_would_be_refused_now() {
    let cache = tempfile::tempdir().expect("a folder");
    let registry = registry(cache.path());
    let installed = install(&registry, "put", FORGETFUL, 1, 1).unwrap_or_else(|error| panic!("{error}"));
    assert!(installed.warnings.contains("that must be used"), "{}", installed.warnings);
    let answer = call(&mut Worker::default(), &installed.extension, "put", b"key", b"");
    assert_eq!(answer, (Status::Ok, Vec::new()));
}
