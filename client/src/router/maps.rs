//! Which server has which hashes of a table, as far as the session knows.
//!
//! Of a table that is new all is taken to be the named server's, until that server has said what is so. A map lags behind
//! the cut that it tells of, so it is asked for again whenever a server answers that a key is another one's. Of what a
//! server tells everything is bounded, and no more is taken for granted than that a request may be tried there.

use wire::limits::TABLETS_PER_TABLE_MAX;
use wire::{KeyRange, Request};
use xxhash_rust::xxh3::xxh3_64;

use super::HOME;
use crate::both_sides::{self, Moving};
use crate::limits::NEXT_MAP_AFTER_US;

/// Hashes, the last one included, and the server that has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tablet {
    pub(super) last: u64,
    pub(super) server: usize,
}

/// What is known of a table.
pub(super) struct TableMap {
    pub(super) table: u32,
    /// Of two maps the one of the higher version is the newer.
    pub(super) version: u64,
    /// How often its map was asked for and answered, or answered by nobody.
    pub(super) asked: u64,
    /// Nobody has answered since it was wanted.
    pub(super) is_wanted: bool,
    /// Servers that were asked and have not answered; once each.
    pub(super) asks: Vec<usize>,
    /// When the next server is asked, if none has answered by then.
    pub(super) ask_at_us: u64,
    /// How long that one may take until another one is asked.
    pub(super) patience_us: u64,
    /// By their hashes; never none.
    pub(super) tablets: Vec<Tablet>,
    /// What of them is on the move so that reads may ask both servers.
    pub(super) moving: Vec<Moving>,
}

/// Where a request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// To one server.
    Server(usize),
    /// To several, in parts.
    Parts,
}

impl TableMap {
    /// That of a table of which nothing is known yet.
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

    /// The server that has all of it, if it is one in one piece.
    pub(super) fn whole(&self) -> Option<usize> {
        match self.tablets[..] {
            [Tablet { server, .. }] => Some(server),
            _ => None,
        }
    }

    /// The server that has a hash.
    pub(super) fn server_of(&self, hash: u64) -> usize {
        let at = self.tablets.partition_point(|tablet| tablet.last < hash);
        self.tablets[at].server
    }

    /// Where a request for the table goes. `is_first`: nobody has refused it.
    pub(super) fn way(&self, request: &Request<'_>, is_first: bool) -> Route {
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
            // A function without a key works where it was asked for.
            Request::Invoke { key: [], .. } if is_first => Route::Server(HOME),
            _ => Route::Server(request.hash(xxh3_64).map_or(HOME, |hash| self.server_of(hash))),
        }
    }

    /// The pieces of a range of hashes: first and last hash, server.
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

    /// Notes that a server has what is around `last` in two pieces, the first of which ends there. Returns whether that is
    /// news, and there is room for it.
    pub(super) fn cut(&mut self, last: u64) -> bool {
        let at = self.tablets.partition_point(|tablet| tablet.last < last);
        if self.tablets[at].last == last || self.tablets.len() >= 2 * TABLETS_PER_TABLE_MAX {
            return false;
        }
        let server = self.tablets[at].server;
        self.tablets.insert(at, Tablet { last, server });
        true
    }

    /// Takes a map over, unless what is known is newer.
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
            // What follows each other at one server is asked for at once.
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
        let way = |cursor: &[u8]| map.way(&Request::Verify { table: 1, cursor }, true);
        assert_eq!(way(&[]), Route::Server(0));
        assert_eq!(way(&[9, 0, 0, 0, 0, 0, 0, 0, 7]), Route::Server(0));
        let mut behind = [0xff; 16];
        behind[..8].copy_from_slice(&9_u64.to_le_bytes());
        assert_eq!(way(&behind), Route::Server(1));
        assert_eq!(way(&[0xff; 16]), Route::Server(1));
        assert_eq!(way(&[1]), Route::Server(0));
    }

    #[test]
    fn a_scan_of_several_pieces_goes_in_parts() {
        let map = map(&[(9, 0), (u64::MAX, 1)]);
        let way = |hashes| {
            let range = KeyRange { hashes, ..KeyRange::default() };
            map.way(
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
        assert_eq!((way(None), way(Some((5, 10)))), (Route::Parts, Route::Parts));
        assert_eq!((way(Some((5, 9))), way(Some((10, 11)))), (Route::Server(0), Route::Server(1)));
    }
}
