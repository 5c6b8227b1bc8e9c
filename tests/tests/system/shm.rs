//! Clients on the server's host over shared memory: the same answers as over UDP, chosen by themselves, refused politely,
//! and over with the server or the session.

use std::time::{Duration, Instant};

use client::{
    Client, ClientConfig, Condition, Error, NoSharedMemory, Request, Session, SessionGroup, Status, Transport,
};
use fastrand::Rng;
use tests::effort::{rng, rounds};
use tests::raw::PATIENCE;
use tests::server::{Server, Settings, Tenant};

/// A value that no frame carries, and one that comes in parts.
const LARGE_BYTES: [usize; 2] = [300_000, 20_000];

fn start() -> Server {
    Server::start_with(Settings { cores: 2, transport: "udp,shm".to_owned(), ..Settings::default() })
}

fn config(transport: Transport) -> ClientConfig {
    ClientConfig { transport, call_timeout: PATIENCE, ..ClientConfig::default() }
}

fn client(server: &Server, tenant: &Tenant, transport: Transport) -> Client {
    let address = server.address().to_string();
    Client::connect_with(&address, &tenant.name, &tenant.secret, config(transport)).expect("a session")
}

fn statistic(server: &Server, name: &str) -> u64 {
    let statistics = server.admin().statistics().expect("counters");
    statistics.iter().find(|one| one.name == name).unwrap_or_else(|| panic!("no counter {name}")).value
}

/// What a client sees of so many random requests of all kinds; versions apart, which differ from table to table.
fn work(client: &mut Client, table: u32, mut random: Rng, requests: u64) -> Vec<String> {
    let mut seen = Vec::new();
    for _ in 0..requests {
        let key = [random.u8(0..40)];
        seen.push(match random.u8(0..10) {
            0 => format!("{:?}", client.delete(table, &key).expect("an answer").is_some()),
            1 => format!("{:?}", client.put_if(table, &key, b"only", Condition::Absent).is_ok()),
            2 => {
                let keys: Vec<[u8; 1]> = (0..random.u8(1..40)).map(|key| [key]).collect();
                let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
                let found = client.multi_get(table, &keys).expect("an answer");
                format!("{:?}", found.into_iter().map(|one| one.map(|one| one.value)).collect::<Vec<_>>())
            }
            3 => {
                let value = vec![random.u8(..); LARGE_BYTES[random.usize(0..2)]];
                client.put(table, &key, &value).expect("an answer");
                value.len().to_string()
            }
            4..7 => {
                let value = vec![random.u8(..); random.usize(0..1_300)];
                client.put(table, &key, &value).expect("an answer");
                value.len().to_string()
            }
            _ => format!("{:?}", client.get(table, &key).expect("an answer").map(|object| object.value)),
        });
    }
    seen
}

#[test]
fn the_same_requests_have_the_same_answers_over_shared_memory_and_udp() {
    let server = start();
    let tenant = server.tenant("acme");
    let random = rng();
    let transports = [Transport::Udp, Transport::Shm, Transport::Auto];
    let [over_udp, over_shm, chosen] = transports.map(|transport| {
        let mut client = client(&server, &tenant, transport);
        let table = client.table_create(&format!("{transport:?}")).expect("a table");
        let before = statistic(&server, "shm_frames_received");
        let seen = work(&mut client, table, random.clone(), rounds(400, 10_000) as u64);
        let passed = statistic(&server, "shm_frames_received") - before;
        assert_eq!(passed > 0, transport != Transport::Udp, "{passed} frames over shared memory");
        seen
    });
    assert!(over_udp == over_shm && over_udp == chosen);
    assert_eq!((statistic(&server, "shm_links_cut"), statistic(&server, "shm_links_refused")), (0, 0));
}

#[test]
fn many_requests_outstanding_are_each_answered_once_over_shared_memory() {
    let server = start();
    let identity = server.tenant("acme");
    let mut setting_up = client(&server, &identity, Transport::Shm);
    let table = setting_up.table_create("t").expect("a table");
    setting_up.put(table, b"count", &0u64.to_le_bytes()).expect("an answer");
    let address = server.address().to_string();
    let config = config(Transport::Shm);
    let mut session = Session::open(&address, &identity.name, &identity.secret, config).expect("a session");
    let (mut sent, mut answered, wanted) = (0, vec![], rounds(5_000, 200_000) as u64);
    let deadline = Instant::now() + PATIENCE;
    while (answered.len() as u64) < wanted {
        assert!(Instant::now() < deadline, "{} of {wanted} answers", answered.len());
        while sent < wanted && session.can_submit() {
            let request = Request::Increment { table, key: b"count", delta: 1 };
            session.submit(&request, sent).expect("there is room");
            sent += 1;
        }
        let polled = session.poll(&mut |completion| {
            assert_eq!(completion.status, Ok(Status::Ok));
            answered.push(completion.tag);
        });
        if polled.expect("a session that works") == 0 {
            session.wait(Duration::from_millis(50)).expect("a port that works");
        }
    }
    answered.sort_unstable();
    assert!(answered.into_iter().eq(0..wanted));
    let count = setting_up.get(table, b"count").expect("an answer").expect("it is there");
    assert_eq!(count.value, wanted.to_le_bytes());
}

#[test]
fn sessions_that_share_a_port_share_a_link() {
    let server = start();
    let tenants = ["acme", "beta"].map(|name| server.tenant(name));
    let tables = tenants
        .each_ref()
        .map(|tenant| client(&server, tenant, Transport::Udp).table_create("t").expect("a table"));
    let mut group = SessionGroup::new(config(Transport::Shm)).expect("a port");
    let address = server.address().to_string();
    for tenant in tenants.iter().cycle().take(6) {
        group.open(&address, &tenant.name, &tenant.secret).expect("a session");
    }
    let (mut done, deadline) = (0, Instant::now() + PATIENCE);
    for member in 0..6 {
        let key = [member as u8];
        let request =
            Request::Put { table: tables[member % 2], key: &key, value: b"v", condition: Condition::Always };
        group.submit(member, &request, 0).expect("there is room");
    }
    while done < 6 {
        assert!(Instant::now() < deadline, "{done} of 6 answers");
        done += group
            .poll(&mut |_, completion| assert_eq!(completion.status, Ok(Status::Ok)))
            .expect("a port that works");
    }
    // Two tenants may have their homes at two cores.
    assert!((1..=2).contains(&statistic(&server, "shm_links_made")));
}

#[test]
fn who_asks_for_shared_memory_alone_hears_why_there_is_none() {
    let server = Server::start_with(Settings { transport: "udp".to_owned(), ..Settings::default() });
    let tenant = server.tenant("acme");
    let address = server.address().to_string();
    let opened = Session::open(&address, &tenant.name, &tenant.secret, config(Transport::Shm));
    let Err(error @ Error::NoSharedMemory { reason: NoSharedMemory::NotOffered }) = opened else {
        panic!("this server goes by UDP alone");
    };
    assert!(error.to_string().contains("does not offer it"), "{error}");
    client(&server, &tenant, Transport::Auto).table_create("t").expect("UDP goes on");
}

#[test]
fn a_session_goes_on_over_shared_memory_when_its_server_is_started_anew() {
    let mut server = start();
    let tenant = server.tenant("acme");
    let mut client = client(&server, &tenant, Transport::Shm);
    let table = client.table_create("t").expect("a table");
    client.put(table, b"k", b"before").expect("an answer");
    server.kill();
    server.restart();
    let deadline = Instant::now() + PATIENCE;
    while let Err(error) = client.put(table, b"k", b"after") {
        assert!(Instant::now() < deadline, "{error}");
    }
    assert_eq!(client.get(table, b"k").expect("an answer").map(|it| it.value), Some(b"after".to_vec()));
    while statistic(&server, "shm_frames_received") == 0 {
        assert!(Instant::now() < deadline, "it stays with UDP");
        client.get(table, b"k").expect("an answer");
    }
}

#[test]
fn a_link_is_over_with_the_session_that_asked_for_it() {
    let server = start();
    let tenant = server.tenant("acme");
    let mut client = client(&server, &tenant, Transport::Shm);
    let table = client.table_create("t").expect("a table");
    client.put(table, b"k", b"v").expect("an answer");
    let mut admin = server.admin();
    for session in admin.session_list().expect("a list") {
        admin.session_revoke(session.client_id).expect("it is there");
    }
    // It is opened anew by itself, and has a link of its own then.
    let deadline = Instant::now() + PATIENCE;
    while statistic(&server, "shm_links_made") < 2 {
        assert!(Instant::now() < deadline, "no second link");
        let _ = client.get(table, b"k");
    }
    assert_eq!(client.get(table, b"k").expect("an answer").map(|it| it.value), Some(b"v".to_vec()));
}
