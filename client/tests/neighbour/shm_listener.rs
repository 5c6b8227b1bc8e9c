//! Sessions with a server of the same host whose listener says nothing: they are opened, and go on, over UDP until it does.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::fake::server::{FakeServer, SECRET, TENANT};
use net::shm::{self, Admission, Attacher};
use net::{AttachError, ChannelPoint, HostPort, ListenerLimits, ShmListener, StopHandle, UdpConfig};
use splinter_client::{
    Client, ClientConfig, Condition, Error, NoSharedMemory, Request, Session, SessionGroup, Status, Transport,
};
use wire::{Attach, Body, ShmEndpoint};

/// Far longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);
/// What a client may be held up by a listener for the whole of a test; less than one look of a second each would make.
const HELD_UP: Duration = Duration::from_secs(10);

/// Of a group; frames for all of them fit what the fake server answers at once, twice.
const SESSIONS: usize = 60;

/// Lets everybody in, one after the other, and only while it may.
struct Porter {
    may: Arc<Mutex<()>>,
}

impl Admission for Porter {
    fn admit(&mut self, knocker: Attacher<'_>) -> Result<usize, String> {
        drop(self.may.lock().unwrap());
        Ok(usize::from(Attach::decode(knocker.words).unwrap().core))
    }

    fn is_over(&mut self, _: &[u8]) -> bool {
        false
    }

    fn note(&mut self, _: &str) {}
}

/// A server of two cores, and its listener.
struct House {
    server: FakeServer,
    points: Vec<ChannelPoint>,
    may: Arc<Mutex<()>>,
    stop: StopHandle,
    listener: Option<JoinHandle<()>>,
}

impl House {
    fn new(name: &str) -> House {
        let port = || HostPort::bind(([127, 0, 0, 1], 0).into(), UdpConfig::default()).unwrap();
        let ports = vec![port(), port()];
        let points: Vec<ChannelPoint> = ports.iter().map(HostPort::link_point).collect();
        let path: PathBuf = std::env::temp_dir().join(format!("splinter-{}-{name}", std::process::id()));
        let listener =
            ShmListener::open(&path, points.clone(), ListenerLimits { of_core: 64, of_user: 64 }).unwrap();
        let (stop, may) = (listener.stop_handle(), Arc::default());
        let mut porter = Porter { may: Arc::clone(&may) };
        let server = FakeServer::start_cores(ports);
        let (machine, user) = (shm::machine().unwrap(), shm::own_user());
        server.world().shm = Some(ShmEndpoint { machine, user, path: path.to_str().unwrap().to_owned() });
        let listener = Some(thread::spawn(move || listener.run(&mut porter).unwrap()));
        House { server, points, may, stop, listener }
    }

    /// From now on the listener says nothing.
    fn falls_silent(&self) -> MutexGuard<'_, ()> {
        self.may.lock().unwrap()
    }

    fn frames_over_links(&self) -> u64 {
        self.points.iter().map(|point| point.counts().frames_received.load(Ordering::Relaxed)).sum()
    }

    fn links_made(&self) -> u64 {
        self.points.iter().map(|point| point.counts().links_made.load(Ordering::Relaxed)).sum()
    }
}

impl Drop for House {
    fn drop(&mut self) {
        self.stop.stop();
        self.listener.take().unwrap().join().unwrap();
    }
}

fn config(transport: Transport) -> ClientConfig {
    ClientConfig { transport, call_timeout: PATIENCE, ..ClientConfig::default() }
}

#[test]
fn a_door_that_says_nothing_holds_no_session_up_and_is_used_once_it_speaks() {
    let house = House::new("hangs");
    let silence = house.falls_silent();
    let began = Instant::now();
    let address = &house.server.address;
    let mut client = Client::connect_with(address, TENANT, SECRET, config(Transport::Auto)).unwrap();
    let table = client.table_create("t").unwrap();
    // Each time that its home moves it knocks anew.
    for number in 0..30u64 {
        house.server.world().home = number as u16 % 2;
        client.put(table, b"k", &number.to_le_bytes()).unwrap();
        assert_eq!(client.get(table, b"k").unwrap().unwrap().value, number.to_le_bytes());
    }
    assert!(began.elapsed() < HELD_UP, "{:?}", began.elapsed());
    assert_eq!(house.frames_over_links(), 0);
    drop(silence);
    while house.frames_over_links() == 0 {
        assert!(began.elapsed() < PATIENCE, "it stays with UDP");
        client.get(table, b"k").unwrap();
    }
    assert_eq!(client.get(table, b"k").unwrap().unwrap().value, 29u64.to_le_bytes());
}

#[test]
fn sessions_of_a_group_knock_once_at_a_core() {
    let house = House::new("group");
    let silence = house.falls_silent();
    let began = Instant::now();
    let mut group = SessionGroup::new(config(Transport::Auto)).unwrap();
    for _ in 0..SESSIONS {
        group.open(&house.server.address, TENANT, SECRET).unwrap();
    }
    let ask = |group: &mut SessionGroup| {
        let mut answers = 0;
        for member in 0..SESSIONS {
            let request = Request::Put { table: 1, key: b"k", value: b"v", condition: Condition::Always };
            group.submit(member, &request, 0).unwrap();
        }
        while answers < SESSIONS {
            assert!(began.elapsed() < PATIENCE, "{answers} answers");
            let answered =
                group.poll(&mut |_, completion| assert_eq!(completion.status, Ok(Status::Ok))).unwrap();
            answers += answered;
        }
    };
    ask(&mut group);
    assert_eq!((house.frames_over_links(), house.links_made()), (0, 0));
    drop(silence);
    while house.frames_over_links() == 0 {
        ask(&mut group);
    }
    assert_eq!(house.links_made(), 1);
}

#[test]
fn who_insists_on_shared_memory_hears_that_the_door_says_nothing() {
    let house = House::new("insists");
    let silence = house.falls_silent();
    let config = ClientConfig { connect_timeout: Duration::from_millis(300), ..config(Transport::Shm) };
    let opened = Session::open(&house.server.address, TENANT, SECRET, config);
    let Err(Error::NoSharedMemory { reason: NoSharedMemory::Listener(AttachError::Unreachable(error)) }) =
        opened
    else {
        panic!("nobody has answered")
    };
    assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
    drop(silence);
}
