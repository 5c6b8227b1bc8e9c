//! A session over two fake servers: requests find the server of their key, also while keys move and servers go.

mod fake {
    pub mod answers;
    pub mod pair;
    pub mod server;
    pub mod world;
}
mod moving {
    mod both_sides;
    mod silent;
}

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fake::answers::finish;
use fake::pair::{MIDDLE, Pair, TABLE};
use fake::server::{SECRET, TENANT};
use splinter_client::local::LocalFailure;
use splinter_client::{
    Client, ClientConfig, Completion, CompletionError, Condition, Error, Local, Request, Session,
    SessionGroup, Status,
};
use wire::function_hash;
use xxhash_rust::xxh3::xxh3_64;

/// Ends the moving when the client is through, also by a failure.
struct Over<'o>(&'o AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn keys(count: u32) -> Vec<Vec<u8>> {
    (0..count).map(|number| format!("key {number}").into_bytes()).collect()
}

fn put(key: &[u8]) -> Request<'_> {
    Request::Put { table: TABLE, key, value: key, condition: Condition::Always }
}

/// What puts of all these come to.
fn put_all(session: &mut Session, keys: &[Vec<u8>]) -> HashMap<u64, Result<Vec<u8>, Error>> {
    for (tag, key) in (0..).zip(keys) {
        session.submit(&put(key), tag).unwrap();
    }
    finish(session)
}

#[test]
fn each_key_is_written_to_its_server_and_read_from_there() {
    let pair = Pair::new();
    let mut session = pair.session();
    let keys = keys(60);
    for request in [put as fn(&[u8]) -> Request<'_>, |key| Request::Get { table: TABLE, key }] {
        for (tag, key) in (0..).zip(&keys) {
            session.submit(&request(key), tag).unwrap();
        }
        let answers = finish(&mut session);
        assert!(answers.len() == 60 && answers.values().all(Result::is_ok), "{answers:?}");
    }
    for (index, server) in pair.servers.iter().enumerate() {
        let world = server.world();
        assert!(world.objects.len() > 10);
        assert!(world.objects.keys().all(|(_, key)| usize::from(xxh3_64(key) >= MIDDLE) == index));
        assert_eq!(world.sessions(), 1);
    }
    assert_eq!(session.statistics().requests, 120);
    // The map was asked for when the table was first used, and for the keys that went wrong until it came; of both servers
    // on a machine that is slow.
    assert!(pair.servers.iter().all(|server| server.world().maps_asked <= 2));
}

#[test]
fn a_multi_get_of_several_servers_is_one_answer_in_the_order_of_its_keys() {
    let pair = Pair::new();
    let mut client = Client::over(pair.session());
    let keys = keys(300);
    let pairs: Vec<_> = keys.iter().map(|key| (&key[..], &key[..])).collect();
    assert!(client.multi_put(TABLE, &pairs).unwrap().iter().all(Result::is_ok));
    let mut asked: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
    asked.insert(77, b"nobody's");
    let objects = client.multi_get(TABLE, &asked).unwrap();
    for (key, object) in asked.iter().zip(objects) {
        assert_eq!(object.map(|object| object.value), (*key != b"nobody's").then(|| key.to_vec()));
    }
}

#[test]
fn a_function_without_a_key_works_where_it_was_asked_for_also_behind_requests_that_have_keys() {
    let pair = Pair::new();
    // No key at all has a hash too, which is the second server's.
    pair.cut(2, xxh3_64(&[]));
    let mut session = pair.session();
    for _ in 0..2 {
        assert!(put_all(&mut session, &keys(40)).values().all(Result::is_ok));
    }
    let [extension, other] = [0, 1].map(|index: usize| pair.servers[index].world().extension);
    assert_eq!(extension, other);
    pair.servers[1].world().extension += 1;
    let function = function_hash("echo");
    for tag in 0..3 {
        let (key, arguments) = (&[][..], &b"heard"[..]);
        session
            .submit(&Request::Invoke { extension, version: 0, function, table: TABLE, key, arguments }, tag)
            .unwrap();
        assert_eq!(finish(&mut session)[&tag].as_deref().unwrap(), arguments);
    }
}

#[test]
fn increments_are_executed_once_while_their_keys_move() {
    let pair = Pair::new();
    let keys = keys(20);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut version = 1;
            while !is_over.load(Ordering::Relaxed) {
                version += 1;
                pair.cut(version, [MIDDLE / 2, MIDDLE, MIDDLE + MIDDLE / 2][version as usize % 3]);
                thread::sleep(Duration::from_millis(8));
            }
        });
        let _over = Over(&is_over);
        let mut session = pair.session();
        let (mut submitted, mut answered) = (0_u64, 0_u64);
        while answered < 20_000 {
            while submitted < 20_000 && session.can_submit() {
                let key = &keys[submitted as usize % keys.len()];
                session.submit(&Request::Increment { table: TABLE, key, delta: 1 }, submitted).unwrap();
                submitted += 1;
            }
            let check = &mut |completion: Completion<'_>| assert_eq!(completion.status, Ok(Status::Ok));
            answered += session.poll_waiting(check).unwrap() as u64;
        }
    });
    assert!(keys.iter().all(|key| pair.count(key) == 1_000));
}

#[test]
fn what_is_too_large_for_a_datagram_finds_its_server_too() {
    let pair = Pair::new();
    let mut client = Client::over(pair.session());
    let value = vec![7; 100_000];
    for key in keys(8) {
        client.put(TABLE, &key, &value).unwrap();
        assert_eq!(client.get(TABLE, &key).unwrap().unwrap().value, value);
    }
    assert!(pair.servers.iter().all(|server| !server.world().objects.is_empty()));
}

#[test]
fn a_server_that_is_away_fails_its_own_requests_by_name_and_no_others() {
    let Pair { servers: [one, other] } = Pair::new();
    let mut session = Session::open(&one.address, TENANT, SECRET, ClientConfig::default()).unwrap();
    let keys = keys(40);
    let mut run = || put_all(&mut session, &keys);
    assert!(run().values().all(Result::is_ok));
    drop(other);
    // What is under way when it goes is of unknown outcome, what follows has not been executed.
    run();
    let answers = run();
    for (tag, key) in (0..).zip(&keys) {
        match &answers[&tag] {
            Ok(_) => assert!(xxh3_64(key) < MIDDLE),
            Err(Error::ServerAway { server: 7 }) => assert!(xxh3_64(key) >= MIDDLE),
            Err(error) => panic!("{error}"),
        }
    }
    assert!(CompletionError::Away { server: 7 }.to_string().contains("server 7"));
}

#[test]
fn what_nobody_has_got_goes_to_whom_the_map_names_when_its_server_is_away() {
    let pair = Pair::new();
    let taken_over = pair.map(2, u64::MAX);
    let Pair { servers: [one, other] } = pair;
    let mut session = Session::open(&one.address, TENANT, SECRET, ClientConfig::default()).unwrap();
    let keys = keys(40);
    let mut run = || put_all(&mut session, &keys);
    assert!(run().values().all(Result::is_ok));
    drop(other);
    // What is under way when it goes is of unknown outcome.
    run();
    {
        let mut world = one.world();
        (world.owned, world.map) = (vec![(0, u64::MAX)], taken_over);
        world.view += 1;
    }
    // The client has not heard of that, and knows no other way than to the server that is away.
    let answers = run();
    assert!(answers.values().all(Result::is_ok), "{answers:?}");
}

/// Nobody can be asked until another server has recovered the keys.
#[test]
fn requests_wait_while_others_recover_their_server() {
    let pair = Pair::new();
    let (taken_over, recovering) = (pair.map(3, u64::MAX), pair.recovering_map(2));
    let Pair { servers: [one, other] } = pair;
    let config = ClientConfig { call_timeout: Duration::from_secs(3), ..ClientConfig::default() };
    let mut session = Session::open(&one.address, TENANT, SECRET, config).unwrap();
    let keys = keys(40);
    assert!(put_all(&mut session, &keys).values().all(Result::is_ok));
    drop(other);
    {
        let mut world = one.world();
        world.map = recovering;
        world.view += 1;
    }
    // Whatever is under way when it goes is of unknown outcome.
    put_all(&mut session, &keys);
    for (tag, key) in (0..).zip(&keys) {
        session.submit(&put(key), tag).unwrap();
    }
    let (begun, mut answered) = (Instant::now(), 0);
    while begun.elapsed() < Duration::from_millis(500) {
        let complete = &mut |completion: Completion<'_>| {
            assert_eq!(completion.status, Ok(Status::Ok), "key {}", completion.tag);
        };
        answered += session.poll(complete).unwrap();
        thread::sleep(Duration::from_millis(1));
    }
    let of_one = keys.iter().filter(|key| xxh3_64(key) < MIDDLE).count();
    assert_eq!(answered, of_one, "the others wait");
    {
        let mut world = one.world();
        (world.owned, world.map) = (vec![(0, u64::MAX)], taken_over);
        world.view += 1;
    }
    assert!(finish(&mut session).values().all(Result::is_ok));
}

/// Half of the increments at a server are executed and their answers lost, the others do not come to it; then it is gone.
#[test]
fn increments_under_way_at_a_server_that_goes_are_executed_once_if_another_recovers_it() {
    let pair = Pair::new();
    let taken_over = pair.map(2, u64::MAX);
    let Pair { servers: [one, other] } = pair;
    other.world().is_resumable = true;
    let config = ClientConfig { call_timeout: Duration::from_secs(40), ..ClientConfig::default() };
    let mut session = Session::open(&one.address, TENANT, SECRET, config).unwrap();
    let of_other: Vec<_> = keys(80).into_iter().filter(|key| xxh3_64(key) >= MIDDLE).collect();
    let [executed, lost] = [&of_other[..10], &of_other[10..20]];
    let increment = |session: &mut Session, tag: u64, key: &[u8]| {
        session.submit(&Request::Increment { table: TABLE, key, delta: 1 }, tag).unwrap();
    };
    for key in executed {
        increment(&mut session, 0, key);
        finish(&mut session);
    }
    other.world().is_mute = true;
    for (tag, key) in (0..).zip(executed) {
        increment(&mut session, tag, key);
    }
    while other.world().executions < 20 {
        session.poll(&mut |_| panic!("it is mute")).unwrap();
    }
    other.world().is_deaf = true;
    for (tag, key) in (10..).zip(lost) {
        increment(&mut session, tag, key);
    }
    session.flush().unwrap();
    let mut left = std::mem::replace(&mut *other.world(), fake::world::World::new());
    drop(other);
    {
        let mut world = one.world();
        world.recover(&mut left);
        world.map = taken_over;
        world.view += 1;
    }
    let answers = finish(&mut session);
    let counts = |tag: u64| i64::from_le_bytes(answers[&tag].as_ref().unwrap()[8..].try_into().unwrap());
    assert!((0..10).all(|tag| counts(tag) == 2) && (10..20).all(|tag| counts(tag) == 1), "{answers:?}");
    let world = one.world();
    let count = |key: &Vec<u8>| world.objects[&(TABLE, key.clone())].1.clone();
    assert!(executed.iter().all(|key| count(key) == 2_i64.to_le_bytes()));
    assert!(lost.iter().all(|key| count(key) == 1_i64.to_le_bytes()));
}

#[test]
fn a_server_that_was_restarted_gets_a_new_session_and_its_requests() {
    let pair = Pair::new();
    let mut session = pair.session();
    let keys = keys(40);
    assert_ne!(pair.servers[0].core, pair.servers[1].core);
    assert!(put_all(&mut session, &keys).values().all(Result::is_ok));
    // What only reads is made again, however often it was sent.
    for restarted in [1, 0, 1] {
        pair.servers[restarted].restart();
        for (tag, key) in (0..).zip(&keys) {
            session.submit(&Request::Get { table: TABLE, key }, tag).unwrap();
        }
        assert!(finish(&mut session).values().all(Result::is_ok));
    }
    let mut client = Client::over(session);
    assert!(keys.iter().all(|key| client.get(TABLE, key).unwrap().is_some()));
    assert!(pair.servers.iter().all(|server| server.world().sessions() == 1));
}

#[test]
fn a_function_at_the_client_writes_to_one_server_alone() {
    async fn swap(
        db: &sandstorm::Db<'_>,
        args: sandstorm::Args<'_>,
        _: &mut sandstorm::Reply<'_>,
    ) -> Result<(), sandstorm::Error> {
        for key in [args.key(), args.bytes()] {
            db.get(args.table(), key).await?;
            db.put(args.table(), key, b"value").await?;
        }
        Ok(())
    }
    let pair = Pair::new();
    let mut client = Client::over(pair.session());
    let keys = keys(40);
    let (low, high): (Vec<_>, Vec<_>) = keys.iter().partition(|key| xxh3_64(key) < MIDDLE);
    client.put(TABLE, high[0], b"value").unwrap();
    let mut local = Local::new(client.into_session());
    let mut run = |one: &[u8], other: &[u8]| {
        local.spawn(swap, TABLE, one, other);
        let mut status = None;
        local
            .poll_waiting(&mut |finished| {
                status = finished.result.err().map(|failure| match failure {
                    LocalFailure::Server(error) => error.status(),
                    other => panic!("{other}"),
                });
            })
            .unwrap();
        status
    };
    assert_eq!(run(low[0], low[1]), None);
    assert_eq!(run(high[0], high[1]), None);
    assert_eq!(run(low[2], high[2]), Some(Some(Status::NotLocal)));
    assert!(pair.servers.iter().all(|server| server.world().objects.len() == 2));
}

#[test]
fn a_key_whose_server_nobody_knows_is_refused_when_its_time_is_up() {
    let pair = Pair::new();
    // Both say that it is the other one's.
    pair.servers[0].world().owned.clear();
    pair.servers[1].world().owned.clear();
    let asked = || pair.servers.iter().map(|server| server.world().maps_asked).sum::<u64>();
    // On a machine that is slow, so that in its time little is asked, with more of it.
    for call_timeout in [300, 3_000, 30_000].map(Duration::from_millis) {
        let before = asked();
        let config = ClientConfig { call_timeout, ..ClientConfig::default() };
        let mut client = Client::over(pair.session_with(config));
        let refused = client.put(TABLE, b"key", b"value").unwrap_err();
        match refused.status() {
            Some(status) => assert!(status == Status::NotOwned && !refused.outcome_is_unknown()),
            // The time was up while one of them was asked, or before.
            None => assert!(matches!(refused, Error::TimedOut | Error::NotSent), "{refused}"),
        }
        if asked() - before > 2 {
            return;
        }
    }
    panic!("it does not keep asking");
}

#[test]
fn maps_that_make_no_sense_change_nothing() {
    let pair = Pair::new();
    let good = pair.map(1, MIDDLE);
    let mut client = Client::over(pair.session());
    let (mine, others) = (keys(50), keys(50));
    let mine = mine.iter().find(|key| xxh3_64(key) < MIDDLE).unwrap();
    let theirs = others.iter().find(|key| xxh3_64(key) >= MIDDLE).unwrap();
    for length in (0..good.len()).step_by(7) {
        pair.servers[0].world().map = good[..length].to_vec();
        client.put(TABLE + 1 + length as u32, mine, b"value").unwrap();
    }
    pair.servers[0].world().map = good;
    client.put(TABLE, theirs, b"value").unwrap();
    assert_eq!(pair.servers[1].world().objects.len(), 1);
}

#[test]
fn members_of_a_group_go_to_the_servers_of_their_keys() {
    let pair = Pair::new();
    let mut group = SessionGroup::new(ClientConfig::default()).unwrap();
    for _ in 0..3 {
        group.open(&pair.servers[0].address, TENANT, SECRET).unwrap();
    }
    let keys = keys(30);
    for _ in 0..4 {
        let mut completed = 0;
        for (number, key) in keys.iter().enumerate() {
            let increment = Request::Increment { table: TABLE, key, delta: 1 };
            group.submit(number % 3, &increment, number as u64).unwrap();
        }
        while completed < keys.len() {
            completed +=
                group.poll(&mut |_, completion| assert_eq!(completion.status, Ok(Status::Ok))).unwrap();
            group.wait(Duration::from_millis(1)).unwrap();
        }
    }
    assert!(keys.iter().all(|key| pair.count(key) == 4));
    assert!(pair.servers.iter().all(|server| server.world().sessions() == 3));
}
