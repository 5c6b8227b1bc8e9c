//! The steady path allocates nothing: a counting allocator around whole invocations of a compiled extension.

#[path = "support/counting.rs"]
mod counting;
#[path = "support/worker.rs"]
#[macro_use]
mod worker;

use counting::allocated;
use db::extension::allowance::Sandbox;
use db::extension::invocation::LimitOverrides;
use wire::Status;
use worker::{Worker, install, registry};

const SOURCE: &str = r#"
#![no_std]
extern crate alloc;

use sandstorm::{Args, Db, Error, Level, Reply};

sandstorm::extension! { read noop, read get, write put, write transfer, read yields, read allocates, write fails, write panics }

async fn noop(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> {
    Ok(())
}

async fn get(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let mut records = [None; 2];
    db.get_many(args.table(), &[args.key(), b"absent"], &mut records).await?;
    reply.write(db.get(args.table(), args.key()).await?.unwrap_or_default())
}

async fn put(db: &Db<'_>, args: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> {
    db.put(args.table(), args.key(), args.bytes()).await
}

async fn transfer(db: &Db<'_>, args: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> {
    db.increment(args.table(), b"from", -1).await?;
    db.increment(args.table(), b"to", 1).await?;
    Ok(())
}

async fn yields(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let value = db.get(args.table(), args.key()).await?.unwrap_or_default();
    db.yield_now().await;
    reply.write(value)
}

async fn allocates(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let text = alloc::format!("{:?}", args.key());
    db.log(Level::Debug, format_args!("{}", text));
    reply.write(text.as_bytes())
}

async fn fails(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    db.put(args.table(), args.key(), b"never").await?;
    reply.write(b"why")?;
    Err(Error::Application(1))
}

async fn panics(_: &Db<'_>, args: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> {
    panic!("{:?}", args.key());
}
"#;

fn an_invocation_allocates_nothing_on_the_steady_path(sandbox: Sandbox) {
    let cache = tempfile::tempdir().expect("a folder");
    let registry = registry(cache.path());
    let installed = install(&registry, "steady", SOURCE, 1, 1).unwrap_or_else(|error| panic!("{error}"));
    let extension = &installed.extension;
    let mut worker =
        Worker::with_budget(LimitOverrides { sandbox: Some(sandbox), ..LimitOverrides::default() });
    worker.put(b"key", &[7; 100]);
    let cases = [
        ("noop", Status::Ok),
        ("get", Status::Ok),
        ("put", Status::Ok),
        ("transfer", Status::Ok),
        ("yields", Status::Ok),
        ("allocates", Status::Ok),
        ("fails", Status::ExtensionError),
        // A module that panics loses its instance, and the next invocation makes another.
        ("panics", Status::ExtensionPanicked),
    ];
    let is_free = |function| sandbox == Sandbox::Native || function != "panics";
    for (function, status) in cases.into_iter().filter(|(function, _)| is_free(*function)) {
        let mut before = 0;
        for round in 0..3_000 {
            if round == 1_000 {
                before = allocated();
            }
            worker
                .run(extension, function, b"key", &[9; 100], &mut |answered, _| assert_eq!(answered, status));
        }
        assert_eq!(allocated() - before, 0, "{function} allocates");
    }
}

#[test]
fn preempting_and_killing_native_code_allocates_nothing() {
    let cache = tempfile::tempdir().expect("a folder");
    let registry = registry(cache.path());
    let source = include_str!("support/overrun.rs");
    let installed = install(&registry, "overrun", source, 1, 1).unwrap_or_else(|error| panic!("{error}"));
    let mut worker = Worker::with_budget(LimitOverrides {
        cpu_us: 300,
        sandbox: Some(Sandbox::Native),
        ..LimitOverrides::default()
    });
    let mut before = 0;
    for round in 0..150 {
        if round == 50 {
            before = allocated();
        }
        worker.run(&installed.extension, "spins", b"key", b"", &mut |answered, _| {
            assert_eq!(answered, Status::ExtensionKilled);
        });
    }
    assert_eq!(allocated() - before, 0);
}

in_both_forms! {
    an_invocation_allocates_nothing_on_the_steady_path,
}
