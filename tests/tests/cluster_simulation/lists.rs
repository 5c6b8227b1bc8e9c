//! Lists that transactions of clients read and append to, and what came of these.

use std::collections::{BTreeMap, BTreeSet};

use tests::serializability::{self, Fate, Number, Observed};

use super::World;

/// For how long a frame may be on its way, with room.
const ON_ITS_WAY_US: u64 = 500_000;

/// Most lists that a transaction reads.
const LISTS_MAX: usize = 3;

/// What clients saw of their transactions.
#[derive(Default)]
pub struct Lists {
    observed: Vec<Observed>,
    /// The lists as they are in the end, when nobody appends any more.
    last: BTreeMap<Number, Vec<Number>>,
    /// Transactions from this number on only read what there is in the end.
    first_of_last: Option<Number>,
    next_number: Number,
}

impl World {
    /// Begins a transaction on lists by chance.
    pub fn begin_transaction(&mut self, client: u32) {
        let lists = self.random.choose_multiple(0..self.plan.lists, LISTS_MAX);
        let appends = lists.iter().copied().filter(|_| self.random.bool()).collect();
        self.transact(client, lists, appends);
    }

    fn transact(&mut self, client: u32, lists: Vec<Number>, appends: BTreeSet<Number>) {
        let (number, begun) = (self.lists.next_number, self.now_us);
        self.lists.next_number += 1;
        let (ended, fate, reads) = (begun, Fate::Aborted, BTreeMap::new());
        let seen = Observed { number, begun, ended, fate, reads, appends };
        let named = lists.into_iter().map(|list| (list, format!("list {list}").into_bytes())).collect();
        self.drive(client, |caller, _, _| caller.begin_transaction(seen, named));
    }

    /// Notes what came of a transaction.
    pub fn note_transaction(&mut self, seen: Observed) {
        match seen.fate {
            Fate::Committed => self.tally.committed += 1,
            Fate::Aborted => self.tally.aborted += 1,
            Fate::Unknown => {}
        }
        if self.lists.first_of_last.is_some_and(|first| first <= seen.number) && seen.fate == Fate::Committed
        {
            self.lists.last.extend(seen.reads.clone());
        }
        self.lists.observed.push(seen);
    }

    /// Reads every list once more, when nothing changes any more. Whether all have been read.
    pub fn read_lists(&mut self) -> bool {
        let unknown = self.lists.observed.iter().filter(|seen| seen.fate == Fate::Unknown);
        if unknown.map(|seen| seen.ended).max().is_some_and(|ended| self.now_us < ended + ON_ITS_WAY_US) {
            return false;
        }
        self.lists.first_of_last.get_or_insert(self.lists.next_number);
        let missing: Vec<Number> =
            (0..self.plan.lists).filter(|list| !self.lists.last.contains_key(list)).collect();
        for (client, list) in (0..self.plan.clients).zip(&missing) {
            self.transact(client, vec![*list], BTreeSet::new());
        }
        missing.is_empty()
    }

    /// Whether there is an order of all transactions that explains what was seen, or why not.
    pub fn are_transactions_serializable(&self) -> Result<usize, String> {
        serializability::check(&self.lists.observed, &self.lists.last)
    }
}
