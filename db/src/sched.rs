//! Scheduling between workers: the load of each, and a queue through which a loaded one offers work to others.
//!
//! ```text
//!   word of a load = 0                            the last look at the port found nothing
//!   word = begin of the round in us << 2 | 2 if the batch was cut | 1
//! ```
//! Only the worker writes its [`Load`], once per round while there is work and once when the work ends; workers without
//! work read it. Every access is relaxed, because the words are hints. A stale one costs a look at an empty port or
//! delays a frame by one round; no memory is reached through them.
//!
//! ```text
//!   cell:   turn │ item          a cell at position p (of every lap) is
//!                                  free    when turn = p         ─ the thread that moves the tail from p fills it
//!                                  filled  when turn = p + 1     ─ the thread that moves the head from p empties it
//!                                  then    turn = p + capacity: free for the next lap
//! ```
//! [`Offers`] is Vyukov's bounded queue ("Bounded MPMC queue", 1024cores.net). One worker puts and many take, including that worker;
//! the queue is sound for any number of threads on both sides, so this pattern is not required. No thread waits for
//! another: a thread that stops in the middle of a `take` keeps its one cell, and the only effect is that the queue is
//! full a lap later.
//!
//! Orderings: `turn` is stored with release after the item was written or read, and loaded with acquire before the item
//! is read or written, so the item's bytes become visible from thread to thread. Head and tail only assign positions,
//! relaxed: the compare-and-swap or the cell's turn rejects a stale position. A position repeats only after the whole
//! number range.

use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicU64};

use crate::limits::{ABSENT_AFTER_US, STEAL_AFTER_US};
use crate::sync::{AtomicUsize, Ordering, UnsafeCell};

const WORKING: u64 = 1;
const CUT: u64 = 2;

/// The load of one worker, on its own cache line.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Load {
    word: AtomicU64,
    asleep: AtomicBool,
}

impl Load {
    /// Notes that a round with work begins. `cut` says that more frames wait than the round has taken.
    #[inline]
    pub fn work(&self, now_us: u64, cut: bool) {
        let cut = if cut { CUT } else { 0 };
        self.word.store(now_us << 2 | cut | WORKING, Ordering::Relaxed);
    }

    /// Notes that there is nothing to do.
    #[inline]
    pub fn rest(&self) {
        // A line that others read is written only when it changes.
        if self.word.load(Ordering::Relaxed) != 0 {
            self.word.store(0, Ordering::Relaxed);
        }
    }

    /// Returns whether frames wait at the worker's port: it left some, or has not looked for a while.
    #[inline]
    #[must_use]
    pub fn is_loaded(&self, now_us: u64) -> bool {
        let word = self.word.load(Ordering::Relaxed);
        word & CUT != 0 || (word & WORKING != 0 && now_us.saturating_sub(word >> 2) >= STEAL_AFTER_US)
    }

    /// Returns whether the worker has nothing to do.
    #[inline]
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.word.load(Ordering::Relaxed) == 0
    }

    /// Returns whether the worker has been away from its port for longer than any round takes.
    #[must_use]
    pub fn is_absent(&self, now_us: u64) -> bool {
        let word = self.word.load(Ordering::Relaxed);
        word & WORKING != 0 && now_us.saturating_sub(word >> 2) >= ABSENT_AFTER_US
    }

    /// Notes that the worker goes to sleep or has woken up.
    #[inline]
    pub fn set_asleep(&self, asleep: bool) {
        self.asleep.store(asleep, Ordering::Relaxed);
    }

    /// Returns whether the worker sleeps.
    #[inline]
    #[must_use]
    pub fn is_asleep(&self) -> bool {
        self.asleep.load(Ordering::Relaxed)
    }
}

/// A value on its own cache line: different threads move head and tail.
#[repr(align(128))]
#[derive(Debug)]
struct Line<T>(T);

#[derive(Debug)]
struct Cell<T> {
    turn: AtomicUsize,
    item: UnsafeCell<MaybeUninit<T>>,
}

/// A bounded lock-free queue of offered work.
#[derive(Debug)]
pub struct Offers<T> {
    cells: Box<[Cell<T>]>,
    head: Line<AtomicUsize>,
    tail: Line<AtomicUsize>,
}

// SAFETY: an item is touched by the one thread that moved the head or the tail over its cell, and goes from thread
// to thread by the release and acquire of the cell's turn.
unsafe impl<T: Send> Send for Offers<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Offers<T> {}

impl<T> Offers<T> {
    /// Creates an empty queue for `capacity` items.
    ///
    /// # Panics
    /// When `capacity` is not a power of two above 1: with one cell, filled and free for the next lap look alike.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        assert!(capacity.is_power_of_two() && capacity > 1);
        let cell = |turn| Cell { turn: AtomicUsize::new(turn), item: UnsafeCell::new(MaybeUninit::uninit()) };
        Self {
            cells: (0..capacity).map(cell).collect(),
            head: Line(AtomicUsize::new(0)),
            tail: Line(AtomicUsize::new(0)),
        }
    }

    /// Returns whether the queue seems empty.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.head.0.load(Ordering::Relaxed) == self.tail.0.load(Ordering::Relaxed)
    }

    /// Returns whether the queue seems full.
    #[inline]
    #[must_use]
    pub fn is_full(&self) -> bool {
        let filled = self.tail.0.load(Ordering::Relaxed).wrapping_sub(self.head.0.load(Ordering::Relaxed));
        // The head may have passed the tail that was read before it.
        filled as isize >= self.cells.len() as isize
    }

    /// Appends an item; returns it when the queue is full.
    ///
    /// # Errors
    /// The item.
    pub fn put(&self, item: T) -> Result<(), T> {
        let mut position = self.tail.0.load(Ordering::Relaxed);
        loop {
            let cell = self.cell(position);
            match distance(cell.turn.load(Ordering::Acquire), position) {
                0 => match self.advance(&self.tail.0, position) {
                    Ok(()) => {
                        // SAFETY: the cell is free, and the position was handed out to this thread alone.
                        cell.item.with_mut(|place| unsafe { (*place).write(item) });
                        cell.turn.store(position.wrapping_add(1), Ordering::Release);
                        return Ok(());
                    }
                    Err(now) => position = now,
                },
                // The item of the lap before is in it, or on its way out.
                ..0 => return Err(item),
                _ => position = self.tail.0.load(Ordering::Relaxed),
            }
        }
    }

    /// Takes the oldest item.
    pub fn take(&self) -> Option<T> {
        let mut position = self.head.0.load(Ordering::Relaxed);
        loop {
            let cell = self.cell(position);
            match distance(cell.turn.load(Ordering::Acquire), position.wrapping_add(1)) {
                0 => match self.advance(&self.head.0, position) {
                    Ok(()) => {
                        // SAFETY: the cell is filled, and the position was handed out to this thread alone.
                        let item = cell.item.with_mut(|place| unsafe { (*place).assume_init_read() });
                        cell.turn.store(position.wrapping_add(self.cells.len()), Ordering::Release);
                        return Some(item);
                    }
                    Err(now) => position = now,
                },
                // Nothing there, or on its way in.
                ..0 => return None,
                _ => position = self.head.0.load(Ordering::Relaxed),
            }
        }
    }

    #[inline]
    fn cell(&self, position: usize) -> &Cell<T> {
        &self.cells[position & (self.cells.len() - 1)]
    }

    /// Assigns `position` to one thread; otherwise returns the current position.
    #[inline]
    fn advance(&self, counter: &AtomicUsize, position: usize) -> Result<(), usize> {
        let next = position.wrapping_add(1);
        counter.compare_exchange_weak(position, next, Ordering::Relaxed, Ordering::Relaxed).map(drop)
    }
}

impl<T> Drop for Offers<T> {
    fn drop(&mut self) {
        while self.take().is_some() {}
    }
}

/// Returns the distance of `turn` ahead of `expected`, modulo the number range.
#[inline]
fn distance(turn: usize, expected: usize) -> isize {
    turn.wrapping_sub(expected) as isize
}

#[cfg(all(test, not(loom_model)))]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::{Load, Offers};
    use crate::limits::{ABSENT_AFTER_US, STEAL_AFTER_US};

    #[test]
    fn items_come_out_in_order_and_a_full_queue_takes_none() {
        let offers = Offers::new(4);
        assert!(offers.is_empty());
        for lap in 0..10 {
            for number in 0..4 {
                offers.put(4 * lap + number).expect("there is room");
            }
            assert_eq!(offers.put(99), Err(99));
            assert!(!offers.is_empty() && offers.is_full());
            let taken: Vec<_> = std::iter::from_fn(|| offers.take()).collect();
            assert_eq!(taken, (4 * lap..4 * lap + 4).collect::<Vec<_>>());
        }
    }

    #[test]
    fn what_nobody_took_is_dropped_with_the_queue() {
        let counted = Arc::new(());
        let offers = Offers::new(2);
        offers.put(Arc::clone(&counted)).expect("there is room");
        offers.put(Arc::clone(&counted)).expect("there is room");
        drop(offers.take());
        assert_eq!(Arc::strong_count(&counted), 2);
        drop(offers);
        assert_eq!(Arc::strong_count(&counted), 1);
    }

    #[test]
    fn each_item_is_taken_once_by_many_threads() {
        const ITEMS: u64 = 5_000;
        let (offers, sum, taken) = (Offers::<Box<u64>>::new(8), AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while taken.load(Ordering::Relaxed) < ITEMS {
                        let Some(item) = offers.take() else {
                            std::thread::yield_now();
                            continue;
                        };
                        sum.fetch_add(*item, Ordering::Relaxed);
                        taken.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            for number in 1..=ITEMS {
                let mut item = Box::new(number);
                while let Err(back) = offers.put(item) {
                    item = back;
                    std::thread::yield_now();
                }
            }
        });
        assert_eq!(sum.into_inner(), ITEMS * (ITEMS + 1) / 2);
    }

    #[test]
    fn a_worker_is_loaded_when_it_left_frames_behind_or_stays_away() {
        let load = Load::default();
        assert!(!load.is_loaded(1_000_000));
        load.work(1_000_000, false);
        assert!(!load.is_loaded(1_000_000 + STEAL_AFTER_US - 1));
        assert!(load.is_loaded(1_000_000 + STEAL_AFTER_US));
        load.work(2_000_000, true);
        assert!(load.is_loaded(2_000_000));
        assert!(!load.is_absent(2_000_000 + ABSENT_AFTER_US - 1));
        assert!(load.is_absent(2_000_000 + ABSENT_AFTER_US));
        load.rest();
        assert!(!load.is_loaded(9_000_000) && !load.is_absent(9_000_000));
    }
}

#[cfg(all(test, loom_model))]
mod loom_tests {
    use std::sync::Arc;

    use loom::thread;

    use super::Offers;

    /// One puts in and takes back, two others take: each item is had once, whole, and none is lost.
    #[test]
    fn loom_each_offer_is_taken_once() {
        loom::model(|| {
            let offers = Arc::new(Offers::new(2));
            let others: Vec<_> = (0..2)
                .map(|_| {
                    let offers = Arc::clone(&offers);
                    thread::spawn(move || offers.take().map_or(0, |item: Box<u64>| *item))
                })
                .collect();
            offers.put(Box::new(1)).expect("there is room");
            offers.put(Box::new(10)).expect("there is room");
            let mut sum = offers.take().map_or(0, |item| *item);
            for other in others {
                sum += other.join().expect("the other does not panic");
            }
            sum += std::iter::from_fn(|| offers.take()).map(|item| *item).sum::<u64>();
            assert_eq!(sum, 11);
        });
    }

    /// A cell is filled again, a lap later, only when its item is out.
    #[test]
    fn loom_a_cell_is_used_again_when_it_is_empty() {
        loom::model(|| {
            let offers = Arc::new(Offers::new(2));
            offers.put(Box::new(1)).expect("there is room");
            offers.put(Box::new(10)).expect("there is room");
            let other = {
                let offers = Arc::clone(&offers);
                thread::spawn(move || offers.take().map_or(0, |item: Box<u64>| *item))
            };
            let put = match offers.put(Box::new(100)) {
                Ok(()) => 100,
                Err(_) => 0,
            };
            let mut sum = other.join().expect("the other does not panic");
            sum += std::iter::from_fn(|| offers.take()).map(|item| *item).sum::<u64>();
            assert_eq!(sum, 11 + put);
        });
    }
}
