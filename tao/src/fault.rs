//! What the graph layer refuses: application codes of [`sandstorm::Error::Application`].
//!
//! A caller sees the number; [`describe`] says what it means. Everything else that can go wrong (the
//! store is full, the arguments are malformed) is an error of the SDK and keeps its own code.

use sandstorm::Error;

/// `obj_add` named an id that is in use.
pub const OBJECT_EXISTS: Error = Error::Application(1);
/// Data is beyond the limit of an association or an object.
pub const DATA_TOO_LARGE: Error = Error::Application(2);
/// The list has as many chunks as its directory may hold.
pub const LIST_FULL: Error = Error::Application(3);
/// A record in the graph's table is not what this layer writes.
pub const DAMAGED: Error = Error::Application(4);
/// A call asks for more ids or entries than one call may.
pub const TOO_MANY: Error = Error::Application(5);
/// An id in the range that `obj_add` hands out itself.
pub const ID_RESERVED: Error = Error::Application(6);

/// What an application code of this layer means, for people.
pub fn describe(code: u32) -> Option<&'static str> {
    Some(match code {
        1 => "an object with this id exists; use obj_update to change it",
        2 => "the data is too large (an association takes 4,096 bytes, an object 262,144)",
        3 => "the list is full",
        4 => "a record in this table was not written by the graph layer; keep a graph in a table of its own",
        5 => "the call asks for too many ids (assoc_get takes 1,024)",
        6 => "ids from 2^63 on are handed out by obj_add itself (ask with id 2^64 - 1)",
        _ => return None,
    })
}
