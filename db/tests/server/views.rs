//! Changes of view while requests are under way: whatever the network does, each is executed once, by an owner.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use cluster::records::LeaseId;
use db::control_plane::Control;
use db::control_plane::ownership::Ownership;
use db::tablet::Parts;
use net::Faults;
use store::{HashRange, TableOptions};
use wire::{FrameReader, Request, Status, reply};

use super::client::{Client, Ended, frame};
use super::{BAD_NETWORK, Site, seed};

/// Ranges that move, each an eighth of all hashes.
const SLICES: usize = 8;

fn slice(number: usize) -> HashRange {
    let width = 1 << 61;
    let first = number as u64 * width;
    HashRange::new(first, first + (width - 1)).expect("an eighth")
}

fn slice_of(key: &[u8]) -> usize {
    (store::hash(key) >> 61) as usize
}

/// Lets the server own these slices of a table from its next view on, which it gives.
fn own(control: &Control, table: u32, slices: &[usize]) -> u64 {
    let held = control.table_of(table).expect("the table").parts.held().to_vec();
    let owned: Vec<HashRange> = slices.iter().map(|&number| slice(number)).collect();
    let parts = Parts::new(TableOptions::default(), held, &owned).expect("of the one part");
    control.cut(&[Ownership { table, parts, map: None }]).expect("workers that pass")
}

/// The one answer to a frame of one increment, and the view that it names.
fn ask(
    client: &mut Client,
    (view, sequence): (u64, u64),
    (table, key): (u32, &[u8]),
) -> (u64, Status, Vec<u8>) {
    let request = Request::Increment { table, key, delta: 1 };
    let mut body = vec![0; request.body_bytes()];
    request.encode(&mut body);
    let frame = frame(client.opened.token, view, request.opcode(), sequence as u32, &body);
    let answers = client.exchange_frame(&frame);
    let [answer] = &answers[..] else { panic!("{} answers", answers.len()) };
    let reader = FrameReader::new(answer).expect("a good frame");
    let group = reader.groups().next().expect("a group").expect("a good group");
    let message = group.messages().next().expect("a message").expect("a good message");
    (reader.view(), Status::from_u8(message.code).expect("a status"), message.body.to_vec())
}

#[test]
fn behind_its_fence_a_server_executes_nothing_and_goes_on_when_that_is_lifted() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start(directory.path(), 1, 2);
    let (_, mut client, table) = site.two_clients("ann");
    assert_eq!(ask(&mut client, (1, 1), (table, b"key")).1, Status::Ok);
    // Of a lease that this server has not, so that what it guards may be another's.
    let guard = site.server.control().fence.guard(LeaseId(1));
    let (view, status, body) = ask(&mut client, (1, 2), (table, b"key"));
    assert_eq!((view, status), (1, Status::Retry));
    assert!(reply::decode_retry(&body).expect("when to come again") > 0);
    drop(guard);
    let (_, status, body) = ask(&mut client, (1, 2), (table, b"key"));
    assert_eq!(status, Status::Ok);
    assert_eq!(reply::Number::decode(&body).expect("a number").value, 2, "executed once, behind the fence");
}

#[test]
fn a_request_of_another_view_is_answered_from_the_ring_or_leaves_no_trace() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start(directory.path(), 1, 2);
    let (_, mut client, table) = site.two_clients("ann");
    let all: Vec<usize> = (0..SLICES).collect();
    let first = ask(&mut client, (1, 1), (table, b"key"));
    assert_eq!((first.0, first.1), (1, Status::Ok));
    assert_eq!(own(site.server.control(), table, &all), 2);
    let copy = ask(&mut client, (1, 1), (table, b"key"));
    assert_eq!(copy, (2, Status::Ok, first.2), "what was executed is answered, under whatever view");
    for view in [1, 3, 0, u64::MAX] {
        let other = ask(&mut client, (view, 2), (table, b"key"));
        assert_eq!(other, (2, Status::WrongView, Vec::new()));
    }
    let (view, status, body) = ask(&mut client, (2, 2), (table, b"key"));
    assert_eq!((view, status), (2, Status::Ok));
    assert_eq!(reply::Number::decode(&body).expect("a number").value, 2, "it was executed now");
}

#[test]
fn what_is_not_owned_is_refused_in_frames_and_over_streams() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start(directory.path(), 1, 1);
    let (mut other, mut client, table) = site.two_clients("ann");
    let add = Request::Increment { table, key: b"key", delta: 1 };
    let here = slice_of(b"key");
    let others: Vec<usize> = (0..SLICES).filter(|&number| number != here).collect();
    let executed = client.control.request(1, &add).expect("it is owned yet");
    assert_eq!(own(site.server.control(), table, &others), 2);
    assert_eq!(client.control.request(1, &add), Ok(executed), "executed under another view");
    assert_eq!(client.control.request(2, &add), Err((Status::WrongView, Vec::new())));
    client.control.view = 2;
    assert_eq!(client.control.request(2, &add), Err((Status::NotOwned, Vec::new())));
    assert_eq!(other.status(&add), Status::NotOwned, "the requester has gone over to the new view by itself");
    assert_eq!(ask(&mut client, (2, 3), (table, b"key")), (2, Status::NotOwned, Vec::new()));
    assert_eq!(own(site.server.control(), table, &[here]), 3);
    let (status, body) = other.call(&add);
    assert_eq!(status, Ok(Status::Ok));
    assert_eq!(reply::Number::decode(&body).expect("a number").value, 2, "no refused one was executed");
}

/// A server, and a client's session there.
struct Side {
    site: Site,
    client: Client,
    table: u32,
}

/// How far the clients are.
#[derive(Default)]
struct Progress {
    done: AtomicU64,
    over: AtomicBool,
}

impl Progress {
    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }
}

/// Ends the moving when the clients are through, also by a failure.
struct Through<'p>(&'p Progress);

impl Drop for Through<'_> {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::Relaxed);
    }
}

/// Who owns each slice.
type Owners = Mutex<[usize; SLICES]>;

fn owned_by(owners: &[usize; SLICES], side: usize) -> Vec<usize> {
    (0..SLICES).filter(|&number| owners[number] == side).collect()
}

/// Moves slices to and fro until it is told to stop: nobody owns one while it moves.
fn move_about(sites: &[(Arc<Control>, u32); 2], owners: &Owners, progress: &Progress, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut owned = *owners.lock().unwrap_or_else(PoisonError::into_inner);
    while !progress.is_over() {
        let moving = random.usize(..SLICES);
        let (from, to) = (owned[moving], 1 - owned[moving]);
        owned[moving] = usize::MAX;
        own(&sites[from].0, sites[from].1, &owned_by(&owned, from));
        owned[moving] = to;
        own(&sites[to].0, sites[to].1, &owned_by(&owned, to));
        *owners.lock().unwrap_or_else(PoisonError::into_inner) = owned;
        // As often on at once, before what was delayed has come, as not; at the pace of the clients, since nothing
        // gets through to a server whose view changes faster than frames travel.
        let until = progress.done.load(Ordering::Relaxed) + random.u64(..60) * random.u64(..2);
        while progress.done.load(Ordering::Relaxed) < until && !progress.is_over() {
            thread::yield_now();
        }
    }
}

/// Adds 1 to keys, each `rounds` times, wherever they are thought to be.
fn add_to_all(
    sides: &mut [Side; 2],
    (keys, rounds): (&[Vec<u8>], usize),
    (owners, progress): (&Owners, &Progress),
    seed: u64,
) {
    let _through = Through(progress);
    let mut random = fastrand::Rng::with_seed(seed);
    let total = keys.len() * rounds;
    let (mut waiting, mut done, mut submitted) = (Vec::<usize>::new(), 0, 0);
    let mut answers = HashSet::new();
    while done < total {
        let known = *owners.lock().unwrap_or_else(PoisonError::into_inner);
        while waiting.len() < 32 && submitted < total && submitted - done < 200 {
            waiting.push(submitted);
            submitted += 1;
        }
        waiting.retain(|&number| {
            let key = &keys[number % keys.len()];
            // One in ten is sent somewhere, as by a map that has not been right for long.
            let owner = if random.u8(..10) == 0 { random.usize(..2) } else { known[slice_of(key)] };
            let Side { client, table, .. } = &mut sides[owner];
            !client.submit(number as u64, &Request::Increment { table: *table, key, delta: 1 })
        });
        for (side, Side { client, site, .. }) in sides.iter_mut().enumerate() {
            client.server = site.cores[random.usize(..site.cores.len())];
            client.step(&mut |tag, (status, body): Ended| match status {
                Ok(Status::Ok) => {
                    let sum = reply::Number::decode(&body).expect("a number").value;
                    let key = tag as usize % keys.len();
                    assert!(answers.insert((side, key, sum)), "each execution has an answer of its own");
                    done += 1;
                    progress.done.fetch_add(1, Ordering::Relaxed);
                }
                Ok(Status::NotOwned) => waiting.push(tag as usize),
                other => panic!("an increment ended with {other:?}"),
            });
        }
    }
}

fn value(client: &mut Client, table: u32, key: &[u8]) -> i64 {
    match client.call(&Request::Get { table, key }) {
        (Ok(Status::NotFound), _) => 0,
        (status, body) => {
            assert_eq!(status, Ok(Status::Ok));
            let value = reply::Object::decode(&body).expect("an object").value;
            i64::from_le_bytes(value.try_into().expect("eight bytes"))
        }
    }
}

#[test]
fn what_two_servers_hand_to_and_fro_is_executed_once_by_one_of_them() {
    let seed = seed();
    let directories = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
    let mut sides = [0, 1].map(|number| {
        let site = Site::start(directories[number].path(), seed ^ number as u64, 2);
        let (client, table) = site.tenant_with_table("ann");
        Side { site, client, table }
    });
    let owners = Owners::new([0, 1, 0, 1, 0, 1, 0, 1]);
    for (number, Side { site, table, .. }) in sides.iter().enumerate() {
        own(site.server.control(), *table, &owned_by(&owners.lock().expect("nobody else"), number));
        site.network.set_faults(BAD_NETWORK);
    }
    let keys: Vec<Vec<u8>> = (0..40_u32).map(|key| key.to_le_bytes().to_vec()).collect();
    let (rounds, progress) = (150, Progress::default());
    thread::scope(|scope| {
        let controls = sides.each_ref().map(|side| (Arc::clone(side.site.server.control()), side.table));
        let (owners, progress) = (&owners, &progress);
        scope.spawn(move || move_about(&controls, owners, progress, seed));
        add_to_all(&mut sides, (&keys, rounds), (owners, progress), seed);
    });
    let all: Vec<usize> = (0..SLICES).collect();
    for Side { site, table, .. } in &sides {
        site.network.set_faults(Faults::default());
        own(site.server.control(), *table, &all);
    }
    for key in &keys {
        let sum: i64 = sides.iter_mut().map(|side| value(&mut side.client, side.table, key)).sum();
        assert_eq!(sum, rounds as i64, "increments of {key:?}");
    }
}
