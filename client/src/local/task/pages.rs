//! Pages of a table or of a range: what they cover, their requests, and their contents.
//!
//! A function names a range and the last key that it has seen; the request starts behind that key, in either direction.
//! The objects of a reply lie in the arena of the task, which sends the request and reads the reply. Among those of a range are the
//! function's own writes, as they were when it asked.

use std::cmp::Ordering;
use std::collections::VecDeque;

use sandstorm::abi::{RawEntry, RawRecord, VERSION_UNAPPLIED};
use wire::limits::{ENUMERATE_BYTES_MAX, KEY_BYTES_MAX};
use wire::reply::Listed;
use wire::{CommitRange, CommitRead, KeyRange, Request};

use crate::local::border::Arena;
use crate::local::write_set::WriteSet;

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
    /// Objects of the page, in memory of the arena.
    pub(super) met: Vec<RawEntry>,
    /// Start of the next page; none at the end.
    pub(super) next: Option<Vec<u8>>,
    /// The function's own writes in the range that are still to come, in the order of the scan.
    own: VecDeque<OwnWrite>,
    /// Keys of the range at the server, with their versions, in this order; none of a function that only reads.
    read: Vec<(Vec<u8>, u64)>,
    may_write: bool,
    /// The last key that was examined.
    last: Vec<u8>,
}

/// A key that the function wrote, with its value; `None` if it was removed.
type OwnWrite = (Vec<u8>, Option<Vec<u8>>);

impl PageOf {
    /// Returns the writes in the range, in the order of a scan.
    pub(super) fn own_writes(&self, table: u32, writes: &WriteSet) -> VecDeque<OwnWrite> {
        let PageOf::Range { from, to, prefix, reverse } = self else { return VecDeque::new() };
        let is_in = |key: &[u8]| {
            key >= from.as_slice()
                && to.as_ref().is_none_or(|to| key < to.as_slice())
                && key.starts_with(prefix)
        };
        let own = writes.all().into_iter().filter(|write| write.table == table && is_in(write.key));
        let mut own: Vec<OwnWrite> =
            own.map(|write| (write.key.to_vec(), write.value.map(<[u8]>::to_vec))).collect();
        own.sort();
        if *reverse {
            own.reverse();
        }
        own.into()
    }

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
    /// Returns a page to ask for; `own` are the writes in its range of a function that may write.
    pub(super) fn new(of: PageOf, objects_max: u16, own: Option<VecDeque<OwnWrite>>) -> AskedPage {
        let (cursor, met, read, last) = Default::default();
        let (may_write, own) = (own.is_some(), own.unwrap_or_default());
        AskedPage { of, objects_max, cursor, met, next: None, own, read, may_write, last }
    }

    /// Returns whether there is room for no other object.
    fn is_full(&self) -> bool {
        self.met.len() >= usize::from(self.objects_max)
    }

    /// Adds objects of a range that come next in the order of the scan, and own writes before, among and, at the `end` of the range,
    /// behind them, as far as there is room. Returns whether nothing is left.
    pub(super) fn merge<'l>(
        &mut self,
        objects: impl Iterator<Item = Listed<'l>>,
        end: bool,
        arena: &Arena,
    ) -> bool {
        let reverse = matches!(self.of, PageOf::Range { reverse: true, .. });
        for Listed { key, value, version, .. } in objects {
            let is_before = |own: &OwnWrite| {
                let order = own.0.as_slice().cmp(key);
                order == if reverse { Ordering::Greater } else { Ordering::Less }
            };
            while !self.is_full() && self.own.front().is_some_and(is_before) {
                self.take_own(arena);
            }
            if self.is_full() {
                return false;
            }
            if self.may_write {
                self.read.push((key.to_vec(), version));
                key.clone_into(&mut self.last);
            }
            if self.own.front().is_some_and(|own| own.0 == key) {
                self.take_own(arena);
            } else {
                let record = RawRecord { value: arena.copy(value), version };
                self.met.push(RawEntry { key: arena.copy(key), record });
            }
        }
        while end && !self.is_full() && !self.own.is_empty() {
            self.take_own(arena);
        }
        end && self.own.is_empty()
    }

    /// Adds the next own write, unless it is a removal.
    fn take_own(&mut self, arena: &Arena) {
        let Some((key, value)) = self.own.pop_front() else { return };
        if let Some(value) = value {
            let record = RawRecord { value: arena.copy(&value), version: VERSION_UNAPPLIED };
            self.met.push(RawEntry { key: arena.copy(&key), record });
        }
        self.last = key;
    }

    /// Returns a key that tells whose the range is: one that was read, or where it begins.
    pub(super) fn some_key(&self) -> &[u8] {
        match (&self.of, self.read.first()) {
            (_, Some((key, _))) => key,
            (PageOf::Range { from, prefix, .. }, None) => from.max(prefix),
            _ => &[],
        }
    }

    /// Returns what a commit names of a page that was read: its reads, whose places among all begin at `first`, and the range.
    pub(super) fn scanned(&self, table: u32, first: usize) -> Option<(Vec<CommitRead<'_>>, CommitRange<'_>)> {
        let PageOf::Range { from, to, prefix, reverse } = &self.of else { return None };
        let reads: Vec<_> =
            self.read.iter().map(|(key, version)| CommitRead { table, key, version: *version }).collect();
        let range = KeyRange { from, to: to.as_deref(), prefix, reverse: *reverse, hashes: None };
        let until = self.next.as_ref().map(|_| self.last.as_slice());
        let places = first as u16..(first + reads.len()) as u16;
        Some((reads, CommitRange { table, range, until, reads: places }))
    }

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
