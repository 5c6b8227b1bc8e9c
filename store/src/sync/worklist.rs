//! A list of work: any thread adds to it without waiting, and the thread that locks it does the work.

use std::collections::VecDeque;

use super::{AtomicUsize, Exclusive, Inbox, Ordering};

/// A list of work whose lock is only tried.
pub(crate) struct Worklist<T> {
    added: Inbox<T>,
    list: Exclusive<VecDeque<T>>,
    /// The length of the list, readable without its lock.
    listed: AtomicUsize,
}

impl<T> Worklist<T> {
    pub(crate) fn new() -> Worklist<T> {
        let (added, list) = (Inbox::new(), Exclusive::new(VecDeque::new()));
        Worklist { added, list, listed: AtomicUsize::new(0) }
    }

    /// Adds work to the end.
    pub(crate) fn add(&self, work: T) {
        assert!(self.added.push(work).is_ok(), "a list of work is never closed");
    }

    /// Returns whether the list seems to be empty.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.listed.load(Ordering::Relaxed) == 0 && self.added.is_empty()
    }

    /// Calls `work` with the list; `None` if another thread has it.
    pub(crate) fn try_with<R>(&self, work: impl FnOnce(&mut VecDeque<T>) -> R) -> Option<R> {
        let mut list = self.list.try_lock()?;
        if !self.added.is_empty() {
            list.extend(self.added.take_all());
        }
        let result = work(&mut list);
        self.listed.store(list.len(), Ordering::Relaxed);
        Some(result)
    }
}

#[cfg(all(test, not(loom_model)))]
mod tests {
    use super::Worklist;

    #[test]
    fn work_is_added_while_somebody_has_the_list_and_found_by_the_next_one() {
        let list = Worklist::new();
        assert!(list.is_empty());
        list.add(1);
        assert!(!list.is_empty());
        let taken = list.try_with(|work| {
            list.add(2);
            assert_eq!(list.try_with(|_| ()), None, "one at a time");
            work.pop_front()
        });
        assert_eq!((taken, list.is_empty()), (Some(Some(1)), false));
        assert_eq!(list.try_with(|work| work.drain(..).collect()), Some(vec![2]));
        assert!(list.is_empty());
    }
}
