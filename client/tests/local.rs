//! Functions of extensions run at the client, against a fake server.

mod fake {
    pub mod server;
    pub mod world;
}

use std::time::Duration;

use fake::server::{FakeServer, SECRET, TENANT};
use net::{Faults, LoopbackClock, LoopbackNetwork};
use sandstorm::{Args, Db, Level, Reply, Table};
use splinter_client::local::LocalFailure;
use splinter_client::{Client, ClientConfig, Condition, Error, Local, Session};

type Outcome = Result<(), sandstorm::Error>;

struct Rig {
    network: LoopbackNetwork,
    server: FakeServer,
}

impl Rig {
    fn new(faults: Faults) -> Rig {
        let network = LoopbackNetwork::new(1, faults, LoopbackClock::Real);
        let server = FakeServer::start(network.port().unwrap());
        Rig { network, server }
    }

    fn session(&self) -> Session {
        self.session_for(Duration::from_secs(60))
    }

    /// A session whose calls may take so long.
    fn session_for(&self, call_timeout: Duration) -> Session {
        let core_addresses = vec![self.server.core];
        let config = ClientConfig { core_addresses, call_timeout, ..ClientConfig::default() };
        let port = Box::new(self.network.port().unwrap());
        Session::open_over(port, &self.server.address, TENANT, SECRET, config).unwrap()
    }

    fn put(&self, table: u32, key: &[u8], value: &[u8]) {
        self.server.world().objects.insert((table, key.to_vec()), (1, value.to_vec()));
    }

    fn value(&self, table: u32, key: &[u8]) -> Option<Vec<u8>> {
        self.server.world().objects.get(&(table, key.to_vec())).map(|(_, value)| value.clone())
    }
}

/// Id, reply, round trips and reads of an invocation.
type Ended = (u64, Result<Vec<u8>, LocalFailure>, u32, u32);

/// Runs everything to its end.
fn finish(local: &mut Local) -> Vec<Ended> {
    let mut ended = Vec::new();
    while local.outstanding() > 0 {
        local
            .poll_waiting(&mut |done| {
                ended.push((done.id, done.result.map(<[u8]>::to_vec), done.round_trips, done.reads));
            })
            .unwrap();
    }
    ended
}

fn one(local: &mut Local) -> Result<Vec<u8>, LocalFailure> {
    let mut ended = finish(local);
    assert_eq!(ended.len(), 1);
    ended.remove(0).1
}

/// Follows a chain: each record is the key of the next; replies with the last.
async fn follow(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Outcome {
    let mut key = args.key();
    while let Some(next) = db.get(args.table(), key).await? {
        key = next;
    }
    reply.write(key)
}

/// Joins the records under the keys 0 .. argument.
async fn gather(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Outcome {
    let count = args.reader().u8()?;
    let names: Vec<[u8; 1]> = (0..count).map(|name| [name]).collect();
    let keys: Vec<&[u8]> = names.iter().map(|name| &name[..]).collect();
    let mut records = vec![None; keys.len()];
    db.get_many(args.table(), &keys, &mut records).await?;
    for record in records.into_iter().flatten() {
        reply.write(record.value)?;
    }
    Ok(())
}

/// Moves an amount from the key to the key in the arguments.
async fn transfer(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Outcome {
    let left = db.increment(args.table(), args.key(), -1).await?;
    if left < 0 {
        return Err(sandstorm::Error::Application(7));
    }
    let there = db.increment(args.table(), args.bytes(), 1).await?;
    reply.i64(there)
}

#[test]
fn dependent_reads_run_to_the_end_of_the_chain() {
    let rig = Rig::new(Faults::default());
    for (key, next) in [(b"a", b"b"), (b"b", b"c"), (b"c", b"d")] {
        rig.put(1, key, next);
    }
    let mut local = Local::new(rig.session());
    local.spawn_read(follow, 1, b"a", b"");
    let (_, reply, round_trips, reads) = finish(&mut local).remove(0);
    assert_eq!((reply.unwrap().as_slice(), round_trips, reads), (&b"d"[..], 4, 4));
}

#[test]
fn many_invocations_share_frames_and_round_trips() {
    let rig = Rig::new(Faults::default());
    for number in 0..100u8 {
        rig.put(1, &[number], &[number, number]);
    }
    let mut local = Local::new(rig.session());
    let ids: Vec<u64> = (0..40).map(|_| local.spawn_read(gather, 1, b"", &[100])).collect();
    let mut ended = finish(&mut local);
    ended.sort_by_key(|ended| ended.0);
    assert_eq!(ended.iter().map(|ended| ended.0).collect::<Vec<_>>(), ids);
    let joined: Vec<u8> = (0..100).flat_map(|number| [number, number]).collect();
    assert!(ended.iter().all(|(_, reply, ..)| reply.as_ref().unwrap() == &joined));
    let statistics = local.session().statistics();
    assert_eq!(statistics.requests, 4000);
    // However many were sent again: on average a frame carries several of them.
    assert!(statistics.bytes_sent > 120 * statistics.frames_sent, "{statistics:?}");
}

#[test]
fn writes_are_read_back_and_applied_at_the_good_end_alone() {
    let rig = Rig::new(Faults::default());
    rig.put(1, b"from", &2i64.to_le_bytes());
    let mut local = Local::new(rig.session());
    for round in 1..=2i64 {
        local.spawn(transfer, 1, b"from", b"to");
        assert_eq!(one(&mut local).unwrap(), round.to_le_bytes());
    }
    local.spawn(transfer, 1, b"from", b"to");
    let failed = one(&mut local).unwrap_err();
    assert!(matches!(failed, LocalFailure::Function(sandstorm::Error::Application(7))));
    assert_eq!(rig.value(1, b"from").unwrap(), 0i64.to_le_bytes());
    assert_eq!(rig.value(1, b"to").unwrap(), 2i64.to_le_bytes());
    local.spawn_read(transfer, 1, b"from", b"to");
    assert!(matches!(one(&mut local).unwrap_err(), LocalFailure::Function(sandstorm::Error::ReadOnly)));
}

#[test]
fn conflicting_increments_run_again_until_none_is_lost() {
    async fn count(db: &Db<'_>, args: Args<'_>, _: &mut Reply<'_>) -> Outcome {
        db.increment(args.table(), args.key(), 1).await.map(drop)
    }
    let rig = Rig::new(Faults::default());
    let mut local = Local::new(rig.session());
    for _ in 0..4 {
        local.spawn(count, 1, b"n", b"");
    }
    let ended = finish(&mut local);
    let good = ended.iter().filter(|(_, reply, ..)| reply.is_ok()).count() as i64;
    assert_eq!(good, 4);
    assert_eq!(rig.value(1, b"n").unwrap(), good.to_le_bytes());
}

#[test]
fn what_was_read_and_has_changed_lets_the_function_run_again_and_nothing_is_half_written() {
    async fn two(db: &Db<'_>, args: Args<'_>, _: &mut Reply<'_>) -> Outcome {
        db.put(args.table(), b"first", b"x").await?;
        db.put_if(args.table(), b"second", b"x", sandstorm::Condition::Absent).await?;
        // Somebody else is faster meanwhile.
        let reader = db.get(args.table(), b"signal").await?;
        assert!(reader.is_none());
        Ok(())
    }
    let rig = Rig::new(Faults::default());
    let mut local = Local::new(rig.session());
    local.spawn(two, 1, b"", b"");
    let mut ended = Vec::new();
    while local.outstanding() > 0 {
        local.poll(&mut |done| ended.push(done.result.map(<[u8]>::to_vec))).unwrap();
        if rig.value(1, b"first").is_none() {
            rig.put(1, b"second", b"other");
        }
    }
    let failed = ended.remove(0).unwrap_err();
    assert!(matches!(failed, LocalFailure::Function(sandstorm::Error::ConditionFailed)), "{failed:?}");
    assert_eq!(rig.value(1, b"first"), None);
    assert_eq!(rig.value(1, b"second").unwrap(), b"other");
}

#[test]
fn conditions_hold_against_own_writes_and_the_server() {
    async fn conditions(db: &Db<'_>, args: Args<'_>, _: &mut Reply<'_>) -> Outcome {
        use sandstorm::Condition::{Absent, Present, Version};
        use sandstorm::Error::ConditionFailed;
        let table = args.table();
        assert_eq!(db.put_if(table, b"there", b"x", Absent).await, Err(ConditionFailed));
        assert_eq!(db.put_if(table, b"absent", b"x", Present).await, Err(ConditionFailed));
        let record = db.get_record(table, b"there").await?.unwrap();
        assert_eq!(db.put_if(table, b"there", b"x", Version(record.version + 1)).await, Err(ConditionFailed));
        db.put_if(table, b"there", b"new", Version(record.version)).await?;
        assert_eq!(record.value, b"old");
        assert_eq!(db.get(table, b"there").await?, Some(&b"new"[..]));
        db.delete(table, b"there").await?;
        assert_eq!(db.get(table, b"there").await?, None);
        db.put_if(table, b"there", b"newest", Absent).await?;
        db.delete(table, b"nothing").await
    }
    let rig = Rig::new(Faults::default());
    rig.put(1, b"there", b"old");
    let mut local = Local::new(rig.session());
    local.spawn(conditions, 1, b"", b"");
    one(&mut local).unwrap();
    assert_eq!(rig.value(1, b"there").unwrap(), b"newest");
}

#[test]
fn tables_are_found_by_name_and_lines_are_logged() {
    async fn named(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Outcome {
        let name = str::from_utf8(args.bytes()).unwrap();
        let table: Table = db.table(name).await?;
        db.log(Level::Information, format_args!("table {}", table.id()));
        db.yield_now().await;
        assert!(db.now_ms() > 1_600_000_000_000);
        reply.u32(table.id())
    }
    let rig = Rig::new(Faults::default());
    let id = Client::over(rig.session()).table_create("t").unwrap();
    let mut local = Local::new(rig.session());
    local.spawn_read(named, 1, b"", b"t");
    assert_eq!(one(&mut local).unwrap(), id.to_le_bytes());
    assert_eq!(local.take_log(), [(Level::Information, format!("table {id}"))]);
    local.spawn_read(named, 1, b"", b"unknown");
    assert!(matches!(one(&mut local).unwrap_err(), LocalFailure::Function(sandstorm::Error::UnknownTable)));
}

#[test]
fn forgotten_reads_and_late_replies_disturb_nobody() {
    async fn forget(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Outcome {
        let mut read = Box::pin(db.get(args.table(), b"a"));
        let waker = std::task::Waker::noop();
        assert!(read.as_mut().poll(&mut std::task::Context::from_waker(waker)).is_pending());
        reply.write(b"done")
    }
    let rig = Rig::new(Faults { delay_us_min: 200, ..Faults::default() });
    rig.put(1, b"a", b"z");
    let mut local = Local::new(rig.session());
    for _ in 0..50 {
        local.spawn_read(forget, 1, b"", b"");
        local.spawn_read(follow, 1, b"a", b"");
        let replies: Vec<_> = finish(&mut local).into_iter().map(|ended| ended.1.unwrap()).collect();
        assert_eq!(replies.len(), 2);
        assert!(replies.contains(&b"done".to_vec()) && replies.contains(&b"z".to_vec()));
    }
}

#[test]
fn lossy_network_and_a_restart_change_no_reply() {
    let rough = Faults {
        drop_ppm: 50_000,
        duplicate_ppm: 50_000,
        reorder_ppm: 200_000,
        delay_us_min: 0,
        delay_us_max: 300,
    };
    let rig = Rig::new(rough);
    for number in 0..50u8 {
        rig.put(1, &[number], &[number]);
    }
    let mut local = Local::new(rig.session());
    for round in 0..20 {
        for _ in 0..10 {
            local.spawn_read(gather, 1, b"", &[50]);
        }
        if round == 10 {
            rig.server.restart();
        }
        let ended = finish(&mut local);
        assert!(ended.iter().all(|(_, reply, ..)| *reply.as_ref().unwrap() == (0..50).collect::<Vec<u8>>()));
    }
    assert_eq!((local.session().statistics().reopened, rig.server.world().sessions()), (1, 1));
}

#[test]
fn silence_of_the_server_is_told_apart_from_the_functions_own_errors() {
    let rig = Rig::new(Faults { drop_ppm: 1_000_000, ..Faults::default() });
    let mut local = Local::new(rig.session_for(Duration::from_millis(200)));
    local.spawn_read(follow, 1, b"a", b"");
    assert!(matches!(one(&mut local).unwrap_err(), LocalFailure::Server(Error::TimedOut)));
}

#[test]
fn blocking_calls_between_polls_take_nothing_from_the_invocations() {
    let rig = Rig::new(Faults::default());
    rig.put(1, b"a", b"z");
    let mut local = Local::new(rig.session());
    local.spawn_read(follow, 1, b"a", b"");
    local.poll(&mut |_| ()).unwrap();
    let mut body = Vec::new();
    let put =
        splinter_client::Request::Put { table: 1, key: b"k", value: b"v", condition: Condition::Always };
    assert_eq!(local.session().call(&put, &mut body).unwrap(), splinter_client::Status::Ok);
    assert_eq!(one(&mut local).unwrap(), b"z");
}
