//! Pages of a table or of a range: what they cover, their requests, and their contents.
//!
//! A function names a range and the last key that it has seen; the request starts behind that key, in either direction.
//! The objects of a reply lie in the arena of the task, which sends the request and reads the reply. Among those of a range are the
//! function's own writes, as they were when it asked.

use std::cmp::Ordering;
use std::collections::VecDeque;

use sandstorm::abi::{RawEntry, RawRecord, RawSlice, VERSION_UNAPPLIED};
use wire::limits::{ENUMERATE_BYTES_MAX, KEY_BYTES_MAX};
use wire::reply::Listed;
use wire::{CommitRange, CommitRead, KeyRange, Request};

use crate::local::border::Arena;
use crate::write_set::WriteSet;

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
    /// Keys in the range that the function has written and that are still to come, in the order of the scan.
    own: VecDeque<Vec<u8>>,
    /// Keys of the range at the server, with their versions, in this order; none of a function that only reads.
    read: Vec<(Vec<u8>, u64)>,
    may_write: bool,
    /// The last key that was examined.
    last: Vec<u8>,
}

impl PageOf {
    /// Returns the bytes of its bounds or its cursor.
    pub(super) fn bytes(&self) -> usize {
        match self {
            PageOf::Table { cursor } => cursor.len(),
            PageOf::Range { from, to, prefix, .. } => {
                from.len() + to.as_ref().map_or(0, Vec::len) + prefix.len()
            }
            PageOf::Nothing => 0,
        }
    }

    /// Returns the written keys in the range, in the order of a scan.
    pub(super) fn own_keys(&self, table: u32, writes: &WriteSet) -> VecDeque<Vec<u8>> {
        let PageOf::Range { from, to, prefix, reverse } = self else { return VecDeque::new() };
        let is_in = |key: &[u8]| {
            key >= from.as_slice()
                && to.as_ref().is_none_or(|to| key < to.as_slice())
                && key.starts_with(prefix)
        };
        let own = writes.keys().filter(|(of, key)| *of == table && is_in(key));
        let mut own: Vec<Vec<u8>> = own.map(|(_, key)| key.to_vec()).collect();
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
    pub(super) fn new(of: PageOf, objects_max: u16, own: Option<VecDeque<Vec<u8>>>) -> AskedPage {
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
        (arena, own_value): (&Arena, impl Fn(&[u8]) -> Option<RawSlice>),
    ) -> bool {
        let reverse = matches!(self.of, PageOf::Range { reverse: true, .. });
        for Listed { key, value, version, .. } in objects {
            let is_before = |own: &Vec<u8>| {
                let order = own.as_slice().cmp(key);
                order == if reverse { Ordering::Greater } else { Ordering::Less }
            };
            while !self.is_full() && self.own.front().is_some_and(is_before) {
                self.take_own(arena, &own_value);
            }
            if self.is_full() {
                return false;
            }
            if self.may_write {
                self.read.push((key.to_vec(), version));
                key.clone_into(&mut self.last);
            }
            if self.own.front().is_some_and(|own| own == key) {
                self.take_own(arena, &own_value);
            } else {
                let record = RawRecord { value: arena.copy(value), version };
                self.met.push(RawEntry { key: arena.copy(key), record });
            }
        }
        while end && !self.is_full() && !self.own.is_empty() {
            self.take_own(arena, &own_value);
        }
        end && self.own.is_empty()
    }

    /// Adds the next own write, unless it is a removal.
    fn take_own(&mut self, arena: &Arena, own_value: impl Fn(&[u8]) -> Option<RawSlice>) {
        let Some(key) = self.own.pop_front() else { return };
        if let Some(value) = own_value(&key) {
            let record = RawRecord { value, version: VERSION_UNAPPLIED };
            self.met.push(RawEntry { key: arena.copy(&key), record });
        }
        self.last = key;
    }

    /// Notes that the page is whole, and that another one follows if there is a `next`.
    pub(super) fn end(&mut self, next: Option<Vec<u8>>) {
        (self.own, self.next) = (VecDeque::new(), next);
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

/// A range that a function has scanned, in one page or several.
pub(super) struct ScannedPages<'p> {
    table: u32,
    from: &'p [u8],
    to: Option<&'p [u8]>,
    prefix: &'p [u8],
    reverse: bool,
    /// The last key that was examined, if the range did not end.
    until: Option<&'p [u8]>,
    reads: Vec<CommitRead<'p>>,
}

impl<'p> ScannedPages<'p> {
    /// Returns the range of a page; `None` for one of a whole table.
    pub(super) fn of(table: u32, page: &'p AskedPage) -> Option<Self> {
        let PageOf::Range { from, to, prefix, reverse } = &page.of else { return None };
        let reads =
            page.read.iter().map(|(key, version)| CommitRead { table, key, version: *version }).collect();
        let until = page.next.as_ref().map(|_| page.last.as_slice());
        Some(Self { table, from, to: to.as_deref(), prefix, reverse: *reverse, until, reads })
    }

    /// Adds the page behind this one, or returns it if it is of another scan.
    pub(super) fn join(&mut self, next: Self) -> Result<(), Self> {
        let Some(until) = self.until else { return Err(next) };
        let is_alike = (self.table, self.prefix, self.reverse) == (next.table, next.prefix, next.reverse);
        // It begins no later than behind the last key, and may begin before: with keys that the function had removed.
        let goes_on = match (self.reverse, next.to) {
            (false, to) => to == self.to && next.from > self.from && next.from <= &[until, &[0]].concat()[..],
            (true, Some(to)) => next.from == self.from && self.to.is_none_or(|own| to < own) && to >= until,
            (true, None) => false,
        };
        if !is_alike || !goes_on {
            return Err(next);
        }
        match next.to.filter(|_| self.reverse) {
            Some(to) => self.reads.retain(|read| read.key >= to),
            None => self.reads.retain(|read| read.key < next.from),
        }
        self.reads.extend(next.reads);
        self.until = next.until;
        Ok(())
    }

    /// Returns the table and the prefix of all keys.
    pub(super) fn place(&self) -> (u32, &'p [u8]) {
        (self.table, self.prefix)
    }

    /// Adds the reads, and returns the range.
    pub(super) fn add_to(self, reads: &mut Vec<CommitRead<'p>>) -> CommitRange<'p> {
        let Self { table, from, to, prefix, reverse, until, reads: own } = self;
        let first = reads.len() as u16;
        reads.extend(own);
        let range = KeyRange { from, to, prefix, reverse, hashes: None };
        CommitRange { table, range, until, reads: first..reads.len() as u16 }
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
