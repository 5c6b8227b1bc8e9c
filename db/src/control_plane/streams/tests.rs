//! Places against a plain model of the rules, by random steps, over real sockets; and what the model has no word for.

use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use net::{Stream, StreamCloser};
use wire::TenantId;

use super::{Census, ConnectionPermit, Counts, Holder, NoPlace, Streams};
use crate::config::StreamLimits;
use crate::limits::{ANSWERS_BYTES_MAX, RECORDS_BYTES_MAX, STREAMS_LEAVING_MAX, UNCOUNTED_RECORD_BYTES};
use crate::worker::response_limiter::SourcePrefix;

const LIMITS: StreamLimits = StreamLimits { places: 12, of_tenant: 4, reserve: 3 };

/// Long enough for whatever ends at all.
const PATIENCE: Duration = Duration::from_secs(60);

/// A connection: the peer's end, and what closes the server's.
fn connection(listener: &TcpListener) -> (TcpStream, StreamCloser) {
    let peer = TcpStream::connect(listener.local_addr().expect("an address")).expect("a listener");
    let (socket, _) = listener.accept().expect("a connection");
    let stream = Stream::over(socket, PATIENCE).expect("a working socket");
    (peer, stream.closer().expect("a descriptor"))
}

fn listener() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").expect("a listener")
}

fn prefix(number: u8) -> SourcePrefix {
    SourcePrefix::of(IpAddr::V4(Ipv4Addr::new(192, 0, number, 7)))
}

/// Returns true if the server's end is open; waits for its closing if `expected` is false.
fn is_open(peer: &mut TcpStream, expected: bool) -> bool {
    peer.set_nonblocking(expected).expect("a working socket");
    peer.set_read_timeout(Some(PATIENCE)).expect("a working socket");
    match peer.read(&mut [0]) {
        Ok(0) => false,
        Ok(_) => panic!("nobody wrote"),
        Err(error) => {
            assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
            true
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Unopened(u8),
    Leaving,
    Tenant(u32),
    Operator,
}

/// A stream as the model and as the server have it.
struct Entry {
    kind: Kind,
    place: ConnectionPermit,
    peer: TcpStream,
    /// When it was used last, in steps of the model.
    used: u64,
}

/// The streams in the order of their age.
struct Model {
    streams: Arc<Streams>,
    listener: TcpListener,
    entries: Vec<Entry>,
    counts: Counts,
    uses: u64,
}

impl Model {
    fn count(&self, is_so: impl Fn(Kind) -> bool) -> usize {
        self.entries.iter().filter(|entry| is_so(entry.kind)).count()
    }

    fn staying(&self) -> usize {
        self.count(|kind| kind != Kind::Leaving)
    }

    /// Whom the rules send away: of the prefixes with most unopened streams the one that was there first, of its
    /// streams the oldest.
    fn victim(&self) -> Option<usize> {
        let strength = |entry: &Entry| match entry.kind {
            Kind::Unopened(_) => self.count(|kind| kind == entry.kind),
            _ => 0,
        };
        let most = self.entries.iter().map(strength).max().filter(|most| *most > 0)?;
        self.entries.iter().position(|entry| strength(entry) == most)
    }

    fn enter(&mut self, from: u8) {
        let (peer, closer) = connection(&self.listener);
        let place = self.streams.enter(closer, prefix(from), Duration::ZERO);
        let is_full = self.staying() == LIMITS.places;
        let victim = self.victim().filter(|_| is_full);
        if let Some(victim) = victim {
            self.entries[victim].kind = Kind::Leaving;
            self.counts.evicted += 1;
        }
        let has_room =
            (!is_full || victim.is_some()) && self.entries.len() < LIMITS.places + STREAMS_LEAVING_MAX;
        assert_eq!(place.is_some(), has_room);
        match place {
            Some(place) => self.entries.push(Entry { kind: Kind::Unopened(from), place, peer, used: 0 }),
            None => self.counts.turned_away += 1,
        }
    }

    /// Returns the stream that is closed for a tenant with `own` streams when all places of tenants are taken: the
    /// least recently used one of the tenant with the most.
    fn ceding(&self, own: usize) -> Option<usize> {
        let streams = |tenant| self.count(|kind| kind == Kind::Tenant(tenant));
        let most =
            (0..3).rev().max_by_key(|tenant| streams(*tenant)).filter(|most| streams(*most) > own + 1)?;
        let of_most = (0..self.entries.len()).filter(|index| self.entries[*index].kind == Kind::Tenant(most));
        of_most.min_by_key(|index| self.entries[*index].used)
    }

    /// The stream of this index serves a request.
    fn serve(&mut self, index: usize) {
        drop(self.entries[index].place.busy());
        self.note_use(index);
    }

    fn note_use(&mut self, index: usize) {
        self.uses += 1;
        self.entries[index].used = self.uses;
    }

    fn take(&mut self, index: usize, holder: Holder) {
        let own = |kind| matches!((kind, holder), (Kind::Tenant(own), Holder::Tenant(it)) if own == it.0);
        let ceding = self.ceding(self.count(own));
        let expected = match (self.entries[index].kind, holder) {
            (Kind::Leaving, _) => Err(NoPlace::Closed),
            (_, Holder::Operator) => Ok(Kind::Operator),
            _ if self.count(own) >= LIMITS.of_tenant => Err(NoPlace::OfTenant),
            (_, Holder::Tenant(tenant)) => {
                let tenants = self.count(|kind| matches!(kind, Kind::Tenant(_)));
                let is_full = tenants >= LIMITS.places - LIMITS.reserve;
                match ceding {
                    None if is_full => Err(NoPlace::OfTenants),
                    Some(ceding) if is_full => {
                        self.entries[ceding].kind = Kind::Leaving;
                        self.counts.ceded += 1;
                        Ok(Kind::Tenant(tenant.0))
                    }
                    _ => Ok(Kind::Tenant(tenant.0)),
                }
            }
        };
        assert_eq!(self.entries[index].place.take(holder), expected.map(drop));
        match expected {
            Ok(kind) => {
                self.entries[index].kind = kind;
                self.note_use(index);
            }
            Err(NoPlace::Closed) => {}
            Err(_) => self.counts.refused += 1,
        }
    }

    fn check(&mut self) {
        let census = Census {
            unopened: self.count(|kind| matches!(kind, Kind::Unopened(_))),
            leaving: self.count(|kind| kind == Kind::Leaving),
            tenants: self.count(|kind| matches!(kind, Kind::Tenant(_))),
            operators: self.count(|kind| kind == Kind::Operator),
            counts: self.counts,
        };
        assert_eq!(self.streams.census(), census);
        assert!(self.staying() <= LIMITS.places);
        for entry in &mut self.entries {
            let expected = entry.kind != Kind::Leaving;
            assert_eq!(is_open(&mut entry.peer, expected), expected, "{:?}", entry.kind);
        }
    }
}

#[test]
fn random_steps_do_what_the_rules_say() {
    let given = std::env::var("SPLINTER_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(|| fastrand::u64(..));
    eprintln!("SPLINTER_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let (streams, listener) = (Streams::new(LIMITS), listener());
    let mut model = Model { streams, listener, entries: Vec::new(), counts: Counts::default(), uses: 0 };
    for _ in 0..2_000 {
        // Streams leave in bursts, so that closed ones pile up now and then.
        let ends = if random.u8(..) < 8 { model.entries.len() } else { usize::from(random.u8(..) < 48) };
        for _ in 0..ends.min(model.entries.len()) {
            model.entries.remove(random.usize(0..model.entries.len()));
        }
        model.enter(random.u8(0..4));
        // One that was closed may hear of it late.
        let is_late = random.u8(0..8) == 0;
        let is_asking =
            |kind| if is_late { kind == Kind::Leaving } else { matches!(kind, Kind::Unopened(_)) };
        let asking: Vec<usize> =
            (0..model.entries.len()).filter(|index| is_asking(model.entries[*index].kind)).collect();
        let chosen = random.choice(asking);
        match (random.u8(0..6), chosen) {
            (0, Some(index)) => model.take(index, Holder::Operator),
            (1..4, Some(index)) => model.take(index, Holder::Tenant(TenantId(random.u32(0..3)))),
            _ => {}
        }
        if !model.entries.is_empty() && random.bool() {
            model.serve(random.usize(0..model.entries.len()));
        }
        model.check();
    }
    let Counts { evicted, turned_away, refused, ceded } = model.counts;
    assert!(evicted > 0 && turned_away > 0 && refused > 0 && ceded > 0, "{:?}", model.counts);
    assert_eq!(model.streams.news(), Some(model.counts));
    assert_eq!(model.streams.news(), None, "said once");
    model.entries.clear();
    assert_eq!(model.streams.census(), Census { counts: model.counts, ..Census::default() });
}

#[test]
fn who_comes_waits_for_the_thread_of_one_that_was_closed() {
    let (streams, listener) = (Streams::new(LIMITS), listener());
    let enter = |patience| {
        let (peer, closer) = connection(&listener);
        streams.enter(closer, prefix(1), patience).map(|place| (place, peer))
    };
    let mut held: Vec<_> = (0..LIMITS.places + STREAMS_LEAVING_MAX)
        .map(|_| enter(Duration::ZERO).expect("a place, or somebody to close"))
        .collect();
    assert!(enter(Duration::ZERO).is_none(), "their threads have not ended");
    let first = held.remove(0);
    let ending = thread::spawn(move || drop(first));
    assert!(enter(PATIENCE).is_some());
    ending.join().expect("no panic");
}

#[test]
fn a_tenant_with_less_gets_the_idlest_place_of_the_one_with_most_until_both_have_as_many() {
    let (streams, listener) = (Streams::new(LIMITS), listener());
    let enter = |tenant| {
        let (peer, closer) = connection(&listener);
        let place = streams.enter(closer, prefix(1), Duration::ZERO).expect("a place");
        place.take(Holder::Tenant(TenantId(tenant))).map(|()| (place, peer))
    };
    let most = (0..4).map(|_| enter(1).expect("within its bound"));
    let (most, mut peers): (Vec<ConnectionPermit>, Vec<TcpStream>) = most.unzip();
    let _other: Vec<_> = (0..4).map(|_| enter(2).expect("within its bound")).collect();
    let _third = enter(3).expect("the last place");
    // The first is busy and the second was used lately, so the third is the idlest of those that have most.
    let _busy = most[0].busy();
    drop(most[1].busy());
    let _fourth = enter(4).expect("a place of the first that has most");
    let open = [0, 1, 3].map(|index| is_open(&mut peers[index], true));
    assert!(open == [true; 3] && !is_open(&mut peers[2], false));
    let _fifth = enter(4).expect("and one of the other, which has most now");
    assert_eq!(enter(4).map(drop), Err(NoPlace::OfTenants), "it has two, and nobody more than three");
    assert_eq!(streams.census().counts.ceded, 2);
}

#[test]
fn who_has_what_it_came_for_makes_room_and_the_oldest_first() {
    let (streams, listener) = (Streams::new(LIMITS), listener());
    let enter = || {
        let (peer, closer) = connection(&listener);
        (streams.enter(closer, prefix(1), Duration::ZERO), peer)
    };
    let mut held: Vec<_> = (0..LIMITS.places).map(|_| enter()).collect();
    for (place, _) in &held {
        place.as_ref().expect("a place").take(Holder::Operator).expect("always");
    }
    assert!(enter().0.is_none(), "all are in use");
    for index in [5, 3] {
        held[index].0.as_ref().expect("a place").give_up();
    }
    for index in [3, 5] {
        let (place, peer) = enter();
        place.as_ref().expect("room was made").take(Holder::Operator).expect("always");
        assert!(!is_open(&mut held[index].1, false));
        held[index].0.as_ref().expect("a place").give_up();
        held.push((place, peer));
    }
    assert!(enter().0.is_none(), "who was closed is not closed again");
}

#[test]
fn all_streams_close_with_their_listener() {
    let (streams, listener) = (Streams::new(LIMITS), listener());
    let mut held: Vec<_> = (0..LIMITS.places)
        .map(|_| {
            let (peer, closer) = connection(&listener);
            (streams.enter(closer, prefix(1), Duration::ZERO).expect("a place"), peer)
        })
        .collect();
    held[0].0.take(Holder::Operator).expect("always");
    held[1].0.take(Holder::Tenant(TenantId(1))).expect("the first");
    streams.close_all();
    assert!(held.iter_mut().all(|(_, peer)| !is_open(peer, false)));
}

#[test]
fn a_tenant_that_stalls_in_large_records_has_room_for_some_and_leaves_room_for_others() {
    let (streams, listener) = (Streams::new(LIMITS), listener());
    let place = |holder| {
        let place = streams.enter(connection(&listener).1, prefix(1), Duration::ZERO).expect("a place");
        place.take(holder).expect("within the limits");
        place
    };
    let [ann, bob] = [1, 2].map(|tenant| place(Holder::Tenant(TenantId(tenant))));
    let operator = place(Holder::Operator);
    let (half, rest) = (RECORDS_BYTES_MAX / 2, RECORDS_BYTES_MAX / 4);
    for _ in 0..3 {
        let held = ann.room_for(half, Duration::ZERO).expect("half of all");
        assert!(ann.room_for(UNCOUNTED_RECORD_BYTES + 1, Duration::ZERO).is_none());
        let _short = ann.room_for(UNCOUNTED_RECORD_BYTES, Duration::ZERO).expect("it is not counted");
        let _other = bob.room_for(rest, Duration::ZERO).expect("half of what is left");
        assert!(bob.room_for(rest, Duration::ZERO).is_none());
        let _operators = operator.room_for(RECORDS_BYTES_MAX, Duration::ZERO).expect("whatever others do");
        thread::scope(|scope| {
            let waiting = scope.spawn(|| ann.room_for(rest, PATIENCE).is_some());
            drop(held);
            assert!(waiting.join().expect("no panic"), "it waited for the one before");
        });
    }
    let _held = ann.room_for(half, Duration::ZERO).expect("all was given back");
    streams.close_all();
    assert!(ann.room_for(half, PATIENCE).is_none(), "nobody waits when all is over");
}

#[test]
fn room_of_an_answer_that_turns_out_short_is_free_at_once_and_apart_from_that_of_records() {
    let (streams, listener) = (Streams::new(LIMITS), listener());
    let place = streams.enter(connection(&listener).1, prefix(1), Duration::ZERO).expect("a place");
    place.take(Holder::Tenant(TenantId(1))).expect("within the limits");
    let _record = place.room_for(RECORDS_BYTES_MAX / 2, Duration::ZERO).expect("half of all");
    let half = ANSWERS_BYTES_MAX / 2;
    for kept in [0, UNCOUNTED_RECORD_BYTES, half / 2] {
        let mut room = place.room_for_answer(half, Duration::ZERO).expect("half of all");
        assert!(place.room_for_answer(half / 2, Duration::ZERO).is_none());
        room.shrink_to(kept);
        let rest = if kept == half / 2 { half / 2 } else { half };
        assert!(place.room_for_answer(rest, Duration::ZERO).is_some(), "beside {kept}");
        assert!(place.room_for_answer(rest + 1, Duration::ZERO).is_none(), "beside {kept}");
    }
    assert!(place.room_for_answer(half, Duration::ZERO).is_some(), "all was given back");
}
