//! Pages of a table or of a range: what they cover, their requests, and their contents.
//!
//! A function names a range and the last key that it has seen; the request starts behind that key, in either direction.
//! The objects of a reply lie in the arena of the task, which sends the request and reads the reply.

use sandstorm::abi::RawEntry;
use wire::limits::{ENUMERATE_BYTES_MAX, KEY_BYTES_MAX};
use wire::{KeyRange, Request};

/// The objects that a page covers.
#[derive(Clone, Debug)]
pub(in crate::local) enum PageOf {
    /// Objects of a table after a cursor.
    Table { cursor: Vec<u8> },
    /// Objects of a range in order.
    Range { from: Vec<u8>, to: Option<Vec<u8>>, prefix: Vec<u8>, reverse: bool },
    /// None: the range has no keys.
    Nothing,
}

/// A requested page.
pub(super) struct AskedPage {
    pub(super) of: PageOf,
    pub(super) objects_max: u16,
    /// Continuation of a scan that has found nothing so far.
    pub(super) cursor: Vec<u8>,
    /// Objects of the reply, in memory of the arena.
    pub(super) met: Vec<RawEntry>,
    /// Start of the next page; none at the end.
    pub(super) next: Option<Vec<u8>>,
}

impl PageOf {
    /// Returns the range without its part up to `after`.
    pub(in crate::local) fn range(
        from: Vec<u8>,
        to: Option<Vec<u8>>,
        prefix: Vec<u8>,
        after: Option<Vec<u8>>,
        reverse: bool,
    ) -> PageOf {
        match after {
            None => PageOf::Range { from, to, prefix, reverse },
            Some(after) if reverse => {
                let to = Some(to.map_or(after.clone(), |to| to.min(after)));
                PageOf::Range { from, to, prefix, reverse }
            }
            Some(after) => match successor(after) {
                Some(next) => PageOf::Range { from: from.max(next), to, prefix, reverse },
                None => PageOf::Nothing,
            },
        }
    }
}

/// Returns the next larger key; none after the largest.
fn successor(mut key: Vec<u8>) -> Option<Vec<u8>> {
    if key.len() < KEY_BYTES_MAX {
        key.push(0);
        return Some(key);
    }
    while key.pop_if(|last| *last == u8::MAX).is_some() {}
    *key.last_mut()? += 1;
    Some(key)
}

impl AskedPage {
    /// Returns the request for the rest of the page. None if there is nothing to request.
    pub(super) fn request(&self, table: u32) -> Option<Request<'_>> {
        let (objects_max, bytes_max, keys_only) = (self.objects_max, ENUMERATE_BYTES_MAX as u32, false);
        match &self.of {
            PageOf::Table { cursor } => {
                Some(Request::Enumerate { table, cursor, keys_only, objects_max, bytes_max })
            }
            PageOf::Range { from, to, prefix, reverse } => {
                let range = KeyRange { from, to: to.as_deref(), prefix, reverse: *reverse, hashes: None };
                let cursor = &self.cursor;
                Some(Request::Scan { table, range, cursor, keys_only, objects_max, bytes_max })
            }
            PageOf::Nothing => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{KEY_BYTES_MAX, PageOf, successor};

    #[test]
    fn nothing_lies_between_a_key_and_the_one_after_it() {
        assert_eq!(successor(b"a".to_vec()), Some(b"a\0".to_vec()));
        assert_eq!(successor(Vec::new()), Some(vec![0]));
        let mut longest = vec![7; KEY_BYTES_MAX];
        longest[KEY_BYTES_MAX - 2..].fill(255);
        let mut next = vec![7; KEY_BYTES_MAX - 2];
        *next.last_mut().unwrap() = 8;
        assert_eq!(successor(longest), Some(next));
        assert_eq!(successor(vec![255; KEY_BYTES_MAX]), None);
    }

    #[test]
    fn a_range_goes_on_behind_a_key_either_way() {
        let range = |after: &[u8], reverse| {
            let (from, to) = (b"b".to_vec(), Some(b"d".to_vec()));
            match PageOf::range(from, to, Vec::new(), Some(after.to_vec()), reverse) {
                PageOf::Range { from, to, .. } => (from, to.unwrap()),
                _ => panic!("there are keys"),
            }
        };
        assert_eq!(range(b"c", false), (b"c\0".to_vec(), b"d".to_vec()));
        assert_eq!(range(b"a", false), (b"b".to_vec(), b"d".to_vec()));
        assert_eq!(range(b"c", true), (b"b".to_vec(), b"c".to_vec()));
        assert_eq!(range(b"e", true), (b"b".to_vec(), b"d".to_vec()));
        let nothing = PageOf::range(Vec::new(), None, Vec::new(), Some(vec![255; KEY_BYTES_MAX]), false);
        assert!(matches!(nothing, PageOf::Nothing));
    }
}
