//! The encoding of calls of the graph functions.

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
