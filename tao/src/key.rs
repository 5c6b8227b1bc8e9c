//! The keys of a graph: fixed layouts, little-endian, one leading byte for the kind.
//!
//! | Kind | Key after the kind byte | Record |
//! |---|---|---|
//! | `o` | id u64 | an object, see [`crate::object`] |
//! | `l` | id1 u64, type u32 | head of a list, see [`crate::head`] |
//! | `c` | id1 u64, type u32, number u32 | a chunk of a long list: entries, see [`crate::entry`] |
//! | `e` | id1 u64, type u32, id2 u64 | one edge of a long list: time u64, data |
//! | `t` | type u32 | an association type: its inverse type u32 |
//! | `n` | nothing | how many ids were handed out, i64 |

/// The identity of an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId(pub u64);

impl ObjectId {
    /// No object: asks `obj_add` for a new id.
    pub const NEW: ObjectId = ObjectId(u64::MAX);
}

/// The kind of an association; the application defines the numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AssocType(pub u32);

/// A list: all associations of one type that leave one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListId {
    /// The object that the associations leave.
    pub id1: ObjectId,
    /// The type of the associations.
    pub atype: AssocType,
}

/// Bytes of the key of an object.
pub const OBJECT_KEY_BYTES: usize = 9;
/// Bytes of the key of a head.
pub const HEAD_KEY_BYTES: usize = 13;
/// Bytes of the key of a chunk.
pub const CHUNK_KEY_BYTES: usize = 17;
/// Bytes of the key of an edge.
pub const EDGE_KEY_BYTES: usize = 21;
/// Bytes of the key of an association type.
pub const TYPE_KEY_BYTES: usize = 5;
/// Key of the counter of ids.
pub const COUNTER_KEY: [u8; 1] = *b"n";

/// Returns the key of an object.
#[inline]
pub fn object(id: ObjectId) -> [u8; OBJECT_KEY_BYTES] {
    let mut key = [b'o'; OBJECT_KEY_BYTES];
    key[1..].copy_from_slice(&id.0.to_le_bytes());
    key
}

/// Returns the key of the head of a list.
#[inline]
pub fn head(list: ListId) -> [u8; HEAD_KEY_BYTES] {
    let mut key = [b'l'; HEAD_KEY_BYTES];
    key[1..9].copy_from_slice(&list.id1.0.to_le_bytes());
    key[9..].copy_from_slice(&list.atype.0.to_le_bytes());
    key
}

/// Returns the key of a chunk of a list.
#[inline]
pub fn chunk(list: ListId, number: u32) -> [u8; CHUNK_KEY_BYTES] {
    let mut key = [b'c'; CHUNK_KEY_BYTES];
    key[1..9].copy_from_slice(&list.id1.0.to_le_bytes());
    key[9..13].copy_from_slice(&list.atype.0.to_le_bytes());
    key[13..].copy_from_slice(&number.to_le_bytes());
    key
}

/// Returns the key of one edge of a long list.
#[inline]
pub fn edge(list: ListId, id2: ObjectId) -> [u8; EDGE_KEY_BYTES] {
    let mut key = [b'e'; EDGE_KEY_BYTES];
    key[1..9].copy_from_slice(&list.id1.0.to_le_bytes());
    key[9..13].copy_from_slice(&list.atype.0.to_le_bytes());
    key[13..].copy_from_slice(&id2.0.to_le_bytes());
    key
}

/// Returns the key of an association type.
#[inline]
pub fn assoc_type(atype: AssocType) -> [u8; TYPE_KEY_BYTES] {
    let mut key = [b't'; TYPE_KEY_BYTES];
    key[1..].copy_from_slice(&atype.0.to_le_bytes());
    key
}

/// Returns the list named by a head key.
#[inline]
pub fn parse_head(key: &[u8]) -> Option<ListId> {
    let (id1, rest) = key.strip_prefix(b"l")?.split_first_chunk::<8>()?;
    let atype: [u8; 4] = rest.try_into().ok()?;
    Some(ListId { id1: ObjectId(u64::from_le_bytes(*id1)), atype: AssocType(u32::from_le_bytes(atype)) })
}

/// Returns the object named by an object key.
#[inline]
pub fn parse_object(key: &[u8]) -> Option<ObjectId> {
    let id: [u8; 8] = key.strip_prefix(b"o")?.try_into().ok()?;
    Some(ObjectId(u64::from_le_bytes(id)))
}

/// Returns the association type named by a type key.
#[inline]
pub fn parse_assoc_type(key: &[u8]) -> Option<AssocType> {
    let atype: [u8; 4] = key.strip_prefix(b"t")?.try_into().ok()?;
    Some(AssocType(u32::from_le_bytes(atype)))
}
