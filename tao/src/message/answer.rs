//! Decoders for the replies of the graph functions.
//!
//! A reply of entries needs no decoder: it is a [`crate::entry::Run`].

use crate::key::ObjectId;
use alloc::vec::Vec;

/// The length that marks an object that does not exist.
pub const NO_OBJECT: u32 = u32::MAX;

/// The reply of `friends`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Friends {
    /// The ends of the list, newest first.
    pub ids: Vec<ObjectId>,
    /// The record of each, on request.
    pub objects: Vec<Option<Vec<u8>>>,
}

/// The reply of `friends_of_friends`.
///
/// ```text
/// distinct u32 | visited u32 | complete u8 | zero 3 | count u32 | (id u64, paths u32) ... | objects
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FriendsOfFriends {
    /// The number of different objects, without the asking object and its friends.
    pub distinct: u32,
    /// Edges visited.
    pub visited: u32,
    /// Whether every edge was visited.
    pub complete: bool,
    /// The objects on most paths, with the number of paths; ties ordered by id.
    pub ranked: Vec<(ObjectId, u32)>,
    /// The record of each, on request.
    pub objects: Vec<Option<Vec<u8>>>,
}

impl Friends {
    /// Decodes a reply; `None` if it is invalid.
    pub fn decode(reply: &[u8]) -> Option<Friends> {
        let (count, mut rest) = take_u32(reply)?;
        let mut ids = Vec::new();
        for _ in 0..count {
            let (id, behind) = rest.split_first_chunk::<8>()?;
            ids.push(ObjectId(u64::from_le_bytes(*id)));
            rest = behind;
        }
        Some(Friends { objects: decode_objects(rest)?, ids })
    }
}

impl FriendsOfFriends {
    /// Decodes a reply; `None` if it is invalid.
    pub fn decode(reply: &[u8]) -> Option<FriendsOfFriends> {
        let (distinct, rest) = take_u32(reply)?;
        let (visited, rest) = take_u32(rest)?;
        let (complete, rest) = take_u32(rest)?;
        let (count, mut rest) = take_u32(rest)?;
        let mut ranked = Vec::new();
        for _ in 0..count {
            let (id, behind) = rest.split_first_chunk::<8>()?;
            let (paths, behind) = take_u32(behind)?;
            ranked.push((ObjectId(u64::from_le_bytes(*id)), paths));
            rest = behind;
        }
        let objects = decode_objects(rest)?;
        Some(FriendsOfFriends { distinct, visited, complete: complete == 1, ranked, objects })
    }
}

/// Decodes the reply of `assoc_count`, and the id in the reply of `obj_add`.
pub fn decode_count(reply: &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(reply.try_into().ok()?))
}

/// Decodes the reply of a write that says found or new.
pub fn decode_flag(reply: &[u8]) -> Option<bool> {
    match reply {
        [0] => Some(false),
        [1] => Some(true),
        _ => None,
    }
}

fn decode_objects(mut rest: &[u8]) -> Option<Vec<Option<Vec<u8>>>> {
    let mut objects = Vec::new();
    while !rest.is_empty() {
        let (bytes, behind) = take_u32(rest)?;
        if bytes == NO_OBJECT {
            objects.push(None);
            rest = behind;
            continue;
        }
        objects.push(Some(behind.get(..bytes as usize)?.to_vec()));
        rest = &behind[bytes as usize..];
    }
    Some(objects)
}

fn take_u32(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (number, rest) = bytes.split_first_chunk::<4>()?;
    Some((u32::from_le_bytes(*number), rest))
}
