//! Crashes under load, one after another: each start finds what clients were told, and goes on from there.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use client::{Durability, Session};
use fastrand::Rng;
use tests::effort::{rng, rounds};
use tests::patience::comes;
use tests::server::{Server, patient};

use super::create;
use super::load::{Ended, Model, TABLES};

/// How crashes are survived.
#[derive(Clone)]
struct Setting {
    cores: usize,
    memory: &'static str,
    arguments: &'static [&'static str],
    clients: usize,
    depth: usize,
    rounds: usize,
    /// Time before each crash.
    load_ms: Range<u64>,
    /// Whether the first crash waits until segments were cleaned together.
    until_cleaned: bool,
}

fn crashes_under_load(setting: Setting) {
    let mut cleaned = 0;
    let mut random = rng();
    let mut settings = super::settings(setting.memory, setting.arguments);
    settings.cores = setting.cores;
    let mut server = Server::start_with(settings);
    let tenants: Vec<_> = (0..setting.cores).map(|core| server.tenant(&format!("tenant{core}"))).collect();
    let models: Vec<Model> = tenants
        .iter()
        .map(|tenant| {
            let mut client = server.client(tenant);
            let made = [false, true].map(|ordered| {
                create(&mut client, TABLES[usize::from(ordered)], Durability::Synced, ordered)
            });
            Model::new(made)
        })
        .collect();
    for round in 0..setting.rounds {
        let is_over = AtomicBool::new(false);
        let mut all = Ended::default();
        let open = |client: usize| {
            let tenant = &tenants[client % tenants.len()];
            let address = server.address().to_string();
            Session::open(&address, &tenant.name, &tenant.secret, patient()).expect("the tenant is let in")
        };
        let sessions: Vec<Session> = (0..setting.clients).map(open).collect();
        thread::scope(|scope| {
            let start = |(client, session): (usize, Session), random: Rng| {
                let (model, is_over) = (&models[client % models.len()], &is_over);
                scope.spawn(move || model.load(session, random, setting.depth, is_over))
            };
            let at_work: Vec<_> =
                sessions.into_iter().enumerate().map(|client| start(client, random.fork())).collect();
            thread::sleep(Duration::from_millis(random.u64(setting.load_ms.clone())));
            let since_start = || counted(&server, "store_combinations");
            if setting.until_cleaned && round == 0 {
                comes("a cleaning", || (since_start() > 0).then_some(()));
            }
            cleaned += since_start();
            server.kill();
            is_over.store(true, Ordering::SeqCst);
            let ended: Vec<_> = at_work.into_iter().map(thread::ScopedJoinHandle::join).collect();
            ended.iter().for_each(|one| all.add(one.as_ref().expect("a client found something wrong")));
        });
        let began = Instant::now();
        server.restart();
        let started = began.elapsed();
        let mut objects = 0;
        for (model, tenant) in models.iter().zip(&tenants) {
            let mut client = server.client(tenant);
            let found = model.compare(&mut client);
            server.await_replay();
            let counted: u64 = TABLES.map(|name| client.table_stat(name).unwrap().objects).iter().sum();
            assert_eq!(counted, found, "the tables count what they hold");
            objects += found;
        }
        println!("round {round}: {all:?}; {objects} objects, started in {started:?}, cleaned {cleaned}");
    }
}

fn counted(server: &Server, name: &str) -> u64 {
    let statistics = server.admin().statistics().expect("the administrator is answered");
    statistics.iter().find(|statistic| statistic.name == name).expect("it is counted").value
}

#[test]
fn what_was_answered_is_there_after_crashes_under_load() {
    crashes_under_load(Setting {
        cores: 2,
        memory: "64MiB",
        arguments: &[],
        clients: 4,
        depth: 32,
        rounds: rounds(4, 100),
        load_ms: 20..400,
        until_cleaned: false,
    });
}

#[test]
fn what_was_answered_is_there_after_crashes_while_a_small_disk_is_cleaned() {
    crashes_under_load(Setting {
        cores: 1,
        memory: "32MiB",
        arguments: &["--disk", "20MiB", "--disk-io", "system-calls"],
        clients: 3,
        depth: 64,
        rounds: rounds(5, 100),
        load_ms: 200..600,
        until_cleaned: true,
    });
}
