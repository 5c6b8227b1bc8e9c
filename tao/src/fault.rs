//! The refusals of the graph layer: application codes of [`sandstorm::Error::Application`].
//!
//! A caller sees the number; [`describe`] explains it. All other failures (a full store, malformed arguments) are
//! errors of the SDK and keep their own codes.

use sandstorm::Error;

/// `obj_add` named an id that is in use.
pub const OBJECT_EXISTS: Error = Error::Application(1);
/// Data exceeds the limit of an association or an object.
pub const DATA_TOO_LARGE: Error = Error::Application(2);
/// The list has the maximum number of chunks of a directory.
pub const LIST_FULL: Error = Error::Application(3);
/// A record in the graph's table was not written by this layer.
pub const DAMAGED: Error = Error::Application(4);
/// A call requests more ids or entries than allowed.
pub const TOO_MANY: Error = Error::Application(5);
/// An id in the range that `obj_add` assigns itself.
pub const ID_RESERVED: Error = Error::Application(6);

/// Explains an application code of this layer.
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
