//! Sessions against a fake server: pipelining, loss, streams, restarts.

mod fake {
    pub mod answers;
    pub mod server;
    pub mod world;
}
mod neighbour {
    mod shm_listener;
}

use std::time::{Duration, Instant};

use fake::answers::finish;
use fake::server::{FakeServer, SECRET, TENANT};
use net::{Faults, LoopbackClock, LoopbackNetwork, UdpConfig, UdpPort};
use splinter_client::{
    Client, ClientConfig, CompletionError, Condition, Error, Request, Session, SessionGroup, Status,
};

/// Far longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

const ROUGH: Faults = Faults {
    drop_ppm: 100_000,
    duplicate_ppm: 100_000,
    reorder_ppm: 300_000,
    delay_us_min: 0,
    delay_us_max: 500,
};

struct Rig {
    network: LoopbackNetwork,
    server: FakeServer,
}

impl Rig {
    fn new(seed: u64, faults: Faults) -> Rig {
        let network = LoopbackNetwork::new(seed, faults, LoopbackClock::Real);
        let server = FakeServer::start(network.port().unwrap());
        Rig { network, server }
    }

    fn config(&self) -> ClientConfig {
        ClientConfig { core_addresses: vec![self.server.core], ..ClientConfig::default() }
    }

    fn session(&self) -> Session {
        self.session_with(self.config())
    }

    fn session_with(&self, config: ClientConfig) -> Session {
        let port = Box::new(self.network.port().unwrap());
        Session::open_over(port, &self.server.address, TENANT, SECRET, config).unwrap()
    }
}

#[test]
fn pipelined_requests_are_each_answered_once() {
    let rig = Rig::new(1, Faults::default());
    let mut session = rig.session();
    for tag in 0..60u64 {
        let key = tag.to_le_bytes();
        let put = Request::Put { table: 1, key: &key, value: &key, condition: Condition::Always };
        session.submit(&put, tag).unwrap();
    }
    // None of them can have been sent again yet.
    session.flush().unwrap();
    assert!(session.statistics().frames_sent < 60 / 4, "{:?}", session.statistics());
    assert!(finish(&mut session).values().all(Result::is_ok));
    for tag in 0..60u64 {
        session.submit(&Request::Get { table: 1, key: &tag.to_le_bytes() }, tag).unwrap();
    }
    for (tag, answer) in finish(&mut session) {
        assert_eq!(answer.unwrap()[8..], tag.to_le_bytes());
    }
    assert_eq!(session.statistics().requests, 120);
}

#[test]
fn full_window_refuses_and_polling_makes_room() {
    let rig = Rig::new(2, Faults::default());
    rig.server.world().credits = 4;
    let mut session = rig.session();
    for tag in 0..4 {
        session.submit(&Request::Ping, tag).unwrap();
    }
    assert!(!session.can_submit());
    assert!(matches!(session.submit(&Request::Ping, 4), Err(Error::Full)));
    assert_eq!(finish(&mut session).len(), 4);
    session.submit(&Request::Ping, 4).unwrap();
    assert_eq!(finish(&mut session).len(), 1);
}

#[test]
fn increments_over_a_lossy_network_execute_exactly_once() {
    for seed in 0..5 {
        let rig = Rig::new(seed, ROUGH);
        let mut session = rig.session();
        let (mut submitted, mut answered) = (0u64, 0);
        while answered < 400 {
            while submitted < 400 && session.can_submit() {
                let increment = Request::Increment { table: 1, key: b"counter", delta: 1 };
                session.submit(&increment, submitted).unwrap();
                submitted += 1;
            }
            answered += session
                .poll_waiting(&mut |completion| assert_eq!(completion.status, Ok(Status::Ok), "seed {seed}"))
                .unwrap();
        }
        let world = rig.server.world();
        let (_, value) = &world.objects[&(1, b"counter".to_vec())];
        assert_eq!(value[..], 400i64.to_le_bytes(), "seed {seed}");
    }
}

#[test]
fn large_requests_and_large_answers_take_the_stream() {
    let rig = Rig::new(3, Faults::default());
    let mut session = rig.session();
    let large: Vec<u8> = (0..200_000u32).map(|byte| byte as u8).collect();
    let put = Request::Put { table: 1, key: b"large", value: &large, condition: Condition::Always };
    session.submit(&put, 1).unwrap();
    session.submit(&Request::Ping, 2).unwrap();
    assert!(finish(&mut session).values().all(Result::is_ok));
    session.submit(&Request::Get { table: 1, key: b"large" }, 3).unwrap();
    session.submit(&Request::Get { table: 1, key: b"absent" }, 4).unwrap();
    let answers = finish(&mut session);
    assert!(answers[&3].as_ref().unwrap()[8..] == large[..]);
    assert_eq!(answers[&4].as_ref().unwrap_err().status(), Some(Status::NotFound));
    assert_eq!(session.statistics().stream_requests, 2);
    assert_eq!(session.outstanding(), 0);
}

#[test]
fn large_invocation_executes_once_although_its_answer_moves_to_the_stream() {
    let rig = Rig::new(4, Faults::default());
    let mut client = Client::over(rig.session());
    let before = rig.server.world().executions;
    let answer = client.invoke("demo.echo", 1, b"", &[7; 1420]).unwrap();
    assert_eq!(answer, [7; 1420]);
    let arguments = vec![9; 100_000];
    assert_eq!(client.invoke("demo.echo", 1, b"", &arguments).unwrap(), arguments);
    assert_eq!(rig.server.world().executions - before, 2);
}

#[test]
fn requests_that_are_put_off_are_made_again_by_themselves() {
    let rig = Rig::new(5, Faults::default());
    let mut session = rig.session();
    rig.server.world().retries = 20;
    for tag in 0..10 {
        session.submit(&Request::Ping, tag).unwrap();
    }
    assert!(finish(&mut session).values().all(Result::is_ok));
}

/// Only members of a group that have something under way are looked after: one that comes out of its rest is one of them
/// again, so that what the network loses is sent again, and what nobody answers ends in time.
#[test]
fn members_of_a_group_are_looked_after_whenever_they_have_something_under_way() {
    let rig = Rig::new(6, ROUGH);
    let config = ClientConfig { call_timeout: PATIENCE, ..rig.config() };
    let mut group = SessionGroup::over(Box::new(rig.network.port().unwrap()), config.clone());
    let members: Vec<usize> =
        (0..20).map(|_| group.open(&rig.server.address, TENANT, SECRET).unwrap()).collect();
    let increment = Request::Increment { table: 1, key: b"n", delta: 1 };
    let mut values = Vec::new();
    for round in 0..100 {
        let member = members[round % members.len()];
        group.submit(member, &increment, round as u64).unwrap();
        while group.outstanding(member) > 0 {
            group
                .poll(&mut |_, completion| {
                    assert_eq!(completion.status, Ok(Status::Ok));
                    values.push(i64::from_le_bytes(completion.body[8..].try_into().unwrap()));
                })
                .unwrap();
            group.wait(Duration::from_millis(1)).unwrap();
        }
    }
    assert_eq!(values, (1..=100).collect::<Vec<i64>>());

    let config = ClientConfig { call_timeout: Duration::from_millis(80), ..config };
    let mut group = SessionGroup::over(Box::new(rig.network.port().unwrap()), config);
    let member = group.open(&rig.server.address, TENANT, SECRET).unwrap();
    rig.network.set_faults(Faults { drop_ppm: 1_000_000, ..Faults::default() });
    for tag in 0..2 {
        let mut ended = None;
        group.submit(member, &increment, tag).unwrap();
        while ended.is_none() {
            group.poll(&mut |_, completion| ended = Some(completion.status)).unwrap();
            group.wait(Duration::from_secs(1)).unwrap();
        }
        assert_eq!(ended, Some(Err(CompletionError::TimedOut)));
        // Long enough for it to rest.
        std::thread::sleep(Duration::from_millis(5));
        group.poll(&mut |_, _| {}).unwrap();
    }
}

#[test]
fn silent_server_ends_a_call_by_its_timeout() {
    let rig = Rig::new(6, Faults::default());
    let config = ClientConfig { call_timeout: Duration::from_millis(80), ..rig.config() };
    let mut client = Client::over(rig.session_with(config));
    rig.network.set_faults(Faults { drop_ppm: 1_000_000, ..Faults::default() });
    assert!(matches!(client.put(1, b"k", b"v"), Err(Error::TimedOut)));
    rig.network.set_faults(Faults::default());
    // A machine that is busy elsewhere may be as silent for a while.
    while let Err(error) = client.put(1, b"k", b"v") {
        assert!(matches!(error, Error::TimedOut), "{error}");
    }
}

#[test]
fn idle_session_is_reopened_and_the_request_made_again() {
    let rig = Rig::new(7, Faults::default());
    let mut client = Client::over(rig.session());
    client.put(1, b"k", b"v").unwrap();
    rig.server.restart();
    assert_eq!(client.get(1, b"k").unwrap().unwrap().value, b"v");
    // A write is made again only when its refusal came before a second transmission, which a busy machine
    // may prevent; then it is reported. Either way it is executed as often as it is said to be.
    let (mut executed, mut restarts) = (0, 1);
    while executed == 0 && restarts < 100 {
        rig.server.restart();
        restarts += 1;
        match client.increment(1, b"n", 1) {
            Ok((value, _)) => executed = value,
            Err(error) => assert!(matches!(error, Error::SessionLost)),
        }
    }
    assert_eq!((executed, client.session().statistics().reopened), (1, restarts));
}

#[test]
fn restart_loses_mutations_under_way_and_makes_reads_again() {
    let rig = Rig::new(8, Faults::default());
    let mut session = rig.session();
    // The requests reach nobody, then the server restarts, then their retransmissions are refused.
    rig.network.set_faults(Faults { drop_ppm: 1_000_000, ..Faults::default() });
    for tag in 0..10u64 {
        session.submit(&Request::Increment { table: 1, key: b"n", delta: 1 }, tag).unwrap();
        session.submit(&Request::Get { table: 1, key: b"absent" }, 100 + tag).unwrap();
    }
    session.flush().unwrap();
    std::thread::sleep(Duration::from_millis(20));
    rig.server.restart();
    rig.network.set_faults(Faults::default());
    let answers = finish(&mut session);
    assert_eq!(answers.len(), 20);
    for (tag, answer) in answers {
        match answer {
            Err(Error::SessionLost) if tag < 100 => {}
            Err(error) if tag >= 100 => assert_eq!(error.status(), Some(Status::NotFound)),
            other => panic!("{tag}: {other:?}"),
        }
    }
    assert!(!rig.server.world().objects.contains_key(&(1, b"n".to_vec())));
}

#[test]
fn server_that_does_not_come_back_is_reported_and_tried_again() {
    let rig = Rig::new(9, Faults::default());
    let config = ClientConfig { call_timeout: Duration::from_millis(200), ..rig.config() };
    let mut session = rig.session_with(config);
    let Rig { network, server } = rig;
    drop(server);
    session.submit(&Request::Ping, 1).unwrap();
    let mut status = None;
    while status.is_none() {
        session.poll_waiting(&mut |completion| status = Some(completion.status)).unwrap();
    }
    assert_eq!(status, Some(Err(CompletionError::TimedOut)));
    drop(network);
}

#[test]
fn broken_stream_is_attached_again_and_nothing_executes_twice() {
    let rig = Rig::new(10, Faults::default());
    let mut client = Client::over(rig.session());
    for round in 0..5u8 {
        let large = vec![round; 50_000];
        client.put(1, b"large", &large).unwrap();
        rig.server.cut_streams();
        assert!(client.get(1, b"large").unwrap().unwrap().value == large);
        rig.server.cut_streams();
    }
    let world = rig.server.world();
    assert_eq!(world.executions, 10);
    assert_eq!(world.sessions(), 1);
}

#[test]
fn blocking_calls_leave_the_completions_of_others_to_the_next_poll() {
    let rig = Rig::new(11, Faults::default());
    let mut client = Client::over(rig.session());
    for tag in 0..5 {
        client.session().submit(&Request::Ping, tag).unwrap();
    }
    client.put(1, b"k", b"v").unwrap();
    assert_eq!(client.multi_get(1, &[b"k", b"l"]).unwrap().len(), 2);
    let mut tags: Vec<_> = finish(client.session()).into_keys().collect();
    tags.sort_unstable();
    assert_eq!(tags, [0, 1, 2, 3, 4]);
}

#[test]
fn administration_after_a_restart_reopens_the_session_by_itself() {
    let rig = Rig::new(12, Faults::default());
    let mut client = Client::over(rig.session());
    client.table_create("before").unwrap();
    rig.server.restart();
    std::thread::sleep(Duration::from_millis(600));
    client.table_create("after").unwrap();
    assert_eq!(client.table_list().unwrap().len(), 2);
    assert_eq!(client.session().statistics().reopened, 1);
}

#[test]
fn large_requests_of_a_lost_session_are_each_completed_too() {
    let rig = Rig::new(13, Faults::default());
    let mut session = rig.session();
    let large = vec![1; 50_000];
    let put = Request::Put { table: 1, key: b"large", value: &large, condition: Condition::Always };
    session.submit(&put, 1).unwrap();
    assert!(finish(&mut session)[&1].is_ok());
    rig.server.restart();
    session.submit(&Request::Get { table: 1, key: b"large" }, 2).unwrap();
    session.submit(&put, 3).unwrap();
    session.submit(&put, 4).unwrap();
    let answers = finish(&mut session);
    assert!(answers[&2].as_ref().unwrap()[8..] == large[..]);
    for tag in [3, 4] {
        assert!(matches!(answers[&tag], Ok(_) | Err(Error::SessionLost)), "{:?}", answers[&tag]);
    }
    assert_eq!((answers.len(), session.outstanding()), (3, 0));
}

#[test]
fn session_follows_its_tenants_home_and_each_request_runs_once() {
    let port = || UdpPort::bind(([127, 0, 0, 1], 0).into(), UdpConfig::default()).unwrap();
    let server = FakeServer::start_cores(vec![port(), port()]);
    let mut session = Session::open(&server.address, TENANT, SECRET, ClientConfig::default()).unwrap();
    let increment = Request::Increment { table: 1, key: b"counter", delta: 1 };
    let (mut requests, mut body) = (0, Vec::new());
    for home in [1, 0, 1, 1, 0] {
        for tag in 0..64 {
            if tag == 32 {
                // Some are on their way to the old home.
                session.flush().unwrap();
                server.world().home = home;
            }
            session.submit(&increment, tag).unwrap();
        }
        assert!(finish(&mut session).values().all(Result::is_ok));
        // An answer named the home, if not before, then now.
        assert_eq!(session.call(&increment, &mut body).unwrap(), Status::Ok);
        requests += 65;
        // What was sent to the old home twice, or was answered there and is late, ends at some time.
        let elsewhere = || server.world().frames.get(&(1 - home)).copied();
        let deadline = Instant::now() + PATIENCE;
        loop {
            let before = elsewhere();
            for _ in 0..10 {
                assert_eq!(session.call(&increment, &mut body).unwrap(), Status::Ok);
                requests += 1;
            }
            if elsewhere() == before {
                break;
            }
            assert!(Instant::now() < deadline, "frames go to the old home");
        }
    }
    let world = server.world();
    let (_, value) = &world.objects[&(1, b"counter".to_vec())];
    assert_eq!(
        (i64::from_le_bytes(value[..].try_into().unwrap()), world.executions),
        (requests, requests as u64)
    );
}

#[test]
fn a_session_that_is_reopened_with_another_home_sends_there() {
    let port = || UdpPort::bind(([127, 0, 0, 1], 0).into(), UdpConfig::default()).unwrap();
    let server = FakeServer::start_cores(vec![port(), port()]);
    let mut session = Session::open(&server.address, TENANT, SECRET, ClientConfig::default()).unwrap();
    let get = Request::Get { table: 1, key: b"absent" };
    let mut body = Vec::new();
    for (home, restarts) in [(1, 1), (0, 2), (1, 3)] {
        server.world().home = home;
        server.restart();
        assert_eq!(session.call(&get, &mut body).unwrap(), Status::NotFound);
        assert_eq!(session.statistics().reopened, restarts);
        // What was sent to the old home before the session was reopened may come late.
        let elsewhere = || server.world().frames.get(&(1 - home)).copied();
        let deadline = Instant::now() + PATIENCE;
        loop {
            let before = elsewhere();
            for _ in 0..10 {
                assert_eq!(session.call(&get, &mut body).unwrap(), Status::NotFound);
            }
            if elsewhere() == before {
                break;
            }
            assert!(Instant::now() < deadline, "frames go to the old home");
        }
    }
}
