//! Two fake servers of a cluster with half of a table's hashes each, at first: what clients are told of who has what.

use net::{UdpConfig, UdpPort};
use splinter_client::{ClientConfig, Session};
use wire::{Body, Moving, ServerPlace, Tablet, TabletMap};
use xxhash_rust::xxh3::xxh3_64;

use super::server::{FakeServer, SECRET, TENANT};

/// Their table.
pub const TABLE: u32 = 1;
/// The first hash of the second server, at first.
pub const MIDDLE: u64 = 1 << 63;

/// Two servers, 4 and 7, with half of the hashes each.
pub struct Pair {
    pub servers: [FakeServer; 2],
}

pub fn server() -> FakeServer {
    FakeServer::start(UdpPort::bind(([127, 0, 0, 1], 0).into(), UdpConfig::default()).unwrap())
}

impl Pair {
    pub fn new() -> Pair {
        let pair = Pair { servers: [server(), server()] };
        pair.cut(1, MIDDLE);
        pair
    }

    pub fn map(&self, version: u64, middle: u64) -> Vec<u8> {
        let place =
            |number: u32, server: &FakeServer| ServerPlace { number, address: server.address.clone() };
        let servers = vec![place(4, &self.servers[0]), place(7, &self.servers[1])];
        let tablets = vec![Tablet { last: middle - 1, server: 0 }, Tablet { last: u64::MAX, server: 1 }];
        TabletMap::new(version, servers, tablets).unwrap().encode()
    }

    /// The map while the first server recovers what the second one owned.
    pub fn recovering_map(&self, version: u64) -> Vec<u8> {
        let map = TabletMap::decode(&self.map(version, MIDDLE)).unwrap();
        let moving = vec![Moving { migration: 9, first: MIDDLE, last: u64::MAX, source: 1 }];
        map.with_moving(moving).unwrap().encode()
    }

    /// From now on the second server owns the hashes from `middle` on; objects go with them.
    pub fn cut(&self, version: u64, middle: u64) {
        let [mut one, mut other] = [0, 1].map(|index: usize| self.servers[index].world());
        let is_others = |key: &[u8]| xxh3_64(key) >= middle;
        let gone: Vec<_> = one.objects.extract_if(.., |(_, key), _| is_others(key)).collect();
        let come: Vec<_> = other.objects.extract_if(.., |(_, key), _| !is_others(key)).collect();
        one.objects.extend(come);
        other.objects.extend(gone);
        one.owned = vec![(0, middle - 1)];
        other.owned = vec![(middle, u64::MAX)];
        (one.view, other.view) = (one.view + 1, other.view + 1);
        (one.map, other.map) = (self.map(version, middle), self.map(version, middle));
    }

    pub fn session(&self) -> Session {
        self.session_with(ClientConfig::default())
    }

    pub fn session_with(&self, config: ClientConfig) -> Session {
        Session::open(&self.servers[0].address, TENANT, SECRET, config).unwrap()
    }

    /// What a key's counter stands at, wherever it is; it is at one server.
    pub fn count(&self, key: &[u8]) -> i64 {
        let found = self.servers.iter().filter_map(|server| {
            server.world().objects.get(&(TABLE, key.to_vec())).map(|(_, value)| value.clone())
        });
        let [value] = &found.collect::<Vec<_>>()[..] else { panic!("at one server") };
        i64::from_le_bytes(value[..].try_into().unwrap())
    }
}
