//! A server that is written all the time, on a disk little larger than its memory, with crashes in between.
//!
//! `SPLINTER_SOAK_S=3600` makes it an hour, in which clients rest for most of the time, so that other tests can run beside it;
//! without it, it takes seconds.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use client::{Condition, Durability, Request, Session, Status};
use fastrand::Rng;
use tests::effort::rng;
use tests::patience::Stopping;
use tests::server::{Server, Tenant, patient};

use super::load::{Ended, Model, TABLES, pause};
use super::{LOG_FILE, create, settings};

const MEMORY_MIB: u64 = 128;
const DISK_MIB: u64 = 192;
/// Memory of a server besides that of objects: code, stacks, buffers, rings of sessions.
const BESIDE_MIB: u64 = 80;
/// What fills the memory to two thirds.
const FILLERS: u32 = 80_000;
const FILLER_BYTES: usize = 900;
/// Outstanding requests of the client that fills.
const DEPTH: usize = 32;
/// How often sizes are looked at.
const LOOK: Duration = Duration::from_millis(200);
/// In a long run the clients work in the first of so many seconds.
const WORK_EVERY_S: u64 = 12;

/// The longest it took, and the largest it was.
#[derive(Debug, Default)]
struct Largest {
    resident_mib: u64,
    log_mib: u64,
    start: Duration,
}

fn resident_mib(server: &Server) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", server.process())).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    kib.map_or(0, |kib| kib >> 10)
}

/// Overwrites objects until it is over; adds up the bytes of what was answered.
fn fill(
    (mut session, table): (Session, u32),
    (model, mut random): (&Model, Rng),
    is_over: &AtomicBool,
    bytes: &AtomicU64,
) {
    let value = vec![7; FILLER_BYTES];
    let mut outstanding = 0;
    while !is_over.load(Ordering::SeqCst) {
        while session.can_submit() && outstanding < DEPTH && !model.rests() {
            // A third of the keys gets two thirds of the writes.
            let keys = if random.u8(0..3) > 0 { FILLERS / 3 } else { FILLERS };
            let key = random.u32(0..keys).to_be_bytes();
            let condition = Condition::Always;
            let request = Request::Put { table, key: &key, value: &value, condition };
            session.submit(&request, 0).expect("there is room");
            outstanding += 1;
        }
        let polled = session.poll(&mut |completion| {
            outstanding -= 1;
            match completion.status {
                Ok(Status::Ok) => drop(bytes.fetch_add(FILLER_BYTES as u64, Ordering::Relaxed)),
                Ok(Status::StorageFull | Status::OutOfMemory) | Err(_) => {}
                Ok(status) => panic!("a put ended with {status:?}"),
            }
        });
        if polled.is_ok_and(|completed| completed == 0) {
            let _ = session.wait(pause(model.rests()));
        }
    }
}

fn session(server: &Server, tenant: &Tenant) -> Session {
    let address = server.address().to_string();
    Session::open(&address, &tenant.name, &tenant.secret, patient()).expect("the tenant is let in")
}

#[test]
fn memory_and_disk_stay_within_bounds_while_many_times_the_memory_is_written() {
    let seconds = std::env::var("SPLINTER_SOAK_S").ok().and_then(|text| text.parse().ok());
    let (end, mut random) = (Duration::from_secs(seconds.unwrap_or(12)), rng());
    let disk = format!("{DISK_MIB}MiB");
    let mut server = Server::start_with(settings(&format!("{MEMORY_MIB}MiB"), &["--disk", &disk]));
    let tenant = server.tenant("acme");
    let mut client = server.client(&tenant);
    let made = [false, true]
        .map(|ordered| create(&mut client, TABLES[usize::from(ordered)], Durability::Synced, ordered));
    let filled = create(&mut client, "filled", Durability::Written, false);
    drop(client);
    let (model, bytes, mut largest) = (Model::new(made), AtomicU64::new(0), Largest::default());
    let (began, mut all, mut crashes) = (Instant::now(), Ended::default(), 0);
    while began.elapsed() < end {
        let is_over = AtomicBool::new(false);
        // Some minutes from crash to crash in a long run.
        let crash_at = Instant::now() + end.min(Duration::from_secs(1_000)).mul_f64(random.f64() * 0.1 + 0.2);
        let sessions = [(); 3].map(|()| session(&server, &tenant));
        thread::scope(|scope| {
            let (model, is_over, bytes) = (&model, &is_over, &bytes);
            // Also if one of the sizes is wrong.
            let _stopping = Stopping(is_over);
            let [first, second, filler] = sessions;
            let at_work = [first, second].map(|session| {
                let random = random.fork();
                scope.spawn(move || model.load(session, random, 8, is_over))
            });
            let random = random.fork();
            scope.spawn(move || fill((filler, filled), (model, random), is_over, bytes));
            // It crashes while clients are at work.
            while Instant::now() < crash_at || model.rests() {
                model.set_rests(seconds.is_some() && began.elapsed().as_secs() % WORK_EVERY_S != 0);
                thread::sleep(LOOK);
                let log = fs::metadata(server.directory().join(LOG_FILE)).expect("it has a log");
                largest.log_mib = largest.log_mib.max(log.len().div_ceil(1 << 20));
                largest.resident_mib = largest.resident_mib.max(resident_mib(&server));
                assert!(largest.log_mib <= DISK_MIB + 1, "{largest:?}");
                assert!(largest.resident_mib <= MEMORY_MIB + BESIDE_MIB, "{largest:?}");
            }
            server.kill();
            is_over.store(true, Ordering::SeqCst);
            at_work.into_iter().for_each(|one| all.add(&one.join().expect("a client found something wrong")));
        });
        crashes += 1;
        let restart = Instant::now();
        server.restart();
        largest.start = largest.start.max(restart.elapsed());
        model.compare(&mut server.client(&tenant));
        let times = bytes.load(Ordering::Relaxed) / (MEMORY_MIB << 20);
        println!("{:?}: {crashes} crashes, {times} times the memory, {all:?}, {largest:?}", began.elapsed());
    }
}
