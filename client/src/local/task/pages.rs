//! Pages of a table or of a range for functions that only read: requests and replies.
//!
//! A function that writes is refused: its writes are applied one by one, each on the condition of its own object, so
//! nothing guarantees that the objects of a page are still current. The server verifies scans at the commit; such
//! functions run there.

use sandstorm::Error;
use sandstorm::abi::{RawEntry, RawRecord};
use wire::limits::{ENUMERATE_BYTES_MAX, KEY_BYTES_MAX};
use wire::{KeyRange, Request, reply};

use super::{Lookup, State, Stop, Task};
use crate::local::border::Border;

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
pub(in crate::local) struct AskedPage {
    of: PageOf,
    objects_max: u16,
    /// Continuation of a scan that has found nothing so far.
    cursor: Vec<u8>,
    /// Objects of the reply, in memory of the arena.
    met: Vec<RawEntry>,
    /// Start of the next page; none at the end.
    next: Option<Vec<u8>>,
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
    /// Returns the request for the rest of the page; none if there is nothing to request.
    pub(in crate::local) fn request(&self, table: u32) -> Option<Request<'_>> {
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

impl Task {
    /// Reads a page for a host call: passes the objects, and the start of the next page, to `take`.
    pub(in crate::local) fn read_page(
        &self,
        ticket: &mut u64,
        table: u32,
        of: PageOf,
        capacity: usize,
        take: impl FnOnce(&[RawEntry], Option<&[u8]>),
    ) -> Result<(), Stop> {
        if self.may_write.get() {
            return Err(Error::NotSerializable.into());
        }
        if *ticket == 0 {
            if let PageOf::Range { from, to, prefix, .. } = &of
                && [Some(from), to.as_ref(), Some(prefix)]
                    .into_iter()
                    .flatten()
                    .any(|key| key.len() > KEY_BYTES_MAX)
            {
                return Err(Error::KeyTooLarge.into());
            }
            let index = self.ask(Lookup::Page, table, &[])?;
            let objects_max = capacity.clamp(1, usize::from(u16::MAX)) as u16;
            let page = AskedPage { of, objects_max, cursor: Vec::new(), met: Vec::new(), next: None };
            self.operations.borrow_mut().list[index].page = Some(Box::new(page));
            *ticket = index as u64 + 1;
        }
        let index = *ticket as usize - 1;
        self.result(index)?;
        let operations = self.operations.borrow();
        let page = operations.list[index].page.as_ref().ok_or(Error::Unknown)?;
        take(&page.met[..page.met.len().min(capacity)], page.next.as_deref());
        Ok(())
    }

    /// Processes a page. A scan that has found nothing but not ended is continued from there.
    pub(super) fn answer_page(&self, index: usize, body: &[u8]) -> Option<State> {
        let mut operations = self.operations.borrow_mut();
        let Some(page) = operations.list.get_mut(index).and_then(|operation| operation.page.as_mut()) else {
            return Some(State::Failed(Error::Unknown));
        };
        let lend = |listed: reply::Listed<'_>| RawEntry {
            key: self.arena.copy(listed.key),
            record: RawRecord { value: self.arena.copy(listed.value), version: listed.version },
        };
        let listing = match &page.of {
            PageOf::Table { .. } => reply::Listing::decode(body),
            _ => reply::Scanned::decode(body),
        };
        let Ok(listing) = listing else { return Some(State::Failed(Error::Unavailable)) };
        let next = listing.cursor().map(<[u8]>::to_vec);
        // Corrupted objects are left out, as at the server.
        page.met.extend(listing.filter(|listed| listed.status == wire::Status::Ok).map(lend));
        match next {
            Some(next) if page.met.is_empty() && matches!(page.of, PageOf::Range { .. }) => {
                page.cursor = next;
                self.asked.borrow_mut().push_back(index);
                return None;
            }
            next => page.next = next,
        }
        Some(State::Done(Border::NO_RECORD))
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
