//! Waiting for threads to end, until a deadline: those that have not ended by then are named in the log and left behind.
//!
//! Every thread of the server ends by itself soon after it was told to; a deadline is for the one that does not, so that no
//! defect and no extension keeps the process from its end.

use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Between two looks at a thread.
const LOOK: Duration = Duration::from_micros(200);

/// See the file's head.
#[derive(Clone, Copy, Debug)]
pub struct Joining {
    deadline: Instant,
}

impl Joining {
    /// For so long, whatever the number of threads.
    #[must_use]
    pub fn within(patience: Duration) -> Self {
        Self { deadline: Instant::now() + patience }
    }

    /// Waits for a thread. False when it has not ended by the deadline.
    pub fn join<T>(&self, thread: JoinHandle<T>) -> bool {
        while !thread.is_finished() {
            if Instant::now() >= self.deadline {
                let name = thread.thread().name().unwrap_or("a thread without a name");
                tracing::error!(thread = name, "a thread does not end, the server stops without it");
                return false;
            }
            thread::sleep(LOOK);
        }
        // One that panicked has said so.
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
