//! Sessions that are resumed at a fake server: what was under way is answered, and nothing is executed twice.

mod fake {
    pub mod answers;
    pub mod server;
    pub mod world;
}

use std::time::Duration;

use fake::answers::finish;
use fake::server::{FakeServer, SECRET, TENANT};
use net::{Faults, LoopbackClock, LoopbackNetwork};
use splinter_client::{Client, ClientConfig, Condition, Error, Request, Session, SessionGroup, Status};

/// Far longer than anything here takes, and shorter than a request may be repeated in a resumed session.
const PATIENCE: Duration = Duration::from_secs(40);

const ROUGH: Faults = Faults {
    drop_ppm: 100_000,
    duplicate_ppm: 100_000,
    reorder_ppm: 300_000,
    delay_us_min: 0,
    delay_us_max: 500,
};

const SILENT: Faults =
    Faults { drop_ppm: 1_000_000, duplicate_ppm: 0, reorder_ppm: 0, delay_us_min: 0, delay_us_max: 0 };

struct Rig {
    network: LoopbackNetwork,
    server: FakeServer,
}

impl Rig {
    fn new(seed: u64, faults: Faults) -> Rig {
        let network = LoopbackNetwork::new(seed, faults, LoopbackClock::Real);
        let server = FakeServer::start(network.port().unwrap());
        server.world().is_resumable = true;
        Rig { network, server }
    }

    fn config(&self) -> ClientConfig {
        ClientConfig {
            core_addresses: vec![self.server.core],
            call_timeout: PATIENCE,
            ..ClientConfig::default()
        }
    }

    fn session(&self) -> Session {
        let port = Box::new(self.network.port().unwrap());
        Session::open_over(port, &self.server.address, TENANT, SECRET, self.config()).unwrap()
    }

    fn counter(&self, key: &[u8]) -> i64 {
        let world = self.server.world();
        i64::from_le_bytes(world.objects[&(1, key.to_vec())].1[..].try_into().unwrap())
    }
}

#[test]
fn increments_over_restarts_and_a_lossy_network_execute_exactly_once() {
    for seed in 0..5 {
        let rig = Rig::new(seed, ROUGH);
        let mut session = rig.session();
        let client_id = session.client_id();
        let (mut submitted, mut answered, mut restarts) = (0u64, 0, 0);
        while answered < 1_000 {
            while submitted < 1_000 && session.can_submit() {
                let increment = Request::Increment { table: 1, key: b"counter", delta: 1 };
                session.submit(&increment, submitted).unwrap();
                submitted += 1;
            }
            answered += session
                .poll_waiting(&mut |completion| assert_eq!(completion.status, Ok(Status::Ok), "seed {seed}"))
                .unwrap();
            if answered / 100 > restarts {
                restarts = answered / 100;
                rig.server.restart();
            }
        }
        assert_eq!(rig.counter(b"counter"), 1_000, "seed {seed}");
        assert_eq!(session.client_id(), client_id);
        let (statistics, world) = (session.statistics(), rig.server.world());
        assert!(statistics.resumed > 3 && statistics.reopened == statistics.resumed, "{statistics:?}");
        assert_eq!((world.sessions_opened, world.sessions_resumed), (1, statistics.resumed));
    }
}

#[test]
fn what_was_executed_before_the_restart_gets_its_answer_and_the_rest_is_executed() {
    let rig = Rig::new(1, Faults::default());
    let mut session = rig.session();
    let increment = Request::Increment { table: 1, key: b"n", delta: 1 };
    for tag in 0..10 {
        session.submit(&increment, tag).unwrap();
    }
    session.flush().unwrap();
    while rig.server.world().executions < 10 {
        std::thread::sleep(Duration::from_millis(1));
    }
    // Their answers wait in the port and get lost with it, as does what follows.
    rig.network.set_faults(SILENT);
    for tag in 10..20 {
        session.submit(&increment, tag).unwrap();
        session.submit(&Request::Get { table: 1, key: b"absent" }, 10 + tag).unwrap();
    }
    session.flush().unwrap();
    std::thread::sleep(Duration::from_millis(20));
    rig.server.restart();
    rig.network.set_faults(Faults::default());
    let answers = finish(&mut session);
    assert_eq!(answers.len(), 30);
    let mut values = Vec::new();
    for (tag, answer) in answers {
        match answer {
            Ok(body) => values.push(i64::from_le_bytes(body[8..].try_into().unwrap())),
            Err(error) => assert!(tag >= 20 && error.status() == Some(Status::NotFound), "{tag}: {error}"),
        }
    }
    values.sort_unstable();
    assert_eq!(values, (1..=20).collect::<Vec<i64>>());
}

#[test]
fn large_requests_continue_on_the_next_stream() {
    let rig = Rig::new(2, Faults::default());
    let mut session = rig.session();
    let large = vec![1; 50_000];
    for round in 0..5u8 {
        for tag in 0..4u8 {
            let key = [round, tag];
            let put = Request::Put { table: 1, key: &key, value: &large, condition: Condition::Absent };
            session.submit(&put, tag.into()).unwrap();
        }
        session.submit(&Request::Get { table: 1, key: &[0, 0] }, 4).unwrap();
        rig.server.restart();
        let answers = finish(&mut session);
        // A second execution would fail its condition.
        assert!((0..4).all(|tag| answers[&tag].is_ok()), "{answers:?}");
        assert_eq!((answers.len(), session.outstanding()), (5, 0));
    }
    assert_eq!(rig.server.world().executions, 25);
    assert!(session.statistics().resumed > 0);
}

#[test]
fn a_session_that_the_server_does_not_resume_is_opened_anew() {
    let rig = Rig::new(3, Faults::default());
    let mut session = rig.session();
    let client_id = session.client_id();
    rig.network.set_faults(SILENT);
    let large = vec![1; 50_000];
    for tag in 0..10u64 {
        session.submit(&Request::Increment { table: 1, key: b"n", delta: 1 }, tag).unwrap();
        session.submit(&Request::Get { table: 1, key: b"absent" }, 100 + tag).unwrap();
    }
    session.flush().unwrap();
    std::thread::sleep(Duration::from_millis(50));
    session.flush().unwrap();
    rig.server.world().is_resumable = false;
    rig.server.restart();
    let put = Request::Put { table: 1, key: b"large", value: &large, condition: Condition::Always };
    session.submit(&put, 10).unwrap();
    rig.network.set_faults(Faults::default());
    for (tag, answer) in finish(&mut session) {
        match answer {
            Err(error @ Error::SessionLost) if tag <= 10 => assert!(error.outcome_is_unknown()),
            Err(error) if tag >= 100 => assert_eq!(error.status(), Some(Status::NotFound)),
            other => panic!("{tag}: {other:?}"),
        }
    }
    assert_ne!(session.client_id(), client_id);
    let statistics = session.statistics();
    assert_eq!((statistics.reopened, statistics.resumed), (1, 0));
    session.submit(&Request::Increment { table: 1, key: b"n", delta: 1 }, 1).unwrap();
    assert!(finish(&mut session)[&1].is_ok());
    assert_eq!(rig.counter(b"n"), 1);
}

#[test]
fn a_session_without_anything_at_stake_is_opened_anew() {
    let rig = Rig::new(4, Faults::default());
    let mut client = Client::over(rig.session());
    client.put(1, b"k", b"v").unwrap();
    rig.server.restart();
    assert_eq!(client.get(1, b"k").unwrap().unwrap().value, b"v");
    let world = rig.server.world();
    assert_eq!((world.sessions_opened, world.sessions_resumed), (2, 0));
}

#[test]
fn administration_in_the_middle_of_a_load_resumes_the_session_for_all() {
    let rig = Rig::new(5, Faults::default());
    let mut client = Client::over(rig.session());
    rig.network.set_faults(SILENT);
    for tag in 0..10 {
        client.session().submit(&Request::Increment { table: 1, key: b"n", delta: 1 }, tag).unwrap();
    }
    client.session().flush().unwrap();
    rig.server.restart();
    std::thread::sleep(Duration::from_millis(600));
    client.table_create("t").unwrap();
    rig.network.set_faults(Faults::default());
    assert!(finish(client.session()).values().all(Result::is_ok));
    assert_eq!(rig.counter(b"n"), 10);
    assert_eq!(client.session().statistics().resumed, 1);
}

#[test]
fn members_of_a_group_are_resumed_each_under_its_own_id() {
    let rig = Rig::new(6, ROUGH);
    let mut group = SessionGroup::over(Box::new(rig.network.port().unwrap()), rig.config());
    let members: Vec<usize> =
        (0..10).map(|_| group.open(&rig.server.address, TENANT, SECRET).unwrap()).collect();
    let increment = Request::Increment { table: 1, key: b"n", delta: 1 };
    for round in 0..5 {
        for &member in &members {
            for tag in 0..20 {
                group.submit(member, &increment, tag).unwrap();
            }
        }
        let mut ended = 0;
        while ended < 200 {
            let take = &mut |_, completion: splinter_client::Completion<'_>| {
                assert_eq!(completion.status, Ok(Status::Ok));
            };
            let before = ended;
            ended += group.poll(take).unwrap();
            if before == 0 && ended > 0 {
                rig.server.restart();
            }
            group.wait(Duration::from_millis(1)).unwrap();
        }
        assert_eq!(rig.counter(b"n"), (round + 1) * 200);
    }
    assert!(group.statistics().resumed > 10);
    assert!(rig.server.world().sessions() <= 10);
}
