//! Calls that run at the server or at the client: who decides, and that they run once.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use client::local::Finished;
use client::{Client, LimitChange, Local, Module, PlacedFunction, RUN_AT, RunAt, Status};
use tests::package::install_source;
use tests::raw::{PATIENCE, RawSession};
use tests::server::{Server, Tenant};
use wire::limits::{FRAME_HEADER_BYTES, GROUP_HEADER_BYTES, MAY_PUSH_BACK};
use wire::reply::PushedBack;

use super::{end_with, error_of, install, load, runtime};

/// Calls under way, enough to keep a server busy.
const OUTSTANDING: usize = 64;

/// Chooses where a tenant's invocations run.
fn set_run_at(server: &Server, value: u64) {
    let change = LimitChange { limit: RUN_AT, value: Some(value) };
    server.admin().tenant_limits_set("acme", &[change]).expect("the operator chooses");
}

const SERVER: u64 = 1;
const CLIENT: u64 = 2;

/// A tenant with `ext/spin`, two records that name each other, and what calls it.
struct Fixture {
    server: Server,
    acme: Tenant,
    table: u32,
    module: Module,
}

impl Fixture {
    fn new() -> Fixture {
        let server = Server::start();
        let acme = server.tenant("acme");
        let mut client = server.client(&acme);
        let table = tests::server::create_in_memory(&mut client, "table");
        client.put(table, &[0; 8], &[1; 8]).expect("there is room");
        client.put(table, &[1; 8], &[0; 8]).expect("there is room");
        install(&mut client, "spin");
        let module = load(&runtime(), &mut client, "spin");
        Fixture { server, acme, table, module }
    }

    fn local(&self, run_at: RunAt) -> (Local, PlacedFunction) {
        let mut client = self.server.client(&self.acme);
        let function = client.resolve("spin.chase").expect("it is installed");
        let function =
            PlacedFunction::new(function, "chase", self.module.clone(), run_at).expect("its own module");
        (Local::new(client.into_session()), function)
    }

    /// Makes calls that follow two records and compute for `rounds`; returns how many ran here.
    fn chase(&self, (local, function): &mut (Local, PlacedFunction), calls: usize, rounds: u64) -> usize {
        let arguments = [&2_u32.to_le_bytes()[..], &rounds.to_le_bytes()].concat();
        let (mut begun, mut ended, mut here) = (0, 0, 0);
        while ended < calls {
            while begun < calls && begun - ended < OUTSTANDING {
                local.invoke(function, self.table, &[0; 8], &arguments).expect("a function");
                begun += 1;
            }
            let mut take = |finished: Finished<'_>| {
                assert_eq!(finished.result.expect("it is there"), [0; 8]);
                (ended, here) = (ended + 1, here + usize::from(finished.ran_here));
            };
            local.poll_waiting(&mut take).expect("the server answers");
        }
        here
    }
}

#[test]
fn a_busy_server_pushes_back_what_computes_and_keeps_what_reads() {
    let fixture = Fixture::new();
    let mut calls = fixture.local(RunAt::Adaptive);
    assert_eq!(fixture.chase(&mut calls, 1, 100_000), 0, "nobody else wants this server");
    let (mut here, deadline) = (0, Instant::now() + PATIENCE);
    while here == 0 && Instant::now() < deadline {
        here = fixture.chase(&mut calls, 1_000, 20_000);
    }
    assert!(here > 0, "a client that waits for a busy server runs some itself");
    // Cheap calls bring the average cost down.
    fixture.chase(&mut fixture.local(RunAt::Server), 5_000, 0);
    // Measurements of a machine that others use too differ.
    while fixture.chase(&mut calls, 5_000, 0) > 0 {
        assert!(Instant::now() < deadline, "what only reads stays at the server");
    }
}

#[test]
fn the_operator_and_the_client_choose_where_functions_run() {
    let fixture = Fixture::new();
    let mut adaptive = fixture.local(RunAt::Adaptive);
    set_run_at(&fixture.server, CLIENT);
    assert_eq!(fixture.chase(&mut adaptive, 200, 10), 200);
    assert_eq!(fixture.chase(&mut fixture.local(RunAt::Server), 200, 10), 0);
    set_run_at(&fixture.server, SERVER);
    assert_eq!(fixture.chase(&mut adaptive, 2_000, 20_000), 0);
    assert_eq!(fixture.chase(&mut fixture.local(RunAt::Client), 200, 10), 200);
}

#[test]
fn a_client_runs_what_it_invokes_by_name_where_it_was_told() {
    let (server, runtime) = (Server::start(), runtime());
    let (mut client, table) = server.tenant_with_table_in_memory("acme");
    install(&mut client, "put");
    install(&mut client, "get");
    set_run_at(&server, CLIENT);
    let invocations = |server: &Server| {
        let found = server.admin().statistics().expect("the administrator asks");
        let of = |name| found.iter().find(|one| one.name == name).map_or(0, |one| one.value);
        (of("invocations_succeeded"), of("invocations_pushed_back"))
    };
    for (run_at, succeeded, pushed_back) in
        [(RunAt::Server, 2, 0), (RunAt::Adaptive, 2, 2), (RunAt::Client, 2, 2)]
    {
        client.run_functions(&runtime, run_at);
        let value = format!("{run_at:?}").into_bytes();
        assert_eq!(client.invoke("put.put", table, b"key", &value).expect("there is room"), b"");
        assert_eq!(client.invoke("get.get", table, b"key", b"").expect("it was put"), value);
        assert_eq!(invocations(&server), (succeeded, pushed_back), "{run_at:?}");
        let unknown = client.invoke("get.absent", table, b"key", b"").expect_err("it has one function");
        assert_eq!(unknown.status(), Some(Status::UnknownFunction));
    }
    let object = client.get(table, b"key").expect("an answer").expect("it was put");
    assert_eq!(object.value, b"Client");
}

const OLD: &str = "#![no_std]
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read version }
async fn version(_: &Db<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> { reply.write(b\"old\") }
";

#[test]
fn a_call_that_is_pushed_back_runs_in_the_servers_version() {
    let (server, runtime) = (Server::start(), runtime());
    let acme = server.tenant("acme");
    let mut client = server.client(&acme);
    let table = tests::server::create_in_memory(&mut client, "table");
    install_source(&mut client, "which", OLD).expect("it compiles");
    set_run_at(&server, CLIENT);
    let function = client.load_function("which.version", &runtime, RunAt::Adaptive).expect("it has a module");
    client.run_functions(&runtime, RunAt::Adaptive);
    assert_eq!(client.invoke("which.version", table, b"", b"").expect("it is there"), b"old");
    let new = OLD.replace("old", "new");
    install_source(&mut server.client(&acme), "which", &new).expect("it compiles");
    for _ in 0..3 {
        assert_eq!(client.invoke("which.version", table, b"", b"").expect("it is there"), b"new");
    }
    let mut local = Local::new(client.into_session());
    assert!(!function.is_stale());
    for _ in 0..2 {
        local.invoke(&function, table, b"", b"").expect("a function");
        let (reply, ran_here) =
            end_with(&mut local, |finished| (finished.result.map(<[u8]>::to_vec), finished.ran_here));
        assert_eq!((reply.map_err(error_of).expect("it is there"), ran_here), (b"new".to_vec(), false));
        assert!(function.is_stale());
    }
}

#[test]
fn no_copy_of_a_write_that_was_pushed_back_runs_at_the_server() {
    let server = Server::start();
    let acme = server.tenant("acme");
    let mut client = server.client(&acme);
    let table = tests::server::create_in_memory(&mut client, "table");
    install(&mut client, "put");
    set_run_at(&server, CLIENT);
    let function = client.resolve("put.put").expect("it is installed");
    let session = RawSession::open(server.address(), "acme", &acme.secret).expect("a session");
    let request = function.request(table, b"key", b"value");
    let plain = session.frame(1, &request);
    let mut frame = plain.clone();
    frame[FRAME_HEADER_BYTES + GROUP_HEADER_BYTES + 3] |= MAY_PUSH_BACK;
    // The second and third are late copies; the last one lacks the flag.
    for copy in [&frame, &frame, &plain] {
        session.send(copy).expect("a socket");
        let answer = &session.receive(PATIENCE).expect("an answer")[0];
        assert_eq!(answer.status, Status::PushedBack);
        assert_eq!(PushedBack::decode(&answer.body).expect("its body").version, 1);
    }
    assert!(client.get(table, b"key").expect("an answer").is_none());
    set_run_at(&server, SERVER);
    session.send(&session.frame(2, &request)).expect("a socket");
    assert_eq!(session.receive(PATIENCE).expect("an answer")[0].status, Status::Ok);
    assert_eq!(client.get(table, b"key").expect("an answer").expect("it was put").value, b"value");
}

#[test]
fn writes_of_pushed_back_calls_and_of_the_server_are_serializable() {
    const CLIENTS: u64 = 3;
    const TRANSFERS: u64 = 100;
    let server = Server::start();
    let acme = server.tenant("acme");
    let mut client = server.client(&acme);
    let table = tests::server::create_in_memory(&mut client, "accounts");
    install(&mut client, "ycsbt");
    let module = load(&runtime(), &mut client, "ycsbt");
    for account in 0..4_u64 {
        let money = 1_000_i64.to_le_bytes();
        client.invoke("ycsbt.open", table, &account.to_le_bytes(), &money).expect("a new account");
    }
    let ran_here = AtomicU64::new(0);
    thread::scope(|scope| {
        for number in 0..CLIENTS {
            let (mut client, module, ran_here) = (server.client(&acme), module.clone(), &ran_here);
            scope.spawn(move || {
                let function = client.resolve("ycsbt.transfer").expect("it is installed");
                let function = PlacedFunction::new(function, "transfer", module, RunAt::Adaptive)
                    .expect("its own module");
                let mut local = Local::new(client.into_session());
                for count in 0..TRANSFERS {
                    let (from, to) = ((number + count) % 4, (number + count + 1) % 4);
                    let arguments = [1_i64.to_le_bytes(), to.to_le_bytes()].concat();
                    local.invoke(&function, table, &from.to_le_bytes(), &arguments).expect("a function");
                    let (ended, here) =
                        end_with(&mut local, |finished| (finished.result.map(drop), finished.ran_here));
                    ran_here.fetch_add(u64::from(here), Ordering::Relaxed);
                    if let Err(failure) = ended {
                        assert_eq!(error_of(failure).status(), Some(Status::Conflict));
                    }
                }
            });
        }
        scope.spawn(|| {
            for round in 0..20 {
                set_run_at(&server, if round % 2 == 0 { CLIENT } else { SERVER });
                thread::sleep(Duration::from_millis(10));
            }
        });
    });
    println!("{} of {} ran at their clients", ran_here.into_inner(), CLIENTS * TRANSFERS);
    let sum = |client: &mut Client| {
        let accounts = (0..4_u64).map(|account| {
            let balance = client.invoke("ycsbt.balance", table, &account.to_le_bytes(), b"");
            i64::from_le_bytes(*balance.expect("it was opened").first_chunk().expect("a number"))
        });
        accounts.sum::<i64>()
    };
    assert_eq!(sum(&mut client), 4_000);
}
