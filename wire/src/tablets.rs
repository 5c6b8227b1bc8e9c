//! The tablet map of a table: the reply that names the server of each range of positions.
//!
//! ```text
//!   version u64 | servers: list of (number u32, address text) | tablets: list of (last hash u64, index of its server u16)
//!   | on the move: list of (migration u32, first hash u64, last hash u64, index of the server that they come from u16)
//!   | of a tagged table: 1 u8
//! ```
//! Tablets are in hash order. Each reaches from behind the previous one to its last hash, the last one to 2^64 - 1:
//! so every hash has exactly one server, and one search finds it. The hash of a key is xxh3 (64 bits). A tagged table is
//! divided by another [`position`] of its keys instead, and "hash" above means that position. A reader that does not
//! know tags refuses such a map as too long.

use crate::body::{Body, BodyReader, BodyWriter};
use crate::limits::{SERVERS_MAX, TABLETS_PER_TABLE_MAX};
use crate::status::Status;

/// Returns the tag of a key: what lies between its first `{` and the next `}`, or the whole key if that is nothing. It is
/// the rule by which Redis Cluster chooses a slot.
#[must_use]
pub fn tag_of(key: &[u8]) -> &[u8] {
    let tag = key.iter().position(|byte| *byte == b'{').map(|brace| &key[brace + 1..]);
    let end = tag.and_then(|tag| tag.iter().position(|byte| *byte == b'}'));
    match tag.zip(end) {
        Some((tag, end)) if end > 0 => &tag[..end],
        _ => key,
    }
}

/// Returns the position of a key, with this hash, by which its table is divided: the hash, or in a tagged table the highest
/// 16 bits of the hash of its tag, then the highest 48 bits of its own. So keys of one tag are within 2^48 positions, which
/// are in one tablet.
#[inline]
#[must_use]
pub fn position(key: &[u8], key_hash: u64, is_tagged: bool, hash: impl Fn(&[u8]) -> u64) -> u64 {
    if !is_tagged {
        return key_hash;
    }
    let tag = tag_of(key);
    let tag_hash = if tag.len() == key.len() { key_hash } else { hash(tag) };
    tag_hash & !(TAG_WIDTH - 1) | key_hash >> (u64::BITS - TAG_WIDTH_BITS)
}

/// Returns the first and the last position of the keys with this beginning in a tagged table, if it has their whole tag.
#[must_use]
pub fn tagged_positions(beginning: &[u8], hash: impl Fn(&[u8]) -> u64) -> Option<(u64, u64)> {
    let tag = tag_of(beginning);
    let first = (tag.len() < beginning.len()).then(|| hash(tag) & !(TAG_WIDTH - 1))?;
    Some((first, first + (TAG_WIDTH - 1)))
}

const TAG_WIDTH_BITS: u32 = 48;
/// Positions of a tag. The tablets of a tagged table begin at multiples of it.
pub const TAG_WIDTH: u64 = 1 << TAG_WIDTH_BITS;

/// A server of a tablet map.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServerPlace {
    /// Its number in the cluster.
    pub number: u32,
    /// Host and TCP port of its sessions; empty for the replying server, if it is alone.
    pub address: String,
}

/// A tablet of a map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tablet {
    /// The last of its hashes; the first is behind the last one of the previous tablet.
    pub last: u64,
    /// Index of its server in the map.
    pub server: u16,
}

/// Hashes whose new server does not have all of their objects yet: until then a read may ask both. If the source is the server
/// of the hashes itself, it is gone and others recover them: a request may wait for that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moving {
    /// Number of the migration.
    pub migration: u32,
    /// The first of the hashes.
    pub first: u64,
    /// The last of the hashes.
    pub last: u64,
    /// Index in the map of the source server.
    pub source: u16,
}

/// The tablets of a table. Valid by construction, as the file's head describes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TabletMap {
    version: u64,
    servers: Vec<ServerPlace>,
    tablets: Vec<Tablet>,
    moving: Vec<Moving>,
    is_tagged: bool,
}

impl TabletMap {
    /// Creates a map; of two maps of a table the one of the higher version is the newer.
    ///
    /// # Errors
    /// [`Status::Malformed`] for tablets that violate the order of the file's head, [`Status::LimitExceeded`] for too
    /// many.
    pub fn new(version: u64, servers: Vec<ServerPlace>, tablets: Vec<Tablet>) -> Result<TabletMap, Status> {
        if servers.len() > SERVERS_MAX || tablets.len() > TABLETS_PER_TABLE_MAX {
            return Err(Status::LimitExceeded);
        }
        let rises = tablets.windows(2).all(|pair| pair[0].last < pair[1].last);
        let reaches_the_end = tablets.last().is_some_and(|tablet| tablet.last == u64::MAX);
        let has_servers = tablets.iter().all(|tablet| usize::from(tablet.server) < servers.len());
        if rises && reaches_the_end && has_servers {
            Ok(TabletMap { version, servers, tablets, moving: Vec::new(), is_tagged: false })
        } else {
            Err(Status::Malformed)
        }
    }

    /// Creates the map of a table that one server owns as a whole.
    #[must_use]
    pub fn whole(version: u64, server: ServerPlace) -> TabletMap {
        let tablets = vec![Tablet { last: u64::MAX, server: 0 }];
        TabletMap { version, servers: vec![server], tablets, moving: Vec::new(), is_tagged: false }
    }

    /// Returns this map for a tagged table.
    #[must_use]
    pub fn tagged(self) -> TabletMap {
        TabletMap { is_tagged: true, ..self }
    }

    /// Returns this map with these hashes in transit.
    ///
    /// # Errors
    /// [`Status::Malformed`] for invalid hashes or servers, [`Status::LimitExceeded`] for too many.
    pub fn with_moving(self, moving: Vec<Moving>) -> Result<TabletMap, Status> {
        if moving.len() > TABLETS_PER_TABLE_MAX {
            return Err(Status::LimitExceeded);
        }
        let is_one = |it: &Moving| it.first <= it.last && usize::from(it.source) < self.servers.len();
        if moving.iter().all(is_one) { Ok(TabletMap { moving, ..self }) } else { Err(Status::Malformed) }
    }

    /// Returns the version.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Returns the servers.
    #[must_use]
    pub fn servers(&self) -> &[ServerPlace] {
        &self.servers
    }

    /// Returns the tablets, in hash order.
    #[must_use]
    pub fn tablets(&self) -> &[Tablet] {
        &self.tablets
    }

    /// Returns the hashes in transit for which reads may ask both servers.
    #[must_use]
    pub fn moving(&self) -> &[Moving] {
        &self.moving
    }

    /// Returns whether the table is divided by the tags of its keys.
    #[must_use]
    pub fn is_tagged(&self) -> bool {
        self.is_tagged
    }

    /// Returns the index of the server that owns a position: of a key its [`position`].
    #[inline]
    #[must_use]
    pub fn server_of(&self, position: u64) -> usize {
        let at = self.tablets.partition_point(|tablet| tablet.last < position);
        self.tablets[at].server.into()
    }
}

impl Body for ServerPlace {
    fn write(&self, writer: &mut BodyWriter) {
        writer.u32(self.number);
        writer.text(&self.address);
    }

    fn read(reader: &mut BodyReader<'_>) -> Result<ServerPlace, Status> {
        Ok(ServerPlace { number: reader.u32()?, address: reader.text()?.to_owned() })
    }
}

impl Body for Tablet {
    fn write(&self, writer: &mut BodyWriter) {
        writer.u64(self.last);
        writer.u16(self.server);
    }

    fn read(reader: &mut BodyReader<'_>) -> Result<Tablet, Status> {
        Ok(Tablet { last: reader.u64()?, server: reader.u16()? })
    }
}

impl Body for Moving {
    fn write(&self, writer: &mut BodyWriter) {
        writer.u32(self.migration);
        writer.u64(self.first);
        writer.u64(self.last);
        writer.u16(self.source);
    }

    fn read(reader: &mut BodyReader<'_>) -> Result<Moving, Status> {
        let (migration, first, last) = (reader.u32()?, reader.u64()?, reader.u64()?);
        Ok(Moving { migration, first, last, source: reader.u16()? })
    }
}

impl Body for TabletMap {
    fn write(&self, writer: &mut BodyWriter) {
        writer.u64(self.version);
        self.servers.write(writer);
        self.tablets.write(writer);
        self.moving.write(writer);
        if self.is_tagged {
            writer.u8(1);
        }
    }

    fn read(reader: &mut BodyReader<'_>) -> Result<TabletMap, Status> {
        let map = TabletMap::new(reader.u64()?, Vec::read(reader)?, Vec::read(reader)?)?;
        let map = map.with_moving(Vec::read(reader)?)?;
        if reader.bytes_left() == 0 {
            return Ok(map);
        }
        if reader.u8()? == 1 { Ok(map.tagged()) } else { Err(Status::Malformed) }
    }
}

#[cfg(test)]
mod tests {
    use super::{Moving, ServerPlace, TAG_WIDTH, Tablet, TabletMap, position, tag_of, tagged_positions};
    use crate::body::Body;
    use crate::limits::TABLETS_PER_TABLE_MAX;
    use crate::status::Status;

    fn server(number: u32) -> ServerPlace {
        ServerPlace { number, address: format!("10.0.0.{number}:7000") }
    }

    #[test]
    fn every_hash_has_the_server_of_the_first_tablet_that_reaches_it() {
        let tablets = vec![
            Tablet { last: 9, server: 1 },
            Tablet { last: 99, server: 0 },
            Tablet { last: u64::MAX, server: 1 },
        ];
        let map = TabletMap::new(7, vec![server(4), server(5)], tablets).expect("a map");
        for (hash, index) in [(0, 1), (9, 1), (10, 0), (99, 0), (100, 1), (u64::MAX, 1)] {
            assert_eq!(map.server_of(hash), index, "hash {hash}");
        }
        assert_eq!(TabletMap::decode(&map.encode()), Ok(map.clone()));
        let moving = Moving { migration: 3, first: 10, last: 99, source: 1 };
        let on_the_move = map.clone().with_moving(vec![moving]).expect("a server of the map");
        assert_eq!(TabletMap::decode(&on_the_move.encode()), Ok(on_the_move));
        for none in [Moving { source: 2, ..moving }, Moving { first: 100, ..moving }] {
            assert_eq!(map.clone().with_moving(vec![none]), Err(Status::Malformed));
        }
        assert_eq!(TabletMap::whole(1, server(4)).server_of(77), 0);
    }

    #[test]
    fn keys_of_one_tag_are_within_the_positions_of_a_tag() {
        let tags: [(&[u8], &[u8]); 9] = [
            (b"user", b"user"),
            (b"{user}", b"user"),
            (b"posts:{user}:1", b"user"),
            (b"{user}{other}", b"user"),
            (b"}{user}", b"user"),
            (b"{{user}", b"{user"),
            (b"{}user{other}", b"{}user{other}"),
            (b"{user", b"{user"),
            (b"", b""),
        ];
        // Any function will do.
        let hash = |bytes: &[u8]| {
            bytes
                .iter()
                .fold(1, |hash: u64, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x9e37_79b9_7f4a_7c15))
        };
        let place = |key: &[u8]| position(key, hash(key), true, hash);
        for (key, tag) in tags {
            assert_eq!(tag_of(key), tag, "{key:?}");
            assert_eq!(place(key) / TAG_WIDTH, hash(tag) >> 48, "{key:?}");
            assert_eq!(place(key) % TAG_WIDTH, hash(key) >> 16, "{key:?}");
            for end in 0..key.len() {
                match tagged_positions(&key[..end], hash) {
                    Some((first, last)) => assert!((first..=last).contains(&place(key)), "{key:?}, {end}"),
                    None => assert!(tag_of(&key[..end]).len() == end, "{key:?}, {end}"),
                }
            }
        }
        let of_user = hash(b"user") & !(TAG_WIDTH - 1);
        assert_eq!(tagged_positions(b"posts:{user}", hash), Some((of_user, of_user + TAG_WIDTH - 1)));
        assert_eq!(
            [&b"posts:{user"[..], b"user", b"{}", b""].map(|it| tagged_positions(it, hash)),
            [None; 4]
        );
    }

    #[test]
    fn a_reader_without_tags_refuses_the_map_of_a_tagged_table() {
        let plain = TabletMap::whole(3, server(4));
        let tagged = plain.clone().tagged();
        assert!(tagged.is_tagged() && !plain.is_tagged());
        assert_eq!(TabletMap::decode(&tagged.encode()), Ok(tagged.clone()));
        // All that an earlier release knows of it is that it does not end where it should.
        assert_eq!(tagged.encode().strip_suffix(&[1]), Some(&plain.encode()[..]));
        for wrong in [&[0][..], &[2], &[1, 1]] {
            assert_eq!(TabletMap::decode(&[&plain.encode(), wrong].concat()), Err(Status::Malformed));
        }
    }

    #[test]
    fn maps_with_gaps_strangers_or_no_order_are_refused() {
        let end = Tablet { last: u64::MAX, server: 0 };
        let new = |tablets: &[Tablet]| TabletMap::new(1, vec![server(4)], tablets.to_vec()).map(drop);
        assert_eq!(new(&[]), Err(Status::Malformed));
        assert_eq!(new(&[Tablet { last: 5, server: 0 }]), Err(Status::Malformed));
        assert_eq!(
            new(&[Tablet { last: 5, server: 0 }, Tablet { last: 5, server: 0 }, end]),
            Err(Status::Malformed)
        );
        assert_eq!(new(&[Tablet { server: 1, ..end }]), Err(Status::Malformed));
        let many = (0..TABLETS_PER_TABLE_MAX as u64).map(|last| Tablet { last, server: 0 });
        assert_eq!(new(&many.chain([end]).collect::<Vec<_>>()), Err(Status::LimitExceeded));
        assert_eq!(new(&[end]), Ok(()));
    }
}
