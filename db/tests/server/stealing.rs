//! Several workers: idle ones help the loaded, and nobody notices but by the time it takes.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use db::clock::Clock;
use db::metrics::{Counter, WorkerMetrics};
use db::session::Session;
use db::tenant::account::Account;
use db::view::Views;
use db::view::change::{Change, change_queue};
use db::worker::ports::Ports;
use db::worker::siblings::SiblingWorkers;
use db::worker::{Worker, WorkerParts};
use net::{Batch, Faults, IdleStrategy, LoopbackClock, LoopbackNetwork, Outbox, Port, SharedPort};
use store::{Config, Store};
use wire::{FrameReader, Request, Status, TenantId, function_hash, opcode, reply};

use super::client::{Client, Ended, frame};
use super::extensions::{install, is_outlived, package};
use super::{BAD_NETWORK, Site, file, seed, toolchain};

/// Far longer than anything here takes; the tests end when they have seen what they wait for.
const PATIENCE: Duration = Duration::from_secs(300);

/// Adds one to `key` again and again, with as many requests outstanding as the session may have, until
/// `enough`; returns how often. Every answer is another number, and together they are all numbers.
fn add_until(client: &mut Client, table: u32, key: &[u8], mut enough: impl FnMut(&Client) -> bool) -> u64 {
    let request = Request::Increment { table, key, delta: 1 };
    let (mut submitted, mut sum, mut done) = (0_u64, 0_u64, 0_u64);
    let mut over = false;
    while !over || done < submitted {
        over = over || (done > 0 && enough(client));
        while !over && client.submit(submitted, &request) {
            submitted += 1;
        }
        client.step(&mut |_, (status, body): Ended| {
            assert_eq!(status, Ok(Status::Ok));
            sum += reply::Number::decode(&body).expect("a number").value as u64;
            done += 1;
        });
    }
    assert_eq!(sum, done * (done + 1) / 2, "each increment ran once");
    done
}

/// How long it takes at most until many frames were stolen: where workers are quick and processors few, hardly any wait
/// for long enough, and after this some have to do.
const HURRY: Duration = Duration::from_secs(15);

/// Clients of one tenant each flood that tenant's home core until frames were taken there by another worker.
fn flood_until_stolen(cores: usize, faults: Faults) {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start(directory.path(), seed(), cores);
    let secret = site.create_tenant("ann");
    let mut first = site.client("ann", &secret);
    let table = first.create_table("t");
    let others: Vec<Client> = (0..3).map(|_| site.client("ann", &secret)).collect();
    site.network.set_faults(faults);
    let began = Instant::now();
    std::thread::scope(|scope| {
        for (number, mut client) in others.into_iter().chain([first]).enumerate() {
            let site = &site;
            scope.spawn(move || {
                let mut rounds = 0_u32;
                add_until(&mut client, table, format!("count {number}").as_bytes(), |client| {
                    // Whom the answers came from: all from the port to which the requests went.
                    assert!(client.answered_by.iter().all(|&from| from == client.server));
                    rounds += 1;
                    assert!(began.elapsed() < PATIENCE, "no frame was stolen");
                    let enough = if began.elapsed() < HURRY { 100 } else { 10 };
                    rounds.is_multiple_of(64) && site.counter("frames_stolen") > enough
                });
            });
        }
    });
}

#[test]
fn an_idle_worker_takes_frames_from_a_loaded_one_and_answers_from_its_port() {
    flood_until_stolen(2, Faults::default());
}

#[test]
fn increments_execute_once_when_copies_of_them_are_stolen() {
    flood_until_stolen(2, BAD_NETWORK);
}

#[test]
fn four_workers_that_help_each_other_execute_every_increment_once() {
    flood_until_stolen(4, BAD_NETWORK);
}

/// Takes its time, then adds to the number under the key and replies with the sum.
pub const SLOW: &str = r#"
#![no_std]
use sandstorm::{Args, Db, Error, Reply};

sandstorm::extension! { write add }

/// Counts to the arguments, a u32, then adds one to the number under the key.
async fn add(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let mut number = 1_u64;
    for _ in 0..args.reader().u32()? {
        number = core::hint::black_box(number.wrapping_mul(6364136223846793005).wrapping_add(1));
    }
    let sum = db.increment(args.table(), args.key(), 1).await?;
    reply.i64(sum)
}
"#;

pub fn compiling(directory: &Path, cores: usize, seed: u64) -> Site {
    Site::start_with(directory, seed, cores, file(directory), Box::new(|| Ok(toolchain())))
}

#[test]
fn invocations_that_wait_at_one_worker_run_once_at_another() {
    let directory = tempfile::tempdir().expect("a directory");
    let seed = seed();
    let site = compiling(directory.path(), 2, seed);
    let (mut client, table) = site.tenant_with_table("ann");
    let extension = install(&mut client, "slow", &package(SLOW)).expect("a good extension").extension;
    site.network.set_faults(BAD_NETWORK);
    let mut random = fastrand::Rng::with_seed(seed);
    let deadline = Instant::now() + PATIENCE;
    let (mut submitted, mut done, mut steps, mut over) = (0_u64, 0_u64, 0_u32, false);
    let mut outlived: Vec<u64> = Vec::new();
    while !over || done < submitted {
        // Some a microsecond, some longer than a slice.
        let turns = random.u32(1..60_000).to_le_bytes();
        let key = submitted.to_le_bytes();
        let function = function_hash("add");
        let request =
            Request::Invoke { extension, version: 0, function, table, key: &key, arguments: &turns };
        if !over && client.submit(submitted, &request) {
            submitted += 1;
            continue;
        }
        client.step(&mut |tag, (status, body): Ended| {
            if is_outlived(status, &body) {
                outlived.push(tag);
            } else {
                assert_eq!(body, 1_i64.to_le_bytes(), "the function ran twice for one request");
            }
            done += 1;
        });
        steps += 1;
        over = over || (steps.is_multiple_of(64) && site.counter("invocations_stolen") > 50);
        assert!(Instant::now() < deadline, "no invocation was stolen");
    }
    for number in outlived {
        let get = Request::Get { table, key: &number.to_le_bytes() };
        assert_eq!(client.status(&get), Status::NotFound, "what was ended leaves nothing");
    }
}

#[test]
fn frames_of_a_worker_that_never_comes_back_are_answered_by_another() {
    let network = LoopbackNetwork::new(1, Faults::default(), LoopbackClock::Real);
    let (absent, own) = (network.port().expect("a port"), network.port().expect("a port"));
    let config = Config {
        memory_bytes: 64 << 20,
        segment_bytes: 4 << 20,
        cores: 2,
        huge_pages: false,
        durable: false,
        recovery_cores: 0,
    };
    let store = Store::new(config).expect("a small store");
    let siblings = Arc::new(SiblingWorkers::new([absent.waker(), own.waker()]));
    let handles = [absent.handle(), own.handle()].into_iter().collect();
    let (sender, changes) = change_queue(own.waker());
    let (clock, metrics) = (Clock::new(), Arc::new(WorkerMetrics::new()));
    let token = 7;
    let session = Session::new(token, 1, Arc::new(Account::new(TenantId(1))), 0);
    assert!(sender.send(Change::SessionOpened(Arc::new(session))));
    // It began a round when the clock was at zero, and that was the last one heard of it.
    siblings.load(0).work(0, false);
    let (counted, others) = (Arc::clone(&metrics), Arc::clone(&siblings));
    let worker = std::thread::spawn(move || {
        let ports = Ports::new(own, 1, handles);
        let core = store.core(1);
        let idle = IdleStrategy::default();
        let (siblings, metrics, isolation) = (others, counted, true);
        let views = Arc::new(Views::new(1));
        let (remote, fence) = (None, Arc::default());
        let parts = WorkerParts {
            core,
            ports,
            siblings,
            changes,
            metrics,
            clock,
            idle,
            views,
            fence,
            log: None,
            remote,
            isolation,
            push_back_after: None,
        };
        Worker::new(parts).expect("stacks").run()
    });
    let mut client = network.port().expect("a port");
    let mut out = Outbox::with_frames(1, client.frame_bytes_max());
    assert!(out.push(&frame(token, 1, opcode::PING, 1, &[]), absent.local()));
    client.send(&mut out).expect("a working port");
    let (mut batch, deadline) = (Batch::new(), Instant::now() + PATIENCE);
    while client.receive(&mut batch).expect("a working port") == 0 {
        assert!(Instant::now() < deadline, "nobody answers");
        // What the watchdog does, should the other worker sleep.
        siblings.help_the_absent(clock.now_us());
        client.wait(Duration::from_millis(5)).expect("a working port");
    }
    let (frame, from) = batch.frame(0);
    assert_eq!(from, absent.local(), "the client hears nobody else");
    let group = FrameReader::new(frame).expect("a good frame").groups().next().expect("one").expect("good");
    let answer = group.messages().next().expect("one").expect("good");
    assert_eq!((group.token, answer.code), (token, Status::Ok as u8));
    assert_eq!(metrics.value(Counter::FramesStolen), 1);
    assert!(sender.send(Change::Stop));
    worker.join().expect("it does not panic").expect("a working port");
}
