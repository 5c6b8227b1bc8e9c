//! TAO as an extension: a graph of objects and associations, read and written beside the data.
//!
//! The functions live in the crate `tao`, which says byte by byte what they take and reply
//! (`tao::message`); here they get the names under which callers invoke them.
#![no_std]
#![deny(unused_must_use)]

use sandstorm::{Args, Db, Error, Reply};
use tao::function;

sandstorm::extension! {
    read obj_get,
    read assoc_get,
    read assoc_range,
    read assoc_time_range,
    read assoc_count,
    read friends,
    read friends_of_friends,
    write obj_add,
    write obj_update,
    write obj_delete,
    write assoc_add,
    write assoc_delete,
    write assoc_declare,
}

/// The record of an object, or nothing.
/// Arguments: none; the key is `o`, id u64
async fn obj_get(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    function::obj_get(db, args, reply).await
}

/// The associations from an object to certain others.
/// Arguments: newest time u64, oldest time u64, ids u64; the key is `l`, id u64, type u32
async fn assoc_get(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    function::assoc_get(db, args, reply).await
}

/// A part of a list by position, newest first.
/// Arguments: position u32, limit u32; the key is `l`, id u64, type u32
async fn assoc_range(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    function::assoc_range(db, args, reply).await
}

/// The newest associations of a span of time.
/// Arguments: newest time u64, oldest time u64, limit u32; the key is `l`, id u64, type u32
async fn assoc_time_range(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    function::assoc_time_range(db, args, reply).await
}

/// How many associations a list has.
/// Arguments: none; the key is `l`, id u64, type u32
async fn assoc_count(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    function::assoc_count(db, args, reply).await
}

/// The newest ends of a list, with their objects if asked for.
/// Arguments: limit u32, objects u8; the key is `l`, id u64, type u32
async fn friends(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    function::friends(db, args, reply).await
}

/// The friends of friends that most paths lead to.
/// Arguments: limit u32, visits u32, objects u8; the key is `l`, id u64, type u32
async fn friends_of_friends(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    function::friends_of_friends(db, args, reply).await
}

/// Creates an object and replies with its id.
/// Arguments: kind u32, data; the key is `o`, id u64, all ones for a new one
async fn obj_add(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    function::obj_add(db, args, reply).await
}

/// Replaces the kind and data of an object.
/// Arguments: kind u32, data; the key is `o`, id u64
async fn obj_update(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    function::obj_update(db, args, reply).await
}

/// Deletes an object.
/// Arguments: none; the key is `o`, id u64
async fn obj_delete(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    function::obj_delete(db, args, reply).await
}

/// Adds or replaces an association, and its inverse if the type has one.
/// Arguments: other id u64, time u64, data; the key is `l`, id u64, type u32
async fn assoc_add(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    function::assoc_add(db, args, reply).await
}

/// Deletes an association, and its inverse if the type has one.
/// Arguments: other id u64; the key is `l`, id u64, type u32
async fn assoc_delete(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    function::assoc_delete(db, args, reply).await
}

/// Declares an association type and its inverse.
/// Arguments: inverse type u32; the key is `t`, type u32
async fn assoc_declare(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    function::assoc_declare(db, args, reply).await
}

#[cfg(test)]
mod tests {
    extern crate alloc;

    use alloc::vec::Vec;

    use sandstorm::testing::MemoryDb;
    use tao::entry::Run;
    use tao::key::{AssocType, ListId, ObjectId};
    use tao::message::{Call, decode_count};

    fn encode(call: &Call<'_>) -> (Vec<u8>, Vec<u8>) {
        let (mut key, mut arguments) = (Vec::new(), Vec::new());
        call.encode(&mut key, &mut arguments);
        (key, arguments)
    }

    #[test]
    fn an_association_is_written_both_ways_and_read_back() {
        let db = MemoryDb::new();
        let table = db.table("graph");
        let friend = AssocType(1);
        let list = |id: u64| ListId { id1: ObjectId(id), atype: friend };
        let (key, arguments) = encode(&Call::AssocDeclare { atype: friend, inverse: friend });
        db.call(super::assoc_declare, table, &key, &arguments).unwrap();
        let call = Call::AssocAdd { list: list(1), id2: ObjectId(2), time: 9, data: b"since school" };
        let (key, arguments) = encode(&call);
        assert_eq!(db.call(super::assoc_add, table, &key, &arguments).unwrap(), [1]);
        let (key, arguments) = encode(&Call::AssocRange { list: list(2), position: 0, limit: 5 });
        let reply = db.call_read(super::assoc_range, table, &key, &arguments).unwrap();
        let entry = Run::new(&reply).take_first().unwrap();
        assert_eq!((entry.id2, entry.time, entry.data), (ObjectId(1), 9, &b"since school"[..]));
        let (key, arguments) = encode(&Call::AssocCount(list(1)));
        let reply = db.call_read(super::assoc_count, table, &key, &arguments).unwrap();
        assert_eq!(decode_count(&reply), Some(1));
    }
}
