//! The functions of the graph: arguments in, reply out, in the layouts of [`crate::message`].
//!
//! The extension exposes them, unit tests call them, and a client runs them itself over plain gets: one body each, for
//! any host behind [`Db`].

use crate::association;
use crate::entry::{Entry, Span};
use crate::fault;
use crate::friends as question;
use crate::key::{self, AssocType, ListId, ObjectId};
use crate::limits::ASSOC_IDS_MAX;
use crate::object::{self, Object, ObjectType};
use sandstorm::{Args, Db, Error, Reader, Reply};

/// Replies with the record of an object, or with nothing if it does not exist.
#[inline]
pub async fn obj_get(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    object_of(&args)?;
    match db.get(args.table(), args.key()).await? {
        Some(record) => reply.write(record),
        None => Ok(()),
    }
}

/// Creates an object and replies with its id.
pub async fn obj_add(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let id = object::add(db, args.table(), object_of(&args)?, &object_in(&args)?).await?;
    reply.u64(id.0)
}

/// Replaces an object and replies whether it existed.
pub async fn obj_update(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let found = object::update(db, args.table(), object_of(&args)?, &object_in(&args)?).await?;
    reply.u8(u8::from(found))
}

/// Deletes an object and replies whether it existed.
pub async fn obj_delete(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let found = object::delete(db, args.table(), object_of(&args)?).await?;
    reply.u8(u8::from(found))
}

/// Replies with the associations to certain objects.
#[inline]
pub async fn assoc_get(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let list = list_of(&args)?;
    let mut reader = args.reader();
    let span = span_in(&mut reader)?;
    let ids = reader.rest();
    if ids.len() > 8 * ASSOC_IDS_MAX {
        return Err(fault::TOO_MANY);
    }
    if !ids.len().is_multiple_of(8) {
        return Err(Error::BadArguments);
    }
    association::get(db, args.table(), list, (ids, span), reply).await
}

/// Replies with a part of a list by position, newest first.
#[inline]
pub async fn assoc_range(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let list = list_of(&args)?;
    let mut reader = args.reader();
    let position = reader.u32()?;
    let limit = reader.u32()?;
    association::range(db, args.table(), list, (position, limit), reply).await
}

/// Replies with the newest associations in a span of time.
#[inline]
pub async fn assoc_time_range(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let list = list_of(&args)?;
    let mut reader = args.reader();
    let span = span_in(&mut reader)?;
    let limit = reader.u32()?;
    association::time_range(db, args.table(), list, (span, limit), reply).await
}

/// Replies with the number of a list's associations.
#[inline]
pub async fn assoc_count(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let count = association::count(db, args.table(), list_of(&args)?).await?;
    reply.u64(count)
}

/// Adds or replaces an association, and its inverse; replies whether it is new.
pub async fn assoc_add(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let list = list_of(&args)?;
    let mut reader = args.reader();
    let id2 = ObjectId(reader.u64()?);
    let time = reader.u64()?;
    let entry = Entry { time, id2, data: reader.rest() };
    let new = association::add(db, args.table(), list, &entry).await?;
    reply.u8(u8::from(new))
}

/// Deletes an association, and its inverse; replies whether it existed.
pub async fn assoc_delete(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let list = list_of(&args)?;
    let id2 = ObjectId(args.reader().u64()?);
    let existed = association::delete(db, args.table(), list, id2).await?;
    reply.u8(u8::from(existed))
}

/// Declares an association type and its inverse.
pub async fn assoc_declare(db: &Db<'_>, args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    let Some(atype) = key::parse_assoc_type(args.key()) else { return Err(Error::BadArguments) };
    let inverse = AssocType(args.reader().u32()?);
    association::declare(db, args.table(), atype, inverse).await
}

/// Replies with the newest ends of a list, and with their objects on request.
pub async fn friends(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let list = list_of(&args)?;
    let mut reader = args.reader();
    let limit = reader.u32()?;
    let objects = reader.u8()? == 1;
    question::friends(db, args.table(), list, (limit, objects), reply).await
}

/// Replies with the friends of friends on most paths, and with their objects on request.
pub async fn friends_of_friends(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let list = list_of(&args)?;
    let mut reader = args.reader();
    let (limit, visits) = (reader.u32()?, reader.u32()?);
    let objects = reader.u8()? == 1;
    question::friends_of_friends(db, args.table(), list, (limit, visits, objects), reply).await
}

/// Runs the function with this name, for hosts other than the server: a client, a test.
///
/// # Errors
/// [`Error::NotFound`] for an unknown name, otherwise those of the function.
pub async fn by_name(name: &str, db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    match name {
        "obj_get" => obj_get(db, args, reply).await,
        "obj_add" => obj_add(db, args, reply).await,
        "obj_update" => obj_update(db, args, reply).await,
        "obj_delete" => obj_delete(db, args, reply).await,
        "assoc_get" => assoc_get(db, args, reply).await,
        "assoc_range" => assoc_range(db, args, reply).await,
        "assoc_time_range" => assoc_time_range(db, args, reply).await,
        "assoc_count" => assoc_count(db, args, reply).await,
        "assoc_add" => assoc_add(db, args, reply).await,
        "assoc_delete" => assoc_delete(db, args, reply).await,
        "assoc_declare" => assoc_declare(db, args, reply).await,
        "friends" => friends(db, args, reply).await,
        "friends_of_friends" => friends_of_friends(db, args, reply).await,
        _ => Err(Error::NotFound),
    }
}

#[inline]
fn list_of(args: &Args<'_>) -> Result<ListId, Error> {
    key::parse_head(args.key()).ok_or(Error::BadArguments)
}

#[inline]
fn object_of(args: &Args<'_>) -> Result<ObjectId, Error> {
    key::parse_object(args.key()).ok_or(Error::BadArguments)
}

/// Returns the object in the arguments.
fn object_in<'a>(args: &Args<'a>) -> Result<Object<'a>, Error> {
    let mut reader = args.reader();
    let otype = ObjectType(reader.u32()?);
    Ok(Object { otype, data: reader.rest() })
}

#[inline]
fn span_in(reader: &mut Reader<'_>) -> Result<Span, Error> {
    Ok(Span { high: reader.u64()?, low: reader.u64()? })
}
