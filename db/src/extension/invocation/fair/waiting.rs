//! A queue that stores its first item inline: most tenants have one invocation on a worker at a time, and then nothing
//! else is touched.

use std::collections::VecDeque;

/// A queue with an inline first item. The other items exist only if a first one exists.
#[derive(Debug)]
pub(super) struct WaitingQueue<T> {
    first: Option<T>,
    /// The other items; allocated for the second one, and kept.
    #[expect(clippy::box_collection, reason = "a quarter of the size within the place of a tenant")]
    behind: Option<Box<VecDeque<T>>>,
}

impl<T> WaitingQueue<T> {
    pub(super) const fn new() -> Self {
        Self { first: None, behind: None }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    pub(super) fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.behind.as_ref().map_or(0, |behind| behind.len())
    }

    #[inline]
    pub(super) fn push_back(&mut self, item: T) {
        if self.first.is_none() {
            self.first = Some(item);
        } else {
            self.behind.get_or_insert_default().push_back(item);
        }
    }

    pub(super) fn push_front(&mut self, item: T) {
        if let Some(second) = self.first.replace(item) {
            self.behind.get_or_insert_default().push_front(second);
        }
    }

    #[inline]
    pub(super) fn pop_front(&mut self) -> Option<T> {
        let item = self.first.take()?;
        self.first = self.behind.as_mut().and_then(|behind| behind.pop_front());
        Some(item)
    }

    pub(super) fn pop_back(&mut self) -> Option<T> {
        self.behind.as_mut().and_then(|behind| behind.pop_back()).or_else(|| self.first.take())
    }

    pub(super) fn back(&self) -> Option<&T> {
        self.behind.as_ref().and_then(|behind| behind.back()).or(self.first.as_ref())
    }

    /// Removes the first item that `picks` selects.
    pub(super) fn remove(&mut self, mut picks: impl FnMut(&T) -> bool) -> Option<T> {
        if self.first.as_ref().is_some_and(&mut picks) {
            return self.pop_front();
        }
        let behind = self.behind.as_mut()?;
        behind.iter().position(picks).and_then(|at| behind.remove(at))
    }

    /// Returns the number of items for which there is memory.
    pub(super) fn capacity(&self) -> usize {
        self.behind.as_ref().map_or(1, |behind| behind.capacity() + 1)
    }

    /// Releases memory beyond `items` items.
    pub(super) fn shrink_to(&mut self, items: usize) {
        self.behind.iter_mut().for_each(|behind| behind.shrink_to(items.saturating_sub(1)));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::WaitingQueue;

    #[test]
    fn it_is_a_queue() {
        let mut random = fastrand::Rng::with_seed(5);
        let (mut waiting, mut model) = (WaitingQueue::new(), VecDeque::new());
        for item in 0..10_000 {
            match random.u8(..7) {
                0 | 1 => (waiting.push_back(item), model.push_back(item)).0,
                2 => (waiting.push_front(item), model.push_front(item)).0,
                3 | 4 => assert_eq!(waiting.pop_front(), model.pop_front()),
                5 => assert_eq!(waiting.pop_back(), model.pop_back()),
                _ => {
                    let picks = |known: &i32| known % 3 == 0;
                    let at = model.iter().position(picks);
                    assert_eq!(waiting.remove(picks), at.and_then(|at| model.remove(at)));
                }
            }
            assert_eq!((waiting.len(), waiting.is_empty()), (model.len(), model.is_empty()));
            assert_eq!(waiting.back(), model.back());
        }
    }
}
