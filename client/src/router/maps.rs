//! The servers that own the hashes of a table, as far as the session knows.
//!
//! A new table is assumed to belong to the home server, until that server has answered. A map lags behind the cut that
//! it describes, so the router requests it again whenever a server reports that it does not own a key. Everything that
//! a server reports is bounded, and it decides only where a request is tried.

use wire::limits::TABLETS_PER_TABLE_MAX;
use wire::{KeyRange, Request};
use xxhash_rust::xxh3::xxh3_64;

use super::HOME;
use crate::both_sides::{self, Moving};
use crate::limits::NEXT_MAP_AFTER_US;

/// A range of hashes up to and including `last`, and its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tablet {
    pub(super) last: u64,
    pub(super) server: usize,
}

/// The known tablets of a table.
pub(super) struct TableMap {
    pub(super) table: u32,
    /// The map with the higher version is the newer one.
    pub(super) version: u64,
    /// Number of map requests that were answered, or that no server answered.
    pub(super) asked: u64,
    /// A map is needed, and no server has answered yet.
    pub(super) is_wanted: bool,
    /// Servers with an unanswered map request; each at most once.
    pub(super) asks: Vec<usize>,
    /// Time to ask the next server, unless one has answered by then.
    pub(super) ask_at_us: u64,
    /// Time that the next server has before another one is asked.
    pub(super) patience_us: u64,
    /// Tablets in the order of their hashes; never empty.
    pub(super) tablets: Vec<Tablet>,
    /// Migrations for which reads may ask both servers.
    pub(super) moving: Vec<Moving>,
}

/// The destination of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// One server.
    Server(usize),
    /// Several servers, in parts.
    Parts,
}

impl TableMap {
    /// Returns the map of a table about which nothing is known yet.
    pub(super) fn new(table: u32) -> TableMap {
        let tablets = vec![Tablet { last: u64::MAX, server: HOME }];
        TableMap {
            table,
            version: 0,
            asked: 0,
            is_wanted: true,
            asks: Vec::new(),
            ask_at_us: 0,
            patience_us: NEXT_MAP_AFTER_US,
            tablets,
            moving: Vec::new(),
        }
    }

    /// Returns the server that owns the whole table, if there is one.
    pub(super) fn whole(&self) -> Option<usize> {
        match self.tablets[..] {
            [Tablet { server, .. }] => Some(server),
            _ => None,
        }
    }

    /// Returns the server that owns a hash.
    pub(super) fn server_of(&self, hash: u64) -> usize {
        let at = self.tablets.partition_point(|tablet| tablet.last < hash);
        self.tablets[at].server
    }

    /// Returns the destination of a request. `is_first`: no server has refused it.
    pub(super) fn route(&self, request: &Request<'_>, is_first: bool) -> Route {
        if let Some(server) = self.whole() {
            return Route::Server(server);
        }
        match *request {
            Request::MultiGet { keys, .. } => {
                let mut servers = keys.map(|key| self.server_of(xxh3_64(key)));
                let first = servers.next().unwrap_or(HOME);
                if servers.all(|server| server == first) { Route::Server(first) } else { Route::Parts }
            }
            Request::Scan { range: KeyRange { hashes: Some((first, last)), .. }, .. } => {
                match self.pieces(first, last).as_slice() {
                    [(_, server)] => Route::Server(*server),
                    _ => Route::Parts,
                }
            }
            Request::Scan { .. } => Route::Parts,
            // A function without a key runs on any server.
            Request::Invoke { key: [], .. } if is_first => Route::Server(HOME),
            _ => Route::Server(request.hash(xxh3_64).map_or(HOME, |hash| self.server_of(hash))),
        }
    }

    /// Splits a range of hashes by owner: first and last hash, server.
    pub(super) fn pieces(&self, first: u64, last: u64) -> Vec<((u64, u64), usize)> {
        let at = self.tablets.partition_point(|tablet| tablet.last < first);
        let (mut pieces, mut from) = (Vec::new(), first);
        for tablet in &self.tablets[at..] {
            pieces.push(((from, tablet.last.min(last)), tablet.server));
            if tablet.last >= last {
                break;
            }
            from = tablet.last + 1;
        }
        pieces
    }

    /// Splits the tablet around `last` so that its first part ends there. Returns whether that is new, and there is
    /// room for it.
    pub(super) fn cut(&mut self, last: u64) -> bool {
        let at = self.tablets.partition_point(|tablet| tablet.last < last);
        if self.tablets[at].last == last || self.tablets.len() >= 2 * TABLETS_PER_TABLE_MAX {
            return false;
        }
        let server = self.tablets[at].server;
        self.tablets.insert(at, Tablet { last, server });
        true
    }

    /// Replaces the map, unless the present one is newer.
    pub(super) fn replace(
        &mut self,
        version: u64,
        tablets: impl Iterator<Item = Tablet>,
        moving: impl Iterator<Item = Moving>,
    ) {
        if version < self.version {
            return;
        }
        both_sides::follow(&mut self.moving, moving);
        self.version = version;
        self.tablets.clear();
        for tablet in tablets {
            // Adjacent tablets of one server are requested together.
            match self.tablets.last_mut() {
                Some(before) if before.server == tablet.server => before.last = tablet.last,
                _ => self.tablets.push(tablet),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::iter;

    use wire::{KeyRange, Request};

    use super::{Route, TableMap, Tablet};

    fn map(tablets: &[(u64, usize)]) -> TableMap {
        let mut map = TableMap::new(1);
        map.replace(1, tablets.iter().map(|&(last, server)| Tablet { last, server }), iter::empty());
        map
    }

    #[test]
    fn what_follows_each_other_at_one_server_is_one_piece_until_that_says_otherwise() {
        let mut map = map(&[(9, 0), (19, 1), (29, 1), (u64::MAX, 2)]);
        assert_eq!(map.pieces(5, 40), [((5, 9), 0), ((10, 29), 1), ((30, 40), 2)]);
        assert_eq!(map.pieces(12, 13), [((12, 13), 1)]);
        assert!(map.cut(19) && !map.cut(19));
        assert_eq!(map.pieces(12, 29), [((12, 19), 1), ((20, 29), 1)]);
    }

    #[test]
    fn an_older_map_changes_nothing() {
        let mut map = map(&[(9, 0), (u64::MAX, 1)]);
        map.replace(0, iter::once(Tablet { last: u64::MAX, server: 2 }), iter::empty());
        assert_eq!((map.server_of(9), map.server_of(10)), (0, 1));
    }

    #[test]
    fn an_enumeration_goes_to_the_server_of_where_its_cursor_stands() {
        let map = map(&[(9, 0), (u64::MAX, 1)]);
        let route = |cursor: &[u8]| map.route(&Request::Verify { table: 1, cursor }, true);
        assert_eq!(route(&[]), Route::Server(0));
        assert_eq!(route(&[9, 0, 0, 0, 0, 0, 0, 0, 7]), Route::Server(0));
        let mut behind = [0xff; 16];
        behind[..8].copy_from_slice(&9_u64.to_le_bytes());
        assert_eq!(route(&behind), Route::Server(1));
        assert_eq!(route(&[0xff; 16]), Route::Server(1));
        assert_eq!(route(&[1]), Route::Server(0));
    }

    #[test]
    fn a_scan_of_several_pieces_goes_in_parts() {
        let map = map(&[(9, 0), (u64::MAX, 1)]);
        let route = |hashes| {
            let range = KeyRange { hashes, ..KeyRange::default() };
            map.route(
                &Request::Scan {
                    table: 1,
                    range,
                    cursor: &[],
                    keys_only: true,
                    objects_max: 1,
                    bytes_max: 1,
                },
                true,
            )
        };
        assert_eq!((route(None), route(Some((5, 10)))), (Route::Parts, Route::Parts));
        assert_eq!((route(Some((5, 9))), route(Some((10, 11)))), (Route::Server(0), Route::Server(1)));
    }
}
