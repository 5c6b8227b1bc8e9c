//! Lists that transactions of clients read and append to, and what came of these.

use std::collections::{BTreeMap, BTreeSet};

use tests::serializability::{self, Fate, Number, Observed};

use super::World;
use crate::caller::{LIST_LENGTH_MAX, LISTS_MAX};

/// For how long a frame may be on its way, with room.
const ON_ITS_WAY_US: u64 = 500_000;

/// What clients saw of their transactions.
#[derive(Default)]
pub struct Lists {
    /// Those that transactions are about now.
    current: Vec<Number>,
    /// The number of the next list that follows one that has its length.
    next_list: Number,
    observed: Vec<Observed>,
    /// The lists as they are in the end, when nobody appends any more.
    last: BTreeMap<Number, Vec<Number>>,
    /// Transactions from this number on only read what there is in the end.
    first_of_last: Option<Number>,
    next_number: Number,
    /// Something of the table may be lost.
    pub are_lost: bool,
}

impl Lists {
    pub fn new(count: u64) -> Lists {
        Lists { current: (0..count).collect(), next_list: count, ..Lists::default() }
    }
}

fn name(list: Number) -> Vec<u8> {
    format!("list {list}").into_bytes()
}

impl World {
    /// Begins a transaction on lists by chance, which have hashes near each other: most are in one tablet.
    pub fn begin_transaction(&mut self, client: u32) {
        let mut lists = self.lists.current.clone();
        lists.sort_unstable_by_key(|list| store::hash(&name(*list)));
        let first = self.random.usize(0..lists.len());
        lists.rotate_left(first);
        lists.truncate(LISTS_MAX);
        let appends = lists.iter().copied().filter(|_| self.random.bool()).collect();
        self.transact(client, lists, appends);
    }

    fn transact(&mut self, client: u32, lists: Vec<Number>, appends: BTreeSet<Number>) {
        let (number, begun) = (self.lists.next_number, self.now_us);
        self.lists.next_number += 1;
        let (ended, fate, reads) = (begun, Fate::Aborted, BTreeMap::new());
        let seen = Observed { number, begun, ended, fate, reads, appends };
        let named = lists.into_iter().map(|list| (list, name(list))).collect();
        let is_careless = self.plan.careless;
        self.drive(client, |caller, _, _| caller.begin_transaction(seen, named, is_careless));
    }

    /// Notes what came of a transaction.
    pub fn note_transaction(&mut self, seen: Observed) {
        let Lists { current, next_list, observed, last, first_of_last, .. } = &mut self.lists;
        match (seen.fate, seen.appends.len()) {
            (Fate::Committed, 0) => {}
            (Fate::Committed, 1) => self.tally.appended += 1,
            (Fate::Committed, _) => self.tally.appended_to_several += 1,
            (Fate::Aborted, _) => self.tally.not_committed += 1,
            (Fate::Unknown, _) => self.tally.unknown += 1,
        }
        if first_of_last.is_some_and(|first| first <= seen.number) && seen.fate == Fate::Committed {
            last.extend(seen.reads.clone());
        }
        for (list, _) in seen.reads.iter().filter(|(_, read)| read.len() >= LIST_LENGTH_MAX) {
            for full in current.iter_mut().filter(|current| *current == list) {
                *full = *next_list;
                *next_list += 1;
            }
        }
        observed.push(seen);
    }

    /// Reads every list once more, when nothing changes any more. Whether all have been read.
    pub fn read_lists(&mut self) -> bool {
        let is_unknown = |seen: &&Observed| seen.fate == Fate::Unknown && !seen.appends.is_empty();
        let unknown = self.lists.observed.iter().filter(is_unknown).map(|seen| seen.ended).max();
        if unknown.is_some_and(|ended| self.now_us < ended + ON_ITS_WAY_US) {
            return false;
        }
        self.lists.first_of_last.get_or_insert(self.lists.next_number);
        let is_missing = |list: &Number| !self.lists.last.contains_key(list);
        let missing: Vec<Number> = (0..self.lists.next_list).filter(is_missing).collect();
        for (client, list) in (0..self.plan.clients).zip(&missing) {
            self.transact(client, vec![*list], BTreeSet::new());
        }
        missing.is_empty()
    }

    /// Whether there is an order of all transactions that explains what was seen, or why not; nothing is said of lists that were lost.
    pub fn are_transactions_serializable(&self) -> Result<usize, String> {
        if self.lists.are_lost {
            return Ok(0);
        }
        serializability::check(&self.lists.observed, &self.lists.last)
    }
}
