//! The arguments and replies of the graph functions, byte by byte, little-endian.
//!
//! The key of an invocation is the key of the record that it reads first, so it is routed to where that
//! record lives.
//!
//! | Function | Key | Arguments | Reply |
//! |---|---|---|---|
//! | obj_get | object | | the record (see [`crate::object`]), or nothing |
//! | obj_add | object, id 2^64 - 1 for a new one | otype u32, data | id u64 |
//! | obj_update | object | otype u32, data | found u8 |
//! | obj_delete | object | | found u8 |
//! | assoc_get | head | high u64, low u64, id2 u64 ... | entries (see [`crate::entry`]) |
//! | assoc_range | head | position u32, limit u32 | entries |
//! | assoc_time_range | head | high u64, low u64, limit u32 | entries |
//! | assoc_count | head | | count u64 |
//! | assoc_add | head | id2 u64, time u64, data | new u8 |
//! | assoc_delete | head | id2 u64 | found u8 |
//! | assoc_declare | type | inverse type u32 | |
//! | friends | head | limit u32, objects u8 | count u32, id2 u64 ..., objects |
//! | friends_of_friends | head | limit u32, visits u32, objects u8 | see [`FriendsOfFriends`] |
//!
//! Objects at the end of a reply are there when the caller asked for them (1): for each id its bytes u32
//! and its record, or `u32::MAX` when there is no such object.
//! A reply of entries needs no decoder: it is a [`crate::entry::Run`].

use crate::entry::Span;
use crate::key::{self, AssocType, ListId, ObjectId};
use crate::mix::Question;
use crate::object::Object;
use alloc::vec::Vec;

/// A call of a graph function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call<'a> {
    /// Reads an object.
    ObjGet(ObjectId),
    /// Creates an object; [`ObjectId::NEW`] asks for a new id.
    ObjAdd(ObjectId, Object<'a>),
    /// Replaces an object.
    ObjUpdate(ObjectId, Object<'a>),
    /// Deletes an object.
    ObjDelete(ObjectId),
    /// Reads the associations to certain objects.
    AssocGet {
        /// The list.
        list: ListId,
        /// The other ends.
        ids: &'a [ObjectId],
        /// The span of time.
        span: Span,
    },
    /// Reads a part of a list by position.
    AssocRange {
        /// The list.
        list: ListId,
        /// The first position, counted from the newest.
        position: u32,
        /// The number of associations.
        limit: u32,
    },
    /// Reads the newest associations in a span of time.
    AssocTimeRange {
        /// The list.
        list: ListId,
        /// The span.
        span: Span,
        /// The number of associations.
        limit: u32,
    },
    /// Counts a list.
    AssocCount(ListId),
    /// Adds or replaces an association.
    AssocAdd {
        /// The list.
        list: ListId,
        /// The other end.
        id2: ObjectId,
        /// The time.
        time: u64,
        /// The application's bytes.
        data: &'a [u8],
    },
    /// Deletes an association.
    AssocDelete {
        /// The list.
        list: ListId,
        /// The other end.
        id2: ObjectId,
    },
    /// Declares a type and its inverse.
    AssocDeclare {
        /// The type.
        atype: AssocType,
        /// Its inverse; the type itself if it is symmetric.
        inverse: AssocType,
    },
    /// Reads the newest ends of a list, with their objects on request.
    Friends {
        /// The list.
        list: ListId,
        /// The number of ends.
        limit: u32,
        /// Whether to include their objects.
        objects: bool,
    },
    /// Reads the ends of the ends of a list, those on most paths first.
    FriendsOfFriends {
        /// The list.
        list: ListId,
        /// The number of ends.
        limit: u32,
        /// The maximum number of visited edges; 0 means the limit of the function.
        visits: u32,
        /// Whether to include their objects.
        objects: bool,
    },
}

impl<'a> Call<'a> {
    /// Returns the name of the function.
    pub fn function(&self) -> &'static str {
        match self {
            Call::ObjGet(_) => "obj_get",
            Call::ObjAdd(..) => "obj_add",
            Call::ObjUpdate(..) => "obj_update",
            Call::ObjDelete(_) => "obj_delete",
            Call::AssocGet { .. } => "assoc_get",
            Call::AssocRange { .. } => "assoc_range",
            Call::AssocTimeRange { .. } => "assoc_time_range",
            Call::AssocCount(_) => "assoc_count",
            Call::AssocAdd { .. } => "assoc_add",
            Call::AssocDelete { .. } => "assoc_delete",
            Call::AssocDeclare { .. } => "assoc_declare",
            Call::Friends { .. } => "friends",
            Call::FriendsOfFriends { .. } => "friends_of_friends",
        }
    }

    /// Returns whether the function writes.
    pub fn is_write(&self) -> bool {
        matches!(
            self,
            Call::ObjAdd(..)
                | Call::ObjUpdate(..)
                | Call::ObjDelete(_)
                | Call::AssocAdd { .. }
                | Call::AssocDelete { .. }
                | Call::AssocDeclare { .. }
        )
    }

    /// Returns the call for a question of the mix.
    #[inline]
    pub fn of_question(question: &'a Question) -> Call<'a> {
        match *question {
            Question::AssocGet { list, ref id2 } => {
                Call::AssocGet { list, ids: core::slice::from_ref(id2), span: Span::ALL }
            }
            Question::AssocRange { list, position, limit } => Call::AssocRange { list, position, limit },
            Question::AssocCount { list } => Call::AssocCount(list),
            Question::ObjGet { id } => Call::ObjGet(id),
            Question::AssocTimeRange { list, high, low, limit } => {
                Call::AssocTimeRange { list, span: Span { high, low }, limit }
            }
        }
    }

    /// Writes the key of the invocation and its arguments into two buffers, which are cleared first.
    pub fn encode(&self, key: &mut Vec<u8>, arguments: &mut Vec<u8>) {
        key.clear();
        arguments.clear();
        match *self {
            Call::ObjGet(id) | Call::ObjDelete(id) | Call::ObjAdd(id, _) | Call::ObjUpdate(id, _) => {
                key.extend_from_slice(&key::object(id))
            }
            Call::AssocGet { list, .. }
            | Call::AssocRange { list, .. }
            | Call::AssocTimeRange { list, .. }
            | Call::AssocCount(list)
            | Call::AssocAdd { list, .. }
            | Call::AssocDelete { list, .. }
            | Call::Friends { list, .. }
            | Call::FriendsOfFriends { list, .. } => key.extend_from_slice(&key::head(list)),
            Call::AssocDeclare { atype, .. } => key.extend_from_slice(&key::assoc_type(atype)),
        }
        self.append_arguments(arguments);
    }

    fn append_arguments(&self, out: &mut Vec<u8>) {
        match *self {
            Call::ObjGet(_) | Call::ObjDelete(_) | Call::AssocCount(_) => {}
            Call::ObjAdd(_, object) | Call::ObjUpdate(_, object) => {
                out.extend_from_slice(&object.otype.0.to_le_bytes());
                out.extend_from_slice(object.data);
            }
            Call::AssocGet { ids, span, .. } => {
                append_span(out, span);
                ids.iter().for_each(|id| out.extend_from_slice(&id.0.to_le_bytes()));
            }
            Call::AssocRange { position, limit, .. } => {
                out.extend_from_slice(&position.to_le_bytes());
                out.extend_from_slice(&limit.to_le_bytes());
            }
            Call::AssocTimeRange { span, limit, .. } => {
                append_span(out, span);
                out.extend_from_slice(&limit.to_le_bytes());
            }
            Call::AssocAdd { id2, time, data, .. } => {
                out.extend_from_slice(&id2.0.to_le_bytes());
                out.extend_from_slice(&time.to_le_bytes());
                out.extend_from_slice(data);
            }
            Call::AssocDelete { id2, .. } => out.extend_from_slice(&id2.0.to_le_bytes()),
            Call::AssocDeclare { inverse, .. } => out.extend_from_slice(&inverse.0.to_le_bytes()),
            Call::Friends { limit, objects, .. } => {
                out.extend_from_slice(&limit.to_le_bytes());
                out.push(u8::from(objects));
            }
            Call::FriendsOfFriends { limit, visits, objects, .. } => {
                out.extend_from_slice(&limit.to_le_bytes());
                out.extend_from_slice(&visits.to_le_bytes());
                out.push(u8::from(objects));
            }
        }
    }
}

fn append_span(out: &mut Vec<u8>, span: Span) {
    out.extend_from_slice(&span.high.to_le_bytes());
    out.extend_from_slice(&span.low.to_le_bytes());
}

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
