//! Whether transactions are strictly serializable, by what their clients saw.
//!
//! Each object is a list. A transaction reads some lists, and appends its own number to some of those that it has read; so a list
//! tells who has written it, in which order, and a transaction that read it tells between which two of them it was. From that
//! follows, for each two transactions on one list, which one came first:
//!
//! ```text
//!   list at the end:  3 7 12          7 read [3], 12 read [3 7]
//!   who read [3 7]:   7 ──► it ──► 12
//! ```
//! Besides, what ended before another began came first. All of that together has an order, or it has a circle, and then no serial
//! execution explains what was seen. The method is that of Elle (Kingsbury and Alvaro, VLDB 2020), with lists that are read before
//! they are appended to.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A number of a list, or of an appended transaction.
pub type Number = u64;

/// What became of a transaction, as far as its client knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It was committed.
    Committed,
    /// It was committed, or not.
    Unknown,
    /// It was not.
    Aborted,
}

/// A transaction as its client saw it.
#[derive(Clone, Debug)]
pub struct Observed {
    /// Its number, which it appends; no two have the same.
    pub number: Number,
    /// When it began, by one clock for all.
    pub begun: u64,
    /// When its client heard of its end.
    pub ended: u64,
    /// What became of it.
    pub fate: Fate,
    /// The lists that it read.
    pub reads: BTreeMap<Number, Vec<Number>>,
    /// Those that it appended its number to: it had read them.
    pub appends: BTreeSet<Number>,
}

/// Returns how many transactions had effects, or were only to read.
///
/// # Errors
/// Why what was seen, and the lists at the end, are of no serial execution in an order that fits the clock.
pub fn check(observed: &[Observed], lists: &BTreeMap<Number, Vec<Number>>) -> Result<usize, String> {
    let nothing = Vec::new();
    let list = |key: &Number| lists.get(key).unwrap_or(&nothing);
    let by_number: BTreeMap<Number, &Observed> = observed.iter().map(|one| (one.number, one)).collect();
    for (key, list) in lists {
        let mut seen = BTreeSet::new();
        for number in list {
            let Some(one) = by_number.get(number) else {
                return Err(format!("list {key} has {number}, which nobody appended"));
            };
            if one.fate == Fate::Aborted || !one.appends.contains(key) || !seen.insert(number) {
                return Err(format!("list {key} has {number}, which is not to be there, or twice: {one:?}"));
            }
        }
    }
    let mut order = Order::default();
    let mut effective = Vec::new();
    for one in observed {
        let there = one.appends.iter().filter(|key| list(key).contains(&one.number)).count();
        let is_whole = there == one.appends.len();
        match one.fate {
            Fate::Aborted => continue,
            // Nobody knows whether a transaction that only read was as of one moment.
            Fate::Unknown if there == 0 => continue,
            _ if !is_whole => return Err(format!("{there} of the writes are there of {one:?}")),
            _ => {}
        }
        for (key, read) in &one.reads {
            let all = list(key);
            if !all.starts_with(read) {
                return Err(format!("{one:?} read of list {key} what is no beginning of {all:?}"));
            }
            let mut next = all.get(read.len());
            if one.appends.contains(key) {
                if next != Some(&one.number) {
                    return Err(format!(
                        "{one:?} appended to list {key} behind what it had not read: {all:?}"
                    ));
                }
                next = all.get(read.len() + 1);
            }
            order.add(read.last(), Some(&one.number));
            order.add(Some(&one.number), next);
        }
        effective.push(one);
    }
    order.add_times(&effective);
    order.sort().map(|()| effective.len()).map_err(|circle| {
        let of = |number: &Number| by_number.get(number).map(|one| format!("  {one:?}"));
        let circle: Vec<String> = circle.iter().filter_map(of).collect();
        format!("each of these came before the next, and the last before the first:\n{}", circle.join("\n"))
    })
}

/// What came before what: transactions by their numbers, and moments between them.
#[derive(Default)]
struct Order {
    after: BTreeMap<Step, BTreeSet<Step>>,
}

/// A transaction, or the moment behind so many ends of transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Transaction(Number),
    Moment(usize),
}

impl Order {
    fn add(&mut self, first: Option<&Number>, then: Option<&Number>) {
        if let (Some(first), Some(then)) = (first, then) {
            self.link(Step::Transaction(*first), Step::Transaction(*then));
        }
    }

    fn link(&mut self, first: Step, then: Step) {
        self.after.entry(first).or_default().insert(then);
        self.after.entry(then).or_default();
    }

    /// Adds that what ended before another began came first, by way of the moments of all ends.
    fn add_times(&mut self, transactions: &[&Observed]) {
        // What was never heard of may have happened at any later time.
        let known = transactions.iter().filter(|one| one.fate == Fate::Committed);
        let mut ends: Vec<(u64, Number)> = known.map(|one| (one.ended, one.number)).collect();
        ends.sort_unstable();
        for (moment, (_, number)) in ends.iter().enumerate() {
            self.link(Step::Transaction(*number), Step::Moment(moment));
            if moment > 0 {
                self.link(Step::Moment(moment - 1), Step::Moment(moment));
            }
        }
        for one in transactions {
            let before = ends.partition_point(|(ended, _)| *ended < one.begun);
            if before > 0 {
                self.link(Step::Moment(before - 1), Step::Transaction(one.number));
            }
        }
    }

    /// Takes away what comes before all that is left, until nothing is; else returns the transactions of a circle.
    fn sort(mut self) -> Result<(), Vec<Number>> {
        let mut before: BTreeMap<Step, usize> = self.after.keys().map(|step| (*step, 0)).collect();
        for then in self.after.values().flatten() {
            *before.entry(*then).or_default() += 1;
        }
        let mut first: VecDeque<Step> =
            before.iter().filter(|(_, count)| **count == 0).map(|(step, _)| *step).collect();
        while let Some(step) = first.pop_front() {
            before.remove(&step);
            for then in self.after.remove(&step).into_iter().flatten() {
                let count = before.get_mut(&then).expect("it was counted");
                *count -= 1;
                if *count == 0 {
                    first.push_back(then);
                }
            }
        }
        let Some(start) = self.after.keys().next().copied() else { return Ok(()) };
        Err(self.circle(start))
    }

    /// Returns the transactions of a circle, of steps each of which has one before it.
    fn circle(&self, start: Step) -> Vec<Number> {
        let mut before: BTreeMap<Step, Step> = BTreeMap::new();
        for (step, all) in &self.after {
            for then in all {
                before.insert(*then, *step);
            }
        }
        let (mut path, mut at) = (vec![start], start);
        loop {
            at = before[&at];
            if let Some(begin) = path.iter().position(|step| *step == at) {
                let circle = path[begin..].iter().rev();
                let number = |step: &Step| match step {
                    Step::Transaction(number) => Some(*number),
                    Step::Moment(_) => None,
                };
                return circle.filter_map(number).collect();
            }
            path.push(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::slice::from_ref;

    use super::{Fate, Number, Observed, check};

    fn one(number: Number, times: (u64, u64), reads: &[(Number, &[Number])], appends: &[Number]) -> Observed {
        Observed {
            number,
            begun: times.0,
            ended: times.1,
            fate: Fate::Committed,
            reads: reads.iter().map(|(key, read)| (*key, read.to_vec())).collect(),
            appends: appends.iter().copied().collect(),
        }
    }

    fn verdict(observed: &[Observed], lists: &[(Number, &[Number])]) -> Result<usize, String> {
        check(observed, &lists.iter().map(|(key, list)| (*key, list.to_vec())).collect())
    }

    #[test]
    fn transactions_one_after_the_other_and_beside_each_other_are_serializable() {
        let observed = [
            one(1, (0, 10), &[(0, &[])], &[0]),
            one(2, (5, 20), &[(0, &[1]), (1, &[])], &[0, 1]),
            one(3, (5, 20), &[(0, &[1]), (1, &[])], &[]),
            one(4, (21, 30), &[(0, &[1, 2]), (1, &[2])], &[1]),
        ];
        assert_eq!(verdict(&observed, &[(0, &[1, 2]), (1, &[2, 4])]), Ok(4));
    }

    #[test]
    fn write_skew_is_a_circle() {
        let observed =
            [one(1, (0, 10), &[(0, &[]), (1, &[])], &[0]), one(2, (0, 10), &[(0, &[]), (1, &[])], &[1])];
        let why = verdict(&observed, &[(0, &[1]), (1, &[2])]).unwrap_err();
        assert!(why.contains("each of these"), "{why}");
    }

    #[test]
    fn a_read_of_what_was_there_before_is_a_circle_with_the_clock() {
        let observed = [one(1, (0, 10), &[(0, &[])], &[0]), one(2, (11, 20), &[(0, &[])], &[])];
        assert!(verdict(&observed, &[(0, &[1])]).is_err());
        let beside = [one(1, (0, 10), &[(0, &[])], &[0]), one(2, (9, 20), &[(0, &[])], &[])];
        assert_eq!(verdict(&beside, &[(0, &[1])]), Ok(2));
    }

    #[test]
    fn two_moments_in_one_read_are_a_circle() {
        let observed =
            [one(1, (0, 10), &[(0, &[]), (1, &[])], &[0, 1]), one(2, (0, 10), &[(0, &[1]), (1, &[])], &[])];
        assert!(verdict(&observed, &[(0, &[1]), (1, &[1])]).is_err());
    }

    #[test]
    fn what_is_lost_or_half_there_or_was_aborted_is_told() {
        let whole = one(1, (0, 10), &[(0, &[]), (1, &[])], &[0, 1]);
        assert!(verdict(from_ref(&whole), &[(0, &[1])]).is_err(), "half of it");
        assert!(verdict(from_ref(&whole), &[]).is_err(), "nothing of what was acknowledged");
        let unknown = Observed { fate: Fate::Unknown, ..whole.clone() };
        assert_eq!(verdict(from_ref(&unknown), &[]), Ok(0));
        assert_eq!(verdict(from_ref(&unknown), &[(0, &[1]), (1, &[1])]), Ok(1));
        assert!(verdict(&[unknown], &[(0, &[1])]).is_err(), "half of it");
        let aborted = Observed { fate: Fate::Aborted, ..whole };
        assert!(verdict(&[aborted], &[(0, &[1]), (1, &[1])]).is_err());
        assert!(verdict(&[], &[(0, &[7])]).is_err(), "nobody appended it");
    }

    #[test]
    fn an_update_that_overwrites_another_is_told() {
        let observed = [one(1, (0, 10), &[(0, &[])], &[0]), one(2, (0, 10), &[(0, &[])], &[0])];
        assert!(verdict(&observed, &[(0, &[1, 2])]).is_err());
        assert!(verdict(&observed, &[(0, &[2])]).is_err());
    }

    #[test]
    fn an_unknown_transaction_may_happen_at_any_time() {
        let late = Observed { fate: Fate::Unknown, ..one(1, (0, 10), &[(0, &[])], &[0]) };
        let observed = [late, one(2, (11, 20), &[(0, &[])], &[])];
        assert_eq!(verdict(&observed, &[(0, &[1])]), Ok(2));
    }
}
