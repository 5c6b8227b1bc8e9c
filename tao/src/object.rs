//! Objects: one record each.
//!
//! ```text
//! object = otype u32 | data
//! ```
//! Associations of a deleted object stay, as in the ATC'13 paper (section 3.1): before an application deletes an
//! object, it deletes the associations to it or accepts ends that no longer exist.

use crate::fault;
use crate::key::{self, ObjectId};
use crate::limits::OBJECT_DATA_BYTES_MAX;
use alloc::vec::Vec;
use sandstorm::{Db, Error, Table};

/// The first id assigned by [`add`]; an application chooses its own ids below.
pub const ID_ASSIGNED_FIRST: u64 = 1 << 63;

/// The kind of an object; the application defines the numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectType(pub u32);

/// An object, parsed in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Object<'a> {
    /// Its kind.
    pub otype: ObjectType,
    /// The application's bytes.
    pub data: &'a [u8],
}

impl<'a> Object<'a> {
    /// Parses the record of an object; `None` if it is invalid.
    #[inline]
    pub fn parse(record: &'a [u8]) -> Option<Object<'a>> {
        let (otype, data) = record.split_first_chunk::<4>()?;
        Some(Object { otype: ObjectType(u32::from_le_bytes(*otype)), data })
    }

    /// Encodes the record.
    pub fn encode(&self) -> Vec<u8> {
        let mut record = Vec::with_capacity(4 + self.data.len());
        record.extend_from_slice(&self.otype.0.to_le_bytes());
        record.extend_from_slice(self.data);
        record
    }
}

/// Creates an object. [`ObjectId::NEW`] asks for a new id, from [`ID_ASSIGNED_FIRST`] on.
///
/// # Errors
/// [`fault::OBJECT_EXISTS`], [`fault::ID_RESERVED`], [`fault::DATA_TOO_LARGE`], and those of the store.
pub async fn add(db: &Db<'_>, table: Table, id: ObjectId, object: &Object<'_>) -> Result<ObjectId, Error> {
    check_data(object)?;
    let id = match id {
        ObjectId::NEW => {
            ObjectId(ID_ASSIGNED_FIRST | db.increment(table, &key::COUNTER_KEY, 1).await? as u64)
        }
        ObjectId(ID_ASSIGNED_FIRST..) => return Err(fault::ID_RESERVED),
        _ => id,
    };
    let key = key::object(id);
    if db.get(table, &key).await?.is_some() {
        return Err(fault::OBJECT_EXISTS);
    }
    db.put(table, &key, &object.encode()).await?;
    Ok(id)
}

/// Replaces the kind and the data of an object; returns whether it existed.
///
/// # Errors
/// [`fault::DATA_TOO_LARGE`], and those of the store.
pub async fn update(db: &Db<'_>, table: Table, id: ObjectId, object: &Object<'_>) -> Result<bool, Error> {
    check_data(object)?;
    let key = key::object(id);
    if db.get(table, &key).await?.is_none() {
        return Ok(false);
    }
    db.put(table, &key, &object.encode()).await?;
    Ok(true)
}

/// Deletes an object; returns whether it existed.
///
/// # Errors
/// Those of the store.
pub async fn delete(db: &Db<'_>, table: Table, id: ObjectId) -> Result<bool, Error> {
    let key = key::object(id);
    if db.get(table, &key).await?.is_none() {
        return Ok(false);
    }
    db.delete(table, &key).await?;
    Ok(true)
}

fn check_data(object: &Object<'_>) -> Result<(), Error> {
    if object.data.len() > OBJECT_DATA_BYTES_MAX { Err(fault::DATA_TOO_LARGE) } else { Ok(()) }
}
