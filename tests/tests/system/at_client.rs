//! Installed functions that a client runs itself: the module comes from the server, its reads are gets, its writes one commit.

mod command;
mod differences;
mod placed;

use std::path::Path;
use std::thread;

use builder::Package;
use client::local::{Finished, LocalFailure};
use client::{
    Client, Error, ExtensionModule, LimitChange, Local, Module, ModuleError, ModuleRuntime, PackageFile,
    Right, Status,
};
use tests::package::install_source;
use tests::server::{Server, create_in_memory};

/// Installs an extension of this project.
fn install(client: &mut Client, name: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ext").join(name);
    let package = Package::from_directory(&folder).unwrap_or_else(|error| panic!("{name}: {error}"));
    let files = package.files().map(|(path, bytes)| PackageFile { path, bytes }).collect();
    let installed = client.extension_install(name, files).expect("the project's own");
    assert_eq!(installed.no_module.as_deref(), Some(""), "it has a module");
}

fn runtime() -> ModuleRuntime {
    ModuleRuntime::start().expect("scripts/setup has installed what modules need")
}

fn load(runtime: &ModuleRuntime, client: &mut Client, name: &str) -> Module {
    let module = client.extension_module(name, 0).expect("it is installed");
    runtime.load(&module).expect("a server's own module")
}

/// Ends the one invocation of an executor.
fn end(local: &mut Local) -> Result<Vec<u8>, LocalFailure> {
    end_with(local, |finished| finished.result.map(<[u8]>::to_vec))
}

/// Ends the one invocation of an executor, and returns what `of` takes of it.
fn end_with<T>(local: &mut Local, of: impl Fn(Finished<'_>) -> T) -> T {
    let mut ended = None;
    let mut take = |finished: Finished<'_>| ended = Some(of(finished));
    while local.outstanding() > 0 {
        local.poll_waiting(&mut take).expect("the server answers");
    }
    ended.expect("one invocation")
}

/// Runs one function at the client.
fn run(
    local: &mut Local,
    module: &Module,
    function: &str,
    (table, key, arguments): (u32, &[u8], &[u8]),
) -> Result<Vec<u8>, Error> {
    local.spawn_module(module, function, table, key, arguments)?;
    end(local).map_err(error_of)
}

/// The error of a function of a module.
fn error_of(failure: LocalFailure) -> Error {
    match failure {
        LocalFailure::Server(error) => error,
        LocalFailure::Function(error) => panic!("{error}: a module's end is that of the server"),
    }
}

#[test]
fn a_function_runs_at_the_client_as_it_does_at_the_server() {
    let server = Server::start();
    let (mut client, table) = server.tenant_with_table_in_memory("acme");
    install(&mut client, "get");
    install(&mut client, "put");
    let runtime = runtime();
    let (get, put) = (load(&runtime, &mut client, "get"), load(&runtime, &mut client, "put"));
    assert_eq!((get.version(), get.functions().collect::<Vec<_>>()), (1, vec!["get"]));
    let mut local = Local::new(client.into_session());
    for bytes in [0, 1, 100, 4_096, 70_000, 1 << 20] {
        let (key, value) = (format!("{bytes}").into_bytes(), vec![7; bytes]);
        assert_eq!(run(&mut local, &put, "put", (table, &key, &value)).expect("there is room"), b"");
        assert_eq!(run(&mut local, &get, "get", (table, &key, b"")).expect("it was put"), value);
    }
    let absent = run(&mut local, &get, "get", (table, b"absent", b""));
    assert_eq!(absent.unwrap_err().status(), Some(Status::NotFound));
    let unknown = run(&mut local, &get, "put", (table, b"key", b""));
    assert_eq!(unknown.unwrap_err().status(), Some(Status::UnknownFunction));
    let no_table = run(&mut local, &get, "get", (77, b"key", b""));
    assert_eq!(no_table.unwrap_err().status(), Some(Status::UnknownTable));
    let mut client = Client::over(local.into_session());
    assert_eq!(client.get(table, b"100").expect("an answer").expect("it was put").value, [7; 100]);
}

/// Computes without an end, or for a while.
const COMPUTES: &str = "#![no_std]
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { write endless, read short }
async fn endless(db: &Db<'_>, args: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> {
    db.put(args.table(), args.key(), b\"seen by nobody\").await?;
    loop { core::hint::spin_loop(); }
}
async fn short(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    reply.write(db.get(args.table(), args.key()).await?.ok_or(Error::NotFound)?)
}
";

#[test]
fn what_computes_for_long_lets_others_go_on_and_is_ended_at_its_limit() {
    let server = Server::start();
    let (mut client, table) = server.tenant_with_table_in_memory("acme");
    client.put(table, b"key", b"value").expect("there is room");
    install_source(&mut client, "computes", COMPUTES).expect("it compiles");
    let module = load(&runtime(), &mut client, "computes");
    let mut local = Local::new(client.into_session());
    let endless = local.spawn_module(&module, "endless", table, b"mark", b"").expect("a function");
    let short = local.spawn_module(&module, "short", table, b"key", b"").expect("a function");
    let mut ends = Vec::new();
    while local.outstanding() > 0 {
        let mut take = |finished: Finished<'_>| ends.push((finished.id, finished.result.map(<[u8]>::to_vec)));
        local.poll_waiting(&mut take).expect("the server answers");
    }
    assert_eq!((ends[0].0, ends[0].1.as_deref().expect("it is short")), (short, &b"value"[..]));
    let LocalFailure::Server(error) = ends[1].1.as_ref().unwrap_err() else { panic!("{ends:?}") };
    assert_eq!((ends[1].0, error.status()), (endless, Some(Status::ExtensionKilled)));
    assert!(error.to_string().contains("invocation_cpu_us"), "{error}");
    // Its instance serves the next one.
    assert_eq!(run(&mut local, &module, "short", (table, b"key", b"")).expect("as before"), b"value");
    let mut client = Client::over(local.into_session());
    assert!(client.get(table, b"mark").expect("an answer").is_none(), "nothing of it is left");
}

/// Uses up one thing in small steps, each of which is well within its limits.
const NIBBLES: &str = "#![no_std]
extern crate alloc;
use alloc::format;
use sandstorm::{Args, Db, Error, KeyRange, Level, Reply};
sandstorm::extension! { write computes, write overwrites, write logs, write asks, write scans }
async fn computes(db: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> {
    loop {
        for _ in 0..100_000 { core::hint::spin_loop(); }
        db.yield_now().await;
    }
}
async fn overwrites(db: &Db<'_>, args: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> {
    loop {
        db.put(args.table(), args.key(), args.bytes()).await?;
        if db.get(args.table(), args.key()).await?.is_none() { return Ok(()); }
    }
}
async fn logs(db: &Db<'_>, args: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> {
    for _ in 0..200 {
        db.log(Level::Error, format_args!(\"{}\", core::str::from_utf8(args.bytes()).unwrap_or_default()));
        db.yield_now().await;
    }
    Err(Error::Application(1))
}
async fn asks(db: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> {
    for number in 0.. {
        match db.table(&format!(\"t{number}\")).await {
            Err(Error::UnknownTable) => {}
            Err(error) => return Err(error),
            Ok(_) => return Ok(()),
        }
    }
    Ok(())
}
async fn scans(db: &Db<'_>, args: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> {
    for first in 0..40u8 {
        let prefix = [first];
        let mut scan = db.scan(args.table(), KeyRange::prefix(&prefix));
        while scan.next().await?.is_some() {}
    }
    Err(Error::Application(5))
}
";

#[test]
fn what_is_used_up_in_small_steps_ends_all_the_same() {
    let server = Server::start();
    let mut client = server.client(&server.tenant("acme"));
    let table = client.table_create_ordered("ordered").expect("a fresh name");
    install_source(&mut client, "nibbles", NIBBLES).expect("it compiles");
    let module = load(&runtime(), &mut client, "nibbles");
    let mut local = Local::new(client.into_session());
    let large = vec![b'x'; 1 << 20];
    for (function, status) in [
        ("computes", Status::ExtensionKilled),
        ("overwrites", Status::LimitExceeded),
        ("asks", Status::LimitExceeded),
    ] {
        let ended = run(&mut local, &module, function, (table, b"key", &large));
        assert_eq!(ended.expect_err(function).status(), Some(status), "{function}");
    }
    for (function, number) in [("logs", 1), ("scans", 5)] {
        let ended = run(&mut local, &module, function, (table, b"key", &large)).expect_err(function);
        assert!(
            matches!(ended, Error::ExtensionFailed { code, .. } if code == number),
            "{function}: {ended}"
        );
    }
    let lines = local.take_log();
    assert!(lines.len() <= 100 && lines.iter().all(|(_, line)| line.len() <= 256), "{}", lines.len());
    for (key, arguments, status) in [
        (vec![0; 70_000], Vec::new(), Status::KeyTooLarge),
        (b"key".to_vec(), vec![0; (1 << 20) + 1], Status::ArgumentsTooLarge),
        (b"key".to_vec(), vec![0; 20 << 20], Status::ArgumentsTooLarge),
    ] {
        let refused = local.spawn_module(&module, "logs", table, &key, &arguments).unwrap_err();
        assert_eq!(refused.status(), Some(status));
    }
    assert_eq!(local.outstanding(), 0);
}

#[test]
fn the_tenants_limits_hold_at_its_client_too() {
    let server = Server::start();
    let (mut client, table) = server.tenant_with_table_in_memory("acme");
    install(&mut client, "misbehave");
    let changes = [
        LimitChange { limit: "invocation_writes", value: Some(10) },
        LimitChange { limit: "invocation_reads", value: Some(100) },
        LimitChange { limit: "invocation_reply_bytes", value: Some(5_000) },
        LimitChange { limit: "invocation_yields", value: Some(50) },
    ];
    server.admin().tenant_limits_set("acme", &changes).expect("limits");
    let module = load(&runtime(), &mut client, "misbehave");
    let mut local = Local::new(client.into_session());
    for (function, status) in [
        ("write_flood", Status::LimitExceeded),
        ("delete_flood", Status::LimitExceeded),
        ("read_forever", Status::LimitExceeded),
        ("reply_flood", Status::ReplyTooLarge),
        ("spin_yielding", Status::ExtensionKilled),
        ("wait_for_nothing", Status::ExtensionKilled),
    ] {
        let ended = run(&mut local, &module, function, (table, b"mark", b"x"));
        assert_eq!(ended.expect_err(function).status(), Some(status), "{function}");
    }
    let mut client = Client::over(local.into_session());
    assert!(client.get(table, b"mark").expect("an answer").is_none());
}

#[test]
fn functions_of_many_clients_that_find_the_same_last_key_append_one_after_the_other() {
    const CLIENTS: usize = 4;
    const PUSHED: usize = 25;
    let server = Server::start();
    let acme = server.tenant("acme");
    let mut client = server.client(&acme);
    install(&mut client, "scan");
    let table = client.table_create_ordered("queue").expect("a fresh name");
    let module = load(&runtime(), &mut client, "scan");
    thread::scope(|scope| {
        for number in 0..CLIENTS {
            let (session, module) = (server.client(&acme).into_session(), &module);
            scope.spawn(move || {
                let mut local = Local::new(session);
                for count in 0..PUSHED {
                    let value = format!("{number}:{count}");
                    loop {
                        local
                            .spawn_module(module, "push", table, b"q", value.as_bytes())
                            .expect("a function");
                        match end(&mut local) {
                            Ok(_) => break,
                            // Others were faster, again and again.
                            Err(LocalFailure::Server(error)) if error.status() == Some(Status::Conflict) => {}
                            Err(failure) => panic!("{failure}"),
                        }
                    }
                }
            });
        }
    });
    let mut popped = Vec::new();
    while let Ok(value) = client.invoke("scan.pop", table, b"q", b"") {
        popped.push(String::from_utf8(value).expect("as it was pushed"));
    }
    for number in 0..CLIENTS {
        let own = popped.iter().filter(|value| value.starts_with(&format!("{number}:")));
        let expected = (0..PUSHED).map(|count| format!("{number}:{count}"));
        assert!(own.cloned().eq(expected), "{popped:?}");
    }
}

#[test]
fn a_module_that_was_changed_or_is_not_ones_own_does_not_run() {
    let server = Server::start();
    let (ann, bob) = (server.tenant("ann"), server.tenant("bob"));
    let (mut client, mut other) = (server.client(&ann), server.client(&bob));
    install(&mut client, "get");
    let runtime = runtime();
    let module = client.extension_module("get", 1).expect("it is installed");
    let changed = |change: &dyn Fn(&mut ExtensionModule)| {
        let mut module = module.clone();
        change(&mut module);
        runtime.load(&module)
    };
    assert!(changed(&|_| {}).is_ok());
    let flipped = |module: &mut ExtensionModule| *module.bytes.0.last_mut().expect("bytes") ^= 1;
    assert!(matches!(changed(&flipped), Err(ModuleError::Changed)));
    assert!(matches!(changed(&|module| module.border += 1), Err(ModuleError::Border { server: 2 })));
    let forged = |module: &mut ExtensionModule| {
        module.bytes.0.truncate(module.bytes.0.len() / 2);
        module.sha256 = builder::sha256_of(&module.bytes.0);
    };
    assert!(matches!(changed(&forged), Err(ModuleError::Refused { .. })));
    assert!(matches!(
        changed(&|module| module.functions[0].name.push('x')),
        Err(ModuleError::Refused { .. })
    ));
    for (name, version, status) in [
        ("get", 2, Status::NotFound),
        ("set", 0, Status::UnknownExtension),
        ("ann/get", 0, Status::UnknownExtension),
    ] {
        assert_eq!(
            client.extension_module(name, version).unwrap_err().status(),
            Some(status),
            "{name}@{version}"
        );
        assert_eq!(
            other.extension_module(name, version).unwrap_err().status(),
            Some(Status::UnknownExtension)
        );
    }
    client.grant("get", "bob", Right::Invoke).expect("a tenant");
    let refused = other.extension_module("ann/get", 0).unwrap_err();
    assert_eq!(refused.status(), Some(Status::NotPermitted), "code stays with its owner: {refused}");
    let table = create_in_memory(&mut other, "data");
    other.put(table, b"key", b"value").expect("there is room");
    assert_eq!(other.invoke("ann/get.get", table, b"key", b"").expect("it was granted"), b"value");
}
