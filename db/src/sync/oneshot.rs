//! One value from a worker to a waiting thread; the worker never waits.
//!
//! Sending is a pointer exchange and, if the receiver sleeps, the system call that wakes it. The channels of the
//! standard library take a lock there that the waiting thread also takes.

use std::marker::PhantomData;
use std::sync::Arc;
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use store::AtomicBox;

use super::{AtomicUsize, Ordering};

#[derive(Debug)]
struct Shared<T> {
    value: AtomicBox<T>,
    senders: AtomicUsize,
    waiting: Thread,
}

/// The sending end. A value may have several senders; one value is received.
#[derive(Debug)]
pub struct Sender<T>(Arc<Shared<T>>);

/// The receiving end, which stays on the thread that created it.
#[derive(Debug)]
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
    _stays: PhantomData<*const ()>,
}

/// The reason why there is no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoValue {
    /// No value was sent yet.
    Yet,
    /// All senders are gone.
    Ever,
}

/// Creates both ends; the calling thread receives.
#[must_use]
pub fn oneshot<T>() -> (Sender<T>, Receiver<T>) {
    let (value, senders) = (AtomicBox::empty(), AtomicUsize::new(1));
    let shared = Arc::new(Shared { value, senders, waiting: thread::current() });
    (Sender(Arc::clone(&shared)), Receiver { shared, _stays: PhantomData })
}

impl<T> Sender<T> {
    /// Sends the value, which is dropped if the receiver is gone.
    pub fn send(&self, value: T) {
        // Of two sent values the later one is received, if it is in time.
        drop(self.0.value.put(Box::new(value)));
        self.0.waiting.unpark();
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.0.senders.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(&self.0))
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        if self.0.senders.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.waiting.unpark();
        }
    }
}

impl<T> Receiver<T> {
    /// Returns the value, if it was sent.
    ///
    /// # Errors
    /// [`NoValue`].
    pub fn try_receive(&self) -> Result<T, NoValue> {
        // Looked at first: what the last one has sent is seen then.
        let is_left = self.shared.senders.load(Ordering::Acquire) == 0;
        let none = if is_left { NoValue::Ever } else { NoValue::Yet };
        self.shared.value.take().map(|value| *value).ok_or(none)
    }

    /// Waits for the value.
    ///
    /// # Errors
    /// When all senders are gone.
    pub fn receive(&self) -> Result<T, NoValue> {
        self.wait(|| {
            thread::park();
            true
        })
    }

    /// Waits for the value for at most `timeout`.
    ///
    /// # Errors
    /// [`NoValue`].
    pub fn receive_within(&self, timeout: Duration) -> Result<T, NoValue> {
        let due = Instant::now() + timeout;
        self.wait(|| {
            let left = due.saturating_duration_since(Instant::now());
            thread::park_timeout(left);
            !left.is_zero()
        })
    }

    /// Waits for the value; `sleep` returns whether time is left for another check.
    fn wait(&self, sleep: impl Fn() -> bool) -> Result<T, NoValue> {
        loop {
            match self.try_receive() {
                Err(NoValue::Yet) if sleep() => {}
                received => return received,
            }
        }
    }
}

#[cfg(all(test, not(loom_model)))]
mod tests {
    use std::thread;
    use std::time::Duration;

    use super::{NoValue, oneshot};

    #[test]
    fn a_value_reaches_the_thread_that_waits_for_it() {
        for _ in 0..1_000 {
            let (sender, receiver) = oneshot();
            let other = thread::spawn(move || sender.send(7));
            assert_eq!(receiver.receive(), Ok(7));
            other.join().expect("no panic");
            assert_eq!(receiver.receive(), Err(NoValue::Ever));
        }
    }

    #[test]
    fn who_waits_hears_that_nobody_is_left_and_that_time_is_over() {
        let (sender, receiver) = oneshot::<u8>();
        let copy = sender.clone();
        assert_eq!(receiver.try_receive(), Err(NoValue::Yet));
        assert_eq!(receiver.receive_within(Duration::from_millis(1)), Err(NoValue::Yet));
        drop(sender);
        let other = thread::spawn(move || drop(copy));
        assert_eq!(receiver.receive(), Err(NoValue::Ever));
        other.join().expect("no panic");
    }

    #[test]
    fn a_value_that_was_sent_in_time_is_had_though_its_sender_is_gone() {
        let (sender, receiver) = oneshot();
        sender.send(1);
        drop(sender);
        assert_eq!(receiver.receive_within(Duration::ZERO), Ok(1));
    }
}
