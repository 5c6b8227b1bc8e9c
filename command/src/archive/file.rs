//! The files of an archive: objects, or the source of a version of an extension, compressed with zstd.
//!
//! The content of a file of objects is 8 bytes of magic, then for each object the number of its table (u32), the length
//! of its entry (u32), and the entry as the server's log has it; of a file with a source 8 bytes of magic, then for each
//! of its files the path and the bytes, each behind its length (u32). Numbers are little-endian. A file is read whole:
//! its checksum is compared before it is decompressed, and it is decompressed to the stated length at most.

use super::damaged;
use super::manifest::{FILE_BYTES_MAX, File};
use super::place::Place;
use crate::failure::{Failure, FailureKind};
use client::ArchivedSource;
use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};

const OBJECTS: &[u8; 8] = b"SPLNARC1";
const SOURCE: &[u8; 8] = b"SPLNSRC1";
/// The level at which zstd compresses faster than networks and disks write.
const LEVEL: i32 = 3;

/// Returns the beginning of a file of objects.
pub fn begin() -> Vec<u8> {
    OBJECTS.to_vec()
}

/// Appends an object.
pub fn append(content: &mut Vec<u8>, table: u32, entry: &[u8]) {
    content.extend(table.to_le_bytes());
    content.extend((entry.len() as u32).to_le_bytes());
    content.extend(entry);
}

/// Returns the content of a file with a source.
pub fn of_source(source: &ArchivedSource) -> Vec<u8> {
    let mut content = SOURCE.to_vec();
    for part in source.iter().flat_map(|(path, bytes)| [path.as_bytes(), bytes]) {
        content.extend((part.len() as u32).to_le_bytes());
        content.extend(part);
    }
    content
}

/// Returns where the file with this checksum lies.
fn path(tenant: &str, checksum: &str) -> String {
    format!("{tenant}/files/{checksum}")
}

/// Compresses and stores a file, unless the place has it. Returns it, and whether it was sent.
pub fn write(place: &Place, tenant: &str, content: &[u8]) -> Result<(File, bool), Failure> {
    let bytes = zstd::bulk::compress(content, LEVEL);
    let bytes = bytes.map_err(|error| {
        Failure::new(FailureKind::Local, format!("cannot compress a file of the archive: {error}"))
    })?;
    let checksum = HEXLOWER.encode(&Sha256::digest(&bytes));
    let file = File { checksum, bytes: bytes.len() as u64, content_bytes: content.len() as u64 };
    let is_new = place.put_once(&path(tenant, &file.checksum), bytes)?;
    Ok((file, is_new))
}

/// Reads a file and returns its content.
pub fn read(place: &Place, tenant: &str, file: &File) -> Result<Vec<u8>, Failure> {
    let bytes = place.get(&path(tenant, &file.checksum), FILE_BYTES_MAX)?;
    if HEXLOWER.encode(&Sha256::digest(&bytes)) != file.checksum {
        return Err(damaged(format!("file {} does not match its checksum", file.checksum)));
    }
    let content = zstd::bulk::decompress(&bytes, file.content_bytes as usize).ok();
    let content = content.filter(|content| content.len() as u64 == file.content_bytes);
    content.ok_or_else(|| damaged(format!("file {} does not decompress to its length", file.checksum)))
}

/// Reads the source of a version of an extension.
pub fn read_source(place: &Place, tenant: &str, file: &File) -> Result<ArchivedSource, Failure> {
    let content = read(place, tenant, file)?;
    source_of(&content).ok_or_else(|| damaged(format!("file {} is no source of an extension", file.checksum)))
}

fn source_of(content: &[u8]) -> Option<ArchivedSource> {
    let mut rest = content.strip_prefix(SOURCE)?;
    let mut source = ArchivedSource::new();
    while !rest.is_empty() {
        let path = str::from_utf8(take(&mut rest)?).ok()?.to_owned();
        source.push((path, take(&mut rest)?.to_vec()));
    }
    Some(source)
}

/// Takes bytes behind their length.
fn take<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, behind) = rest.split_first_chunk()?;
    let (bytes, behind) = behind.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    *rest = behind;
    Some(bytes)
}

/// The objects of a file: the number of the table and the entry of each.
pub struct Objects<'a>(&'a [u8]);

impl<'a> Objects<'a> {
    /// Begins with the content of a file.
    pub fn of(content: &'a [u8]) -> Result<Objects<'a>, Failure> {
        content.strip_prefix(OBJECTS).map(Objects).ok_or_else(|| damaged("a file has no objects"))
    }

    fn take(&mut self) -> Option<(u32, &'a [u8])> {
        let (table, behind) = self.0.split_first_chunk()?;
        self.0 = behind;
        Some((u32::from_le_bytes(*table), take(&mut self.0)?))
    }
}

impl<'a> Iterator for Objects<'a> {
    type Item = Result<(u32, &'a [u8]), Failure>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let taken = self.take();
        if taken.is_none() {
            self.0 = &[];
        }
        Some(taken.ok_or_else(|| damaged("a file ends within an object")))
    }
}

#[cfg(test)]
mod tests {
    use super::{Objects, append, begin, of_source, read, source_of, write};
    use crate::archive::manifest::File;
    use crate::archive::place::Place;

    #[test]
    fn a_file_comes_back_is_sent_once_and_refused_when_it_was_changed() {
        let directory = tempfile::tempdir().unwrap();
        let place = Place::open(&directory.path().display().to_string()).unwrap();
        let mut content = begin();
        append(&mut content, 7, b"entry");
        append(&mut content, 8, b"");
        let (file, sent) = write(&place, "acme", &content).unwrap();
        assert!(sent && !write(&place, "acme", &content).unwrap().1);
        assert_eq!(read(&place, "acme", &file).unwrap(), content);
        let objects: Vec<_> = Objects::of(&content).unwrap().map(Result::unwrap).collect();
        assert_eq!(objects, [(7, &b"entry"[..]), (8, &b""[..])]);
        for longer in [file.content_bytes + 1, file.content_bytes - 1] {
            assert!(read(&place, "acme", &File { content_bytes: longer, ..file.clone() }).is_err());
        }
        let path = directory.path().join("acme/files").join(&file.checksum);
        let mut bytes = std::fs::read(&path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        assert!(read(&place, "acme", &file).is_err());
        assert!(write(&place, "acme", &content).unwrap().1, "what has changed is written again");
        assert_eq!(read(&place, "acme", &file).unwrap(), content);
    }

    #[test]
    fn content_that_was_cut_is_an_error() {
        let mut content = begin();
        append(&mut content, 7, b"entry");
        for cut in 9..content.len() {
            assert!(Objects::of(&content[..cut]).unwrap().any(|object| object.is_err()), "{cut}");
        }
        assert!(Objects::of(b"SPLNARC").is_err());
        let source = vec![("src/lib.rs".to_owned(), b"fn".to_vec()), ("a".to_owned(), Vec::new())];
        let content = of_source(&source);
        assert_eq!(source_of(&content), Some(source));
        assert_eq!(source_of(&content[..content.len() - 1]), None);
    }
}
