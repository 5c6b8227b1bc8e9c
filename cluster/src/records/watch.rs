//! A watch: the commits that changed records of a prefix, in order, through a bounded channel.
//!
//! A watch that cannot continue without a gap ends with that error, and its reader reads everything again and starts a
//! new one. That happens when the reader is too slow, or when the history is no longer kept.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use super::Revision;
use crate::limits::WATCH_EVENTS_MAX;

/// A commit as seen by a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The commit.
    pub revision: Revision,
    /// The changed keys with their values; `None` for a deleted record.
    pub changes: Vec<(String, Option<Vec<u8>>)>,
}

/// The reason why there is no event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchEnd {
    /// None came in time; the watch continues.
    Quiet,
    /// There is a gap after the last event: everything must be read again.
    Lost,
    /// The storage is closed.
    Closed,
}

/// The receiving end of a watch.
#[derive(Debug)]
pub struct Watch {
    events: Receiver<Event>,
    lost: Arc<AtomicBool>,
}

/// The sending end of a watch, held by the storage.
#[derive(Debug)]
pub struct WatchSource {
    events: SyncSender<Event>,
    lost: Arc<AtomicBool>,
}

impl Watch {
    /// Creates a watch and its source.
    #[must_use]
    pub fn pair() -> (WatchSource, Self) {
        let (sender, events) = sync_channel(WATCH_EVENTS_MAX);
        let lost = Arc::new(AtomicBool::new(false));
        (WatchSource { events: sender, lost: Arc::clone(&lost) }, Self { events, lost })
    }

    /// Returns the next event.
    ///
    /// # Errors
    /// `Quiet` when none comes within `timeout`, or why there will be none.
    pub fn next(&self, timeout: Duration) -> Result<Event, WatchEnd> {
        self.events.recv_timeout(timeout).map_err(|error| match error {
            RecvTimeoutError::Timeout => WatchEnd::Quiet,
            RecvTimeoutError::Disconnected if self.lost.load(Ordering::Acquire) => WatchEnd::Lost,
            RecvTimeoutError::Disconnected => WatchEnd::Closed,
        })
    }
}

impl WatchSource {
    /// Sends an event. Returns false if nothing receives it any more; the source is dropped then.
    #[must_use]
    pub fn show(&self, event: Event) -> bool {
        match self.events.try_send(event) {
            Ok(()) => true,
            Err(TrySendError::Full(_)) => {
                self.lose();
                false
            }
            Err(TrySendError::Disconnected(_)) => false,
        }
    }

    /// Reports a gap. The source is dropped next.
    pub fn lose(&self) {
        self.lost.store(true, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Event, Watch, WatchEnd};
    use crate::limits::WATCH_EVENTS_MAX;
    use crate::records::Revision;

    #[test]
    fn who_is_too_slow_is_told_after_what_it_can_still_read() {
        let (source, watch) = Watch::pair();
        let event = |number| Event { revision: Revision(number as u64), changes: Vec::new() };
        for number in 0..WATCH_EVENTS_MAX {
            assert!(source.show(event(number)));
        }
        assert_eq!(watch.next(Duration::ZERO), Ok(event(0)));
        assert!(source.show(event(WATCH_EVENTS_MAX)));
        assert!(!source.show(event(WATCH_EVENTS_MAX + 1)));
        drop(source);
        for number in 1..=WATCH_EVENTS_MAX {
            assert_eq!(watch.next(Duration::ZERO), Ok(event(number)));
        }
        assert_eq!(watch.next(Duration::ZERO), Err(WatchEnd::Lost));
    }
}
