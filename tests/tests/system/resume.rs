//! Servers that are killed under load and started again over the same data directory and ports: their clients resume
//! their sessions, and every call ends with an answer.

use std::time::{Duration, Instant};

use client::{
    ClientConfig, Completion, Condition, Durability, Request, Session, Status, TableOptions, Transport,
};
use tests::raw::PATIENCE;
use tests::server::{Server, Settings, patient};

/// Increments of one test.
const INCREMENTS: u64 = 30_000;
/// Numbers of answers after which the server is killed.
const KILLS: [usize; 2] = [5_000, 15_000];
/// Tags from here on belong to large puts.
const LARGE: u64 = 1 << 40;
/// For each of so many increments there is one large put, which travels over the stream.
const LARGE_EVERY: u64 = 500;
/// How long a killed server stays away.
const AWAY: Duration = Duration::from_millis(700);

struct Load {
    session: Session,
    table: u32,
    submitted: u64,
    /// The values that increments were answered with.
    values: Vec<i64>,
    large: u64,
}

impl Load {
    fn submit(&mut self) {
        let value = [5; 20_000];
        while self.submitted < INCREMENTS && self.session.can_submit() && self.session.outstanding() < 100 {
            let tag = self.submitted;
            let request = if tag.is_multiple_of(LARGE_EVERY) && self.large < tag / LARGE_EVERY + 1 {
                self.large += 1;
                let put = Request::Put {
                    table: self.table,
                    key: &tag.to_le_bytes(),
                    value: &value,
                    condition: Condition::Absent,
                };
                self.session.submit(&put, LARGE + tag)
            } else {
                self.submitted += 1;
                self.session.submit(&Request::Increment { table: self.table, key: b"count", delta: 1 }, tag)
            };
            request.expect("the window has room");
        }
    }

    /// Polls once; returns the number of completions.
    fn poll(&mut self) -> usize {
        let values = &mut self.values;
        let take = &mut |completion: Completion<'_>| {
            assert_eq!(completion.status, Ok(Status::Ok), "request {}", completion.tag);
            if completion.tag < LARGE {
                values.push(i64::from_le_bytes(completion.body[8..].try_into().expect("a number")));
            }
        };
        self.session.poll(take).expect("the session finds its server again")
    }

    fn wait(&mut self) {
        self.session.wait(Duration::from_millis(5)).expect("a working port");
    }

    /// Goes on until so many increments are answered.
    fn run_to(&mut self, answers: usize) {
        let deadline = Instant::now() + PATIENCE;
        while self.values.len() < answers {
            assert!(Instant::now() < deadline, "{} answers of {answers}", self.values.len());
            self.submit();
            if self.poll() == 0 {
                self.wait();
            }
        }
    }
}

/// Runs the increments on a table of this durability; returns their values, how many of them came before the last
/// start, and the final value.
fn run(durability: Durability, shm: bool) -> (Vec<i64>, usize, i64) {
    let mut settings = Settings::default();
    let mut config = patient();
    if shm {
        settings.transport = "udp,shm".to_owned();
        config = ClientConfig { transport: Transport::Auto, ..config };
    }
    let mut server = Server::start_with(settings);
    let tenant = server.tenant("acme");
    let options = TableOptions { durability: Some(durability), ..TableOptions::default() };
    let table = server.client(&tenant).table_create_with("data", options).expect("a fresh name");
    let address = server.address().to_string();
    let session = Session::open(&address, &tenant.name, &tenant.secret, config).expect("the right secret");
    let mut load = Load { session, table, submitted: 0, values: Vec::new(), large: 0 };
    let client_id = load.session.client_id();
    let mut before = 0;
    for answers in KILLS {
        load.run_to(answers);
        load.submit();
        load.session.flush().expect("a working port");
        server.kill();
        let killed = Instant::now();
        while killed.elapsed() < AWAY {
            load.poll();
            load.wait();
        }
        before = load.values.len();
        server.restart();
    }
    load.run_to(INCREMENTS as usize);
    while load.session.outstanding() > 0 {
        load.poll();
        load.wait();
    }
    let statistics = load.session.statistics();
    assert_eq!((statistics.reopened, statistics.resumed), (2, 2), "{statistics:?}");
    assert_eq!(load.session.client_id(), client_id);
    let count = server.client(&tenant).get(table, b"count").expect("an answer").expect("a counter").value;
    (load.values, before, i64::from_le_bytes(count.try_into().expect("a number")))
}

/// The crash empties the table, so all that had no answer is executed on the empty one, once.
#[test]
fn calls_under_way_at_a_crash_are_each_executed_once_on_the_emptied_table() {
    for shm in [false, true] {
        let (values, before, count) = run(Durability::Memory, shm);
        assert_eq!(values.len(), INCREMENTS as usize);
        let mut last: Vec<i64> = values[before..].to_vec();
        last.sort_unstable();
        assert_eq!(last, (1..=INCREMENTS as i64 - before as i64).collect::<Vec<i64>>());
        assert_eq!(count, last.len() as i64);
    }
}

/// What was executed before the crash is answered from the completion records of the log.
#[test]
fn calls_under_way_at_a_crash_are_each_executed_once_on_a_synced_table() {
    for shm in [false, true] {
        let (mut values, _, count) = run(Durability::Synced, shm);
        values.sort_unstable();
        assert_eq!(count, INCREMENTS as i64);
        assert_eq!(values, (1..=count).collect::<Vec<i64>>(), "each execution answers another value");
    }
}
