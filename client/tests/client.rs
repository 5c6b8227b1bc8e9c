//! The blocking face and the administrator against a fake server over real sockets.

mod fake {
    pub mod server;
    pub mod world;
}

use fake::server::{ADMIN_SECRET, FakeServer, SECRET, TENANT};
use net::{UdpConfig, UdpPort};
use splinter_client::{Admin, Client, ClientConfig, Error, Request, SessionGroup, Status};

fn server() -> FakeServer {
    FakeServer::start(UdpPort::bind(([127, 0, 0, 1], 0).into(), UdpConfig::default()).unwrap())
}

fn connect(server: &FakeServer) -> Client {
    Client::connect(&server.address, TENANT, SECRET).unwrap()
}

fn refusal<T: std::fmt::Debug>(answer: Result<T, Error>) -> Status {
    answer.unwrap_err().status().unwrap()
}

#[test]
fn multi_get_keeps_the_order_of_its_keys_however_many_frames_it_takes() {
    let server = server();
    let mut client = connect(&server);
    let keys: Vec<Vec<u8>> = (0..1000u32).map(|number| number.to_le_bytes().to_vec()).collect();
    for (number, key) in keys.iter().enumerate().filter(|(number, _)| number % 3 != 0) {
        client.put(1, key, &vec![number as u8; number % 300]).unwrap();
    }
    client.put(1, &keys[500], &[5; 100_000]).unwrap();
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    for _ in 0..2 {
        let objects = client.multi_get(1, &keys).unwrap();
        assert_eq!(objects.len(), 1000);
        for (number, object) in objects.iter().enumerate() {
            let value = object.as_ref().map(|object| object.value.as_slice());
            match number {
                500 => assert!(value == Some(&[5; 100_000])),
                _ if number % 3 == 0 => assert_eq!(value, None),
                _ => assert_eq!(value, Some(&*vec![number as u8; number % 300])),
            }
        }
    }
    assert_eq!(client.multi_get(1, &[]).unwrap(), []);
}

#[test]
fn functions_are_resolved_once_and_again_when_they_moved() {
    let server = server();
    let mut client = connect(&server);
    for _ in 0..3 {
        assert_eq!(client.invoke("demo.echo", 1, b"key", b"hello").unwrap(), b"hello");
    }
    assert_eq!(server.world().resolutions, 1);
    server.world().extension = 9;
    assert_eq!(client.invoke("demo.echo", 1, b"key", b"again").unwrap(), b"again");
    assert_eq!(server.world().resolutions, 2);
    let failed = client.invoke("demo.fail", 1, b"", b"").unwrap_err();
    assert!(matches!(&failed, Error::ExtensionFailed { code: 42, message } if message == b"as asked"));
    let unknown = client.invoke("demo.nothing", 1, b"", b"").unwrap_err();
    assert!(unknown.to_string().contains("echo, fail"), "{unknown}");
    assert_eq!(refusal(client.invoke("other.echo", 1, b"", b"")), Status::UnknownExtension);
    assert!(matches!(client.invoke("echo", 1, b"", b""), Err(Error::FunctionNameInvalid { .. })));
}

#[test]
fn tables_are_administered_over_the_stream() {
    let server = server();
    let mut client = connect(&server);
    let id = client.table_create("t").unwrap();
    assert_eq!(refusal(client.table_create("t")), Status::AlreadyExists);
    assert_eq!(client.table_open("t").unwrap(), id);
    assert_eq!(client.table_open_or_create("t").unwrap(), id);
    let other = client.table_open_or_create("u").unwrap();
    let names: Vec<_> = client.table_list().unwrap().into_iter().map(|table| table.name).collect();
    assert_eq!((names, other != id), (vec!["t".to_owned(), "u".to_owned()], true));
    client.table_drop("t").unwrap();
    let unknown = client.table_open("t").unwrap_err();
    assert_eq!(unknown.status(), Some(Status::UnknownTable));
    assert!(unknown.to_string().contains("splinter table create"), "{unknown}");
    server.cut_streams();
    std::thread::sleep(std::time::Duration::from_millis(600));
    client.table_create("v").unwrap();
}

#[test]
fn administrator_sees_the_whole_server() {
    let server = server();
    let mut admin = Admin::connect(&server.address, ADMIN_SECRET, ClientConfig::default()).unwrap();
    assert_eq!(admin.tenant_create("new").unwrap(), "new");
    assert!(admin.tenant_list().unwrap().is_empty());
    let mut client = connect(&server);
    assert_eq!(admin.session_list().unwrap().len(), 1);
    assert_eq!(admin.session_list().unwrap()[0].client_id, client.session().client_id());
    server.cut_streams();
    std::thread::sleep(std::time::Duration::from_millis(600));
    admin.session_revoke(client.session().client_id()).unwrap();
    assert_eq!(server.world().sessions(), 0);
    assert_eq!(client.get(1, b"k").unwrap(), None);
    assert_eq!(server.world().sessions(), 1);
    assert_eq!(admin.statistics().unwrap()[0].name, "executions");
}

#[test]
fn cores_may_be_reached_elsewhere_than_the_server_says() {
    let server = server();
    let config = ClientConfig { core_addresses: vec![server.core], ..ClientConfig::default() };
    let mut client = Client::connect_with(&server.address, TENANT, SECRET, config).unwrap();
    client.ping().unwrap();
    let nowhere = ClientConfig {
        core_addresses: vec![([127, 0, 0, 1], 9).into()],
        call_timeout: std::time::Duration::from_millis(50),
        ..ClientConfig::default()
    };
    let mut client = Client::connect_with(&server.address, TENANT, SECRET, nowhere).unwrap();
    assert!(matches!(client.ping(), Err(Error::TimedOut)));
}

#[test]
fn wrong_secrets_names_and_addresses_are_told_apart() {
    let server = server();
    let wrong = |tenant, secret| Client::connect(&server.address, tenant, secret).map(drop);
    assert_eq!(refusal(wrong(TENANT, "wrong")), Status::BadSecret);
    assert_eq!(refusal(wrong("nobody", SECRET)), Status::BadSecret);
    assert_eq!(refusal(wrong("no/body", SECRET)), Status::NameInvalid);
    let address = server.address.clone();
    drop(server);
    let gone = Client::connect(&address, TENANT, SECRET).map(drop).unwrap_err();
    assert!(matches!(gone, Error::Unreachable { .. }) && gone.to_string().contains("splinter-server"));
    let nonsense = Client::connect("nonsense", TENANT, SECRET).map(drop);
    assert!(matches!(nonsense, Err(Error::AddressInvalid { .. })));
}

#[test]
fn group_packs_the_requests_of_its_sessions_into_shared_frames() {
    let server = server();
    let mut group = SessionGroup::new(ClientConfig::default()).unwrap();
    let members: Vec<_> = (0..100).map(|_| group.open(&server.address, TENANT, SECRET).unwrap()).collect();
    for round in 0..3u64 {
        let before = group.statistics().frames_sent;
        for &member in &members {
            let increment = Request::Increment { table: 1, key: &member.to_le_bytes(), delta: 1 };
            group.submit(member, &increment, round).unwrap();
        }
        let mut seen = vec![0; members.len()];
        let mut sent = None;
        while seen.iter().sum::<i32>() < 100 {
            let completed = group
                .poll(&mut |member, completion| {
                    assert_eq!((completion.status, completion.tag), (Ok(Status::Ok), round));
                    seen[member] += 1;
                })
                .unwrap();
            // What the first poll has sent; later ones may send again what is slow to be answered.
            sent = sent.or(Some(group.statistics().frames_sent - before));
            if completed == 0 {
                group.wait(std::time::Duration::from_millis(5)).unwrap();
            }
        }
        assert!(seen.iter().all(|&count| count == 1));
        assert!(sent.is_some_and(|sent| sent < 100 / 4), "{sent:?} frames");
    }
    server.restart();
    group.submit(members[7], &Request::Get { table: 1, key: &members[7].to_le_bytes() }, 9).unwrap();
    while group.outstanding(members[7]) > 0 {
        group
            .poll(&mut |member, completion| {
                assert_eq!((member, completion.status), (members[7], Ok(Status::Ok)));
                assert_eq!(completion.body[8..], 3i64.to_le_bytes());
            })
            .unwrap();
    }
}
