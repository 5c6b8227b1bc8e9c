//! Counts the allocations of the caller's thread: in steady state a request needs none.

mod fake {
    pub mod server;
    pub mod world;
}

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use fake::server::{FakeServer, SECRET, TENANT};
use net::{UdpConfig, UdpPort};
use splinter_client::{ClientConfig, Condition, Request, Session, SessionGroup, Status};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call is handed to the system's allocator; counting touches a constant-initialised cell of the
// thread, which allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promises are the system's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are the system's.
        unsafe { System.dealloc(address, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn server() -> FakeServer {
    let server = FakeServer::start(UdpPort::bind(([127, 0, 0, 1], 0).into(), UdpConfig::default()).unwrap());
    server.world().credits = 32;
    server
}

/// Requests until every buffer has grown to its size: each of the 640 slots of a group of 20 has had a large one by then.
const WARM: u64 = 12_000;
/// Requests whose allocations are counted.
const COUNTED: u64 = 6000;

/// The request of a number: the largest and the first of each table, then gets, puts and increments of a few keys.
fn request<'a>(number: u64, key: &'a [u8], value: &'a [u8]) -> Request<'a> {
    match number % 3 {
        _ if number < WARM && number.is_multiple_of(7) => Request::Increment { table: 2, key, delta: 1 },
        _ if number < WARM => Request::Put { table: 1, key, value, condition: Condition::Always },
        0 => Request::Get { table: 1, key },
        1 => Request::Put { table: 1, key, value, condition: Condition::Always },
        _ => Request::Increment { table: 2, key, delta: 1 },
    }
}

#[test]
fn pipelined_requests_of_a_session_allocate_nothing() {
    let server = server();
    let mut session = Session::open(&server.address, TENANT, SECRET, ClientConfig::default()).unwrap();
    let (mut submitted, mut completed) = (0u64, 0u64);
    let mut run = |until: u64| {
        while completed < until {
            while submitted < until && session.can_submit() {
                let key = (submitted % 50).to_le_bytes();
                session.submit(&request(submitted, &key, &[7; 100]), submitted).unwrap();
                submitted += 1;
            }
            completed += session
                .poll_waiting(&mut |completion| {
                    assert!(matches!(completion.status, Ok(Status::Ok | Status::NotFound)));
                })
                .unwrap() as u64;
        }
    };
    run(WARM);
    let before = ALLOCATIONS.get();
    run(WARM + COUNTED);
    assert_eq!(ALLOCATIONS.get() - before, 0);
    assert!(session.statistics().frames_sent < WARM + COUNTED);
}

#[test]
fn pipelined_requests_of_a_group_allocate_nothing() {
    let server = server();
    let mut group = SessionGroup::new(ClientConfig::default()).unwrap();
    for _ in 0..20 {
        group.open(&server.address, TENANT, SECRET).unwrap();
    }
    let mut outstanding = [0u32; 20];
    let mut warmed = [0; 20];
    let (mut submitted, mut completed) = (0u64, 0u64);
    let mut run = |until: u64| {
        while completed < until {
            for (member, outstanding) in outstanding.iter_mut().enumerate().filter(|(_, it)| **it == 0) {
                let key = (submitted % 50).to_le_bytes();
                // Each member counts for itself while it warms up, so that it has met both tables.
                let number = if submitted < WARM { warmed[member] } else { submitted };
                warmed[member] += 1;
                group.submit(member, &request(number, &key, &[7; 100]), submitted).unwrap();
                *outstanding += 1;
                submitted += 1;
            }
            completed += group
                .poll(&mut |member, completion| {
                    assert!(completion.status.is_ok());
                    outstanding[member] -= 1;
                })
                .unwrap() as u64;
        }
    };
    run(WARM);
    let before = ALLOCATIONS.get();
    run(WARM + COUNTED);
    assert_eq!(ALLOCATIONS.get() - before, 0);
    server.restart();
    assert_eq!((server.world().sessions(), server.core.port() > 0), (0, true));
}
