//! A server that takes connections and answers nothing, as one that was stopped: whoever needs nothing of it goes on.

use std::thread;
use std::time::{Duration, Instant};

use splinter_client::{Client, ClientConfig, Request, Session};
use wire::{Body, ServerPlace, Tablet, TabletMap};
use xxhash_rust::xxh3::xxh3_64;

use crate::fake::pair::{TABLE, server};
use crate::fake::server::{FakeServer, SECRET, TENANT};

/// The one that falls silent. It has the third quarter of the hashes, for good.
const SILENT: usize = 1;
const QUARTER: u64 = 1 << 62;
/// Much longer than any answer takes of a server that answers.
const CALL_TIMEOUT: Duration = Duration::from_secs(20);
/// Tablets that change hands meanwhile.
const MOVES: u64 = 6;

/// Three servers: the first one has the lower half, the last one the last quarter and what it is given.
struct Three([FakeServer; 3]);

impl Three {
    fn new() -> Three {
        let three = Three([server(), server(), server()]);
        three.servers()[SILENT].world().owned = vec![(2 * QUARTER, 3 * QUARTER - 1)];
        three.servers()[SILENT].world().map = three.map(0);
        three.move_to_the_last(0);
        three
    }

    fn servers(&self) -> &[FakeServer; 3] {
        &self.0
    }

    /// The map in which the last server has the hashes below `given` too.
    fn map(&self, given: u64) -> Vec<u8> {
        let places = (4..).zip(self.servers());
        let places = places.map(|(number, server)| ServerPlace { number, address: server.address.clone() });
        let ends = [(given, 2), (2 * QUARTER, 0), (3 * QUARTER, SILENT as u16)];
        let tablets = ends.into_iter().filter(|(end, _)| *end > 0);
        let tablets = tablets.map(|(end, server)| Tablet { last: end - 1, server });
        let tablets = tablets.chain([Tablet { last: u64::MAX, server: 2 }]).collect();
        TabletMap::new(1 + given, places.collect(), tablets).unwrap().encode()
    }

    /// From now on the last server has the hashes below `given` too; the silent one hears nothing of it.
    fn move_to_the_last(&self, given: u64) {
        let [mut first, mut last] = [0, 2].map(|index: usize| self.servers()[index].world());
        let gone: Vec<_> = first.objects.extract_if(.., |(_, key), _| xxh3_64(key) < given).collect();
        last.objects.extend(gone);
        first.owned = vec![(given, 2 * QUARTER - 1)];
        last.owned = vec![(3 * QUARTER, u64::MAX)];
        last.owned.extend((given > 0).then(|| (0, given - 1)));
        (first.view, last.view) = (first.view + 1, last.view + 1);
        (first.map, last.map) = (self.map(given), self.map(given));
    }

    fn client(&self) -> Client {
        let config = ClientConfig { call_timeout: CALL_TIMEOUT, ..ClientConfig::default() };
        Client::over(Session::open(&self.servers()[0].address, TENANT, SECRET, config).unwrap())
    }
}

/// Keys with hashes from `first` to `last`.
fn keys_between(first: u64, last: u64, count: usize) -> Vec<Vec<u8>> {
    let all = (0..u32::MAX).map(|number| number.to_le_bytes().to_vec());
    all.filter(|key| (first..=last).contains(&xxh3_64(key))).take(count).collect()
}

/// Moves tablets between the others, and reads each key where it is by then.
fn read_what_moves(three: &Three, client: &mut Client) {
    for step in 1..=MOVES {
        let [first, given] = [step - 1, step].map(|step| step * (QUARTER / MOVES));
        let keys = keys_between(first, given - 1, 3);
        for key in &keys {
            client.put(TABLE, key, key).unwrap();
        }
        three.move_to_the_last(given);
        for key in &keys {
            let found = client.get(TABLE, key).expect("its server answers");
            assert_eq!(found.map(|object| object.value).as_ref(), Some(key));
        }
    }
}

#[test]
fn a_silent_server_keeps_nobody_from_keys_that_move_between_others() {
    for has_session in [true, false] {
        let three = Three::new();
        let mut client = three.client();
        let [own, others] = [keys_between(0, QUARTER, 1), keys_between(2 * QUARTER, 3 * QUARTER - 1, 1)];
        client.put(TABLE, &own[0], b"value").unwrap();
        if has_session {
            client.put(TABLE, &others[0], b"value").unwrap();
        }
        let silent = three.servers()[SILENT].world();
        let asked = silent.maps_asked;
        read_what_moves(&three, &mut client);
        drop(silent);
        // It answers again, and first what it was asked meanwhile.
        client.put(TABLE, &others[0], b"value").unwrap();
        let asked_since = three.servers()[SILENT].world().maps_asked - asked;
        assert!(asked_since <= 2, "one question stays open, and one may follow now: {asked_since}");
    }
}

#[test]
fn a_session_that_is_opened_when_nobody_wants_it_any_more_ends_at_once() {
    let three = Three::new();
    let mut client = three.client();
    let others = &keys_between(2 * QUARTER, 3 * QUARTER - 1, 1)[0];
    let silent = three.servers()[SILENT].world();
    let get = Request::Get { table: TABLE, key: others };
    client.session().submit(&get, 1).unwrap();
    let opens = three.servers()[SILENT].streams();
    while three.servers()[SILENT].streams() == opens {
        client.session().poll(&mut |_| {}).unwrap();
    }
    drop(client);
    drop(silent);
    let deadline = Instant::now() + CALL_TIMEOUT;
    let has_opened = |server: &FakeServer| server.world().sessions_opened > 0;
    while !has_opened(&three.servers()[SILENT]) || three.servers()[SILENT].world().sessions() > 0 {
        assert!(Instant::now() < deadline, "the session stays");
        thread::sleep(Duration::from_millis(1));
    }
}
