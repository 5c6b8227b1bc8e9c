//! Joins threads until a deadline; logs the names of those that have not ended by then and leaves them behind.
//!
//! Every thread of the server ends soon after the stop request; the deadline covers one that does not, so that no
//! defect and no extension keeps the process from ending.

use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Pause between two looks at a thread.
const LOOK: Duration = Duration::from_micros(200);

/// A deadline for joining threads.
#[derive(Clone, Copy, Debug)]
pub struct Joining {
    deadline: Instant,
}

impl Joining {
    /// Sets the deadline for all threads together.
    #[must_use]
    pub fn within(patience: Duration) -> Self {
        Self { deadline: Instant::now() + patience }
    }

    /// Waits for a thread. Returns false if it has not ended by the deadline.
    pub fn join<T>(&self, thread: JoinHandle<T>) -> bool {
        while !thread.is_finished() {
            if Instant::now() >= self.deadline {
                let name = thread.thread().name().unwrap_or("unnamed");
                tracing::error!(thread = name, "a thread did not end in time; the server stops without it");
                return false;
            }
            thread::sleep(LOOK);
        }
        // A thread that panicked has logged it.
        let _ = thread.join();
        true
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::Duration;

    use super::Joining;

    #[test]
    fn a_thread_that_waits_for_ever_is_left_behind_and_others_are_joined() {
        let (sender, receiver) = channel::<()>();
        let waits = thread::spawn(move || receiver.recv().is_err());
        assert!(!Joining::within(Duration::from_millis(5)).join(waits));
        let ends = thread::spawn(|| ());
        assert!(Joining::within(Duration::from_secs(300)).join(ends));
        let panics = thread::spawn(|| panic!("on purpose"));
        assert!(Joining::within(Duration::from_secs(300)).join(panics));
        drop(sender);
    }
}
