//! Archives as a client reads them: the records of a piece, and an extension's source from its pieces.
//!
//! What a server sends is checked like everything from outside: a piece that ends within a record is no piece.

use control::{AdminRequest, ArchiveSource};
use xxhash_rust::xxh3::xxh3_64;

use crate::Error;

/// Bytes of a record before an object's length: hash, table, word.
const KEY_RECORD_BYTES: usize = 28;
/// Marks the end of a key in a record's word.
const ENDS: u64 = 1 << 63;
/// Most bytes of an extension's source.
const SOURCE_BYTES_MAX: u64 = wire::limits::INSTALL_BODY_BYTES_MAX as u64;

/// Files of an extension's source: paths and bytes.
pub type ArchivedSource = Vec<(String, Vec<u8>)>;

/// A version of a key in the log, or its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArchivedKey {
    /// Keyed hash of table and key: equal for all versions of a key within an archive, and for no other key.
    pub hash: u128,
    /// The id of its table.
    pub table: u32,
    /// The version; of an end the highest one that ended.
    pub version: u64,
    /// Whether the key ends here.
    pub ends: bool,
}

/// A version of an object in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArchivedObject<'a> {
    /// Its key.
    pub key: ArchivedKey,
    /// The entry, as [`crate::Client::archive_restore`] takes it.
    pub entry: &'a [u8],
}

/// Returns the key of an entry. It is behind a header of 20 bytes, which have its length at 16.
pub(crate) fn key_of(entry: &[u8]) -> Result<&[u8], Error> {
    let key_bytes = entry.get(16..18).map(|bytes| usize::from(u16::from_le_bytes([bytes[0], bytes[1]])));
    let key = key_bytes.and_then(|length| entry.get(20..20 + length));
    key.ok_or(Error::Unintelligible { expected: "an object of an archive" })
}

/// Returns the hash of a key: the one by which tablets divide a table (XXH3, 64 bits).
#[must_use]
pub fn key_hash(key: &[u8]) -> u64 {
    xxh3_64(key)
}

fn unintelligible() -> Error {
    Error::Unintelligible { expected: "a piece of an archive" }
}

/// Takes the key of the first record off the bytes.
fn take_key(records: &mut &[u8]) -> Result<ArchivedKey, Error> {
    let (record, rest) = records.split_first_chunk::<KEY_RECORD_BYTES>().ok_or_else(unintelligible)?;
    *records = rest;
    let [hash @ .., _, _, _, _, _, _, _, _, _, _, _, _] = *record;
    let [.., t0, t1, t2, t3, w0, w1, w2, w3, w4, w5, w6, w7] = *record;
    let word = u64::from_le_bytes([w0, w1, w2, w3, w4, w5, w6, w7]);
    Ok(ArchivedKey {
        hash: u128::from_le_bytes(hash),
        table: u32::from_le_bytes([t0, t1, t2, t3]),
        version: word & !ENDS,
        ends: word & ENDS != 0,
    })
}

/// Returns the records of a piece of keys.
///
/// # Errors
/// [`Error::Unintelligible`] if it ends within a record.
pub fn archived_keys(mut records: &[u8]) -> Result<Vec<ArchivedKey>, Error> {
    let mut keys = Vec::with_capacity(records.len() / KEY_RECORD_BYTES);
    while !records.is_empty() {
        keys.push(take_key(&mut records)?);
    }
    Ok(keys)
}

/// Returns the records of a piece of objects.
///
/// # Errors
/// As [`archived_keys`].
pub fn archived_objects(mut records: &[u8]) -> Result<Vec<ArchivedObject<'_>>, Error> {
    let mut objects = Vec::new();
    while !records.is_empty() {
        let key = take_key(&mut records)?;
        let (length, rest) = records.split_first_chunk().ok_or_else(unintelligible)?;
        let length = u32::from_le_bytes(*length) as usize;
        let (entry, rest) = rest.split_at_checked(length).ok_or_else(unintelligible)?;
        objects.push(ArchivedObject { key, entry });
        records = rest;
    }
    Ok(objects)
}

/// Reads the source of an extension's version, piece by piece.
pub(crate) fn source(
    mut call: impl FnMut(&AdminRequest<'_>) -> Result<ArchiveSource, Error>,
    (id, extension, version): (u64, &str, u32),
) -> Result<ArchivedSource, Error> {
    let no_source = || Error::Unintelligible { expected: "the source of an extension" };
    let mut package = Vec::new();
    loop {
        let from = package.len() as u64;
        let ArchiveSource { bytes, all_bytes } =
            call(&AdminRequest::ArchiveSource { id, extension, version, from })?;
        if bytes.0.is_empty() || from + bytes.0.len() as u64 > all_bytes || all_bytes > SOURCE_BYTES_MAX {
            return Err(no_source());
        }
        package.extend(bytes.0);
        if package.len() as u64 == all_bytes {
            break;
        }
    }
    match AdminRequest::decode(&package) {
        Ok(AdminRequest::ExtensionInstall { files, .. }) => {
            Ok(files.iter().map(|file| (file.path.to_owned(), file.bytes.to_vec())).collect())
        }
        _ => Err(no_source()),
    }
}

#[cfg(test)]
mod tests {
    use super::{ArchivedKey, archived_keys, archived_objects};

    #[test]
    fn records_are_read_as_they_were_written_and_no_part_of_one_is() {
        let mut records = Vec::new();
        records.extend(7u128.to_le_bytes());
        records.extend(3u32.to_le_bytes());
        records.extend((5u64 | 1 << 63).to_le_bytes());
        let key = ArchivedKey { hash: 7, table: 3, version: 5, ends: true };
        assert_eq!(archived_keys(&records).unwrap(), [key]);
        assert!((1..records.len()).all(|cut| archived_keys(&records[..cut]).is_err()));
        records.extend(2u32.to_le_bytes());
        records.extend(*b"ab");
        let objects = archived_objects(&records).unwrap();
        assert_eq!((objects[0].key, objects[0].entry), (key, &b"ab"[..]));
        assert!((1..records.len()).all(|cut| archived_objects(&records[..cut]).is_err()));
    }
}
