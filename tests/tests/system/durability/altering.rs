//! Tables that go from memory to the disk and back while clients use them, and servers that crash meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use client::{Client, Durability, Error, Session, Status};
use tests::effort::{rng, rounds};
use tests::server::{Server, Tenant, patient};

use super::load::{Model, TABLES};
use super::{crash, create, settings, start};

const TOGETHER: usize = 200;

fn put_all(client: &mut Client, table: u32, keys: std::ops::Range<u32>, bytes: usize) {
    let value = vec![7; bytes];
    let keys: Vec<_> = keys.map(u32::to_be_bytes).collect();
    for keys in keys.chunks(TOGETHER) {
        let objects: Vec<_> = keys.iter().map(|key| (&key[..], &value[..])).collect();
        let written = client.multi_put(table, &objects).expect("the server answers");
        assert!(written.iter().all(Result::is_ok), "there is room");
    }
}

/// How many of these keys are there.
fn found(client: &mut Client, table: u32, keys: std::ops::Range<u32>) -> usize {
    let keys: Vec<_> = keys.map(u32::to_be_bytes).collect();
    let count = |keys: &[[u8; 4]]| {
        let keys: Vec<_> = keys.iter().map(|key| &key[..]).collect();
        client.multi_get(table, &keys).expect("the server answers").iter().flatten().count()
    };
    keys.chunks(TOGETHER).map(count).sum()
}

fn durability_of(client: &mut Client, name: &str) -> Durability {
    client.table_stat(name).expect("it is there").durability.expect("the server says")
}

fn status(altered: Result<(), Error>) -> Option<Status> {
    match altered {
        Ok(()) => None,
        Err(Error::Refused { status, .. }) => Some(status),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn what_was_answered_is_there_after_crashes_of_tables_that_went_to_memory_and_back_under_load() {
    let mut random = rng();
    let mut server = Server::start_with(tests::server::Settings { cores: 2, ..settings("64MiB", &[]) });
    let tenant = server.tenant("acme");
    let mut client = server.client(&tenant);
    let tables = [false, true]
        .map(|ordered| create(&mut client, TABLES[usize::from(ordered)], Durability::Memory, ordered));
    let model = Model::new(tables);
    for round in 0..rounds(4, 50) {
        let is_over = AtomicBool::new(false);
        let open = |_| Session::open(&server.address().to_string(), &tenant.name, &tenant.secret, patient());
        let sessions: Vec<_> = (0..3).map(|client| open(client).expect("the tenant is let in")).collect();
        thread::scope(|scope| {
            let at_work: Vec<_> = sessions
                .into_iter()
                .map(|session| {
                    let (model, is_over, random) = (&model, &is_over, random.fork());
                    scope.spawn(move || model.load(session, random, 32, is_over))
                })
                .collect();
            let mut client = server.client(&tenant);
            for _ in 0..3 {
                for durability in [Durability::Memory, Durability::Synced] {
                    thread::sleep(Duration::from_millis(random.u64(0..60)));
                    TABLES.iter().for_each(|name| {
                        client.table_alter(name, durability).expect("there is room");
                        assert_eq!(durability_of(&mut client, name), durability);
                    });
                }
            }
            thread::sleep(Duration::from_millis(random.u64(0..40)));
            server.kill();
            is_over.store(true, Ordering::SeqCst);
            for ended in at_work {
                println!("round {round}: {:?}", ended.join().expect("a client found something wrong"));
            }
        });
        server.restart();
        let mut client = server.client(&tenant);
        assert!(model.compare(&mut client) > 0);
        assert!(TABLES.iter().all(|name| durability_of(&mut client, name) == Durability::Synced));
    }
}

fn alter_and_kill(server: &mut Server, tenant: &Tenant, after: Duration) -> bool {
    let address = server.address().to_string();
    let mut client = Client::connect_with(&address, &tenant.name, &tenant.secret, patient()).expect("let in");
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            is_done.store(client.table_alter("data", Durability::Synced).is_ok(), Ordering::SeqCst)
        });
        thread::sleep(after);
        let was_done = is_done.load(Ordering::SeqCst);
        server.kill();
        was_done
    })
}

#[test]
fn a_table_whose_way_to_the_disk_a_crash_ends_is_in_memory_and_nothing_of_it_returns() {
    let mut random = rng();
    let mut server = start("64MiB", &[]);
    let tenant = server.tenant("acme");
    let mut client = server.client(&tenant);
    let table = create(&mut client, "data", Durability::Memory, false);
    let mut ended = [0, 0];
    for round in 0..rounds(8, 80) {
        let first = round as u32 * 100_000;
        put_all(&mut client, table, first..first + 20_000, 200);
        let was_done = alter_and_kill(&mut server, &tenant, Duration::from_millis(random.u64(0..150)));
        server.restart();
        client = server.client(&tenant);
        let (durability, there) =
            (durability_of(&mut client, "data"), found(&mut client, table, first..first + 20_000));
        match durability {
            Durability::Synced => assert_eq!(there, 20_000),
            _ => assert!(there == 0 && !was_done, "{there} objects are there, {durability:?}"),
        }
        ended[usize::from(durability == Durability::Synced)] += 1;
        server.await_replay();
        client.table_alter("data", Durability::Memory).expect("nothing is promised");
        let keys: Vec<_> = (first..first + 20_000).map(u32::to_be_bytes).collect();
        for keys in keys.chunks(TOGETHER).filter(|_| durability == Durability::Synced) {
            client
                .multi_delete(table, &keys.iter().map(|key| &key[..]).collect::<Vec<_>>())
                .expect("an answer");
        }
        put_all(&mut client, table, first + 20_000..first + 21_000, 200);
        client.table_alter("data", Durability::Written).expect("there is room");
        client.table_alter("data", Durability::Synced).expect("it is on the disk");
        crash(&mut server);
        client = server.client(&tenant);
        server.await_replay();
        assert_eq!(client.table_stat("data").unwrap().objects, 1_000);
        assert_eq!(found(&mut client, table, first + 20_000..first + 21_000), 1_000);
        client.table_alter("data", Durability::Memory).expect("nothing is promised");
        crash(&mut server);
        client = server.client(&tenant);
        server.await_replay();
        assert_eq!(client.table_stat("data").unwrap().objects, 0);
    }
    println!("in memory, on the disk: {ended:?}");
}

#[test]
fn a_table_for_which_the_disk_or_memory_has_no_room_stays_as_it_was() {
    let mut server = start("64MiB", &["--disk", "20MiB"]);
    let tenant = server.tenant("acme");
    let mut client = server.client(&tenant);
    let large = create(&mut client, "large", Durability::Memory, true);
    put_all(&mut client, large, 0..20_000, 1_000);
    let output = server.command(&tenant).args(["table", "alter", "large", "--durability", "synced"]).output();
    let output = output.expect("the command runs");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && text.contains("the disk has no room"), "{text}");
    assert_eq!(durability_of(&mut client, "large"), Durability::Memory);
    assert_eq!(found(&mut client, large, 0..20_000), 20_000);
    put_all(&mut client, large, 0..200, 900);
    // Half of them have room.
    let small = create(&mut client, "small", Durability::Memory, false);
    put_all(&mut client, small, 0..2_000, 1_000);
    let output = server.command(&tenant).args(["table", "alter", "small", "--durability", "synced"]).output();
    let output = output.expect("the command runs");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "the durability of small is synced\n");
    let output = server.command(&tenant).args(["table", "verify", "small", "--disk"]).output();
    let text = String::from_utf8_lossy(&output.expect("the command runs").stdout).into_owned();
    assert!(text.starts_with("the disk has all 2,000 objects of table small"), "{text}");
    crash(&mut server);
    let mut client = server.client(&tenant);
    assert_eq!(found(&mut client, small, 0..2_000), 2_000);
    assert_eq!(client.table_stat("large").unwrap().objects, 0);
}

#[test]
fn a_table_in_a_full_memory_goes_to_the_disk_or_stays_as_it_was() {
    let mut server = start("24MiB", &["--disk", "200MiB"]);
    let tenant = server.tenant("acme");
    let mut client = server.client(&tenant);
    let table = create(&mut client, "data", Durability::Memory, false);
    let mut objects = 0;
    let value = [7; 5_000];
    while client.put(table, &u32::to_be_bytes(objects), &value).is_ok() {
        objects += 1;
    }
    println!("{objects} objects");
    let refused = status(client.table_alter("data", Durability::Synced));
    println!("{refused:?}");
    assert!(matches!(refused, None | Some(Status::OutOfMemory | Status::Unavailable)), "{refused:?}");
    assert_eq!(found(&mut client, table, 0..objects), objects as usize);
    for key in (0..objects).step_by(2) {
        client.delete(table, &u32::to_be_bytes(key)).expect("a full store takes deletes");
    }
    client.table_alter("data", Durability::Memory).expect("nothing is promised");
    client.table_alter("data", Durability::Synced).expect("now there is room");
    crash(&mut server);
    let mut client = server.client(&tenant);
    assert_eq!(found(&mut client, table, 0..objects), objects as usize / 2);
}
