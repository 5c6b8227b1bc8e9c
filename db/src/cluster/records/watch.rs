//! A watch: the commits that changed records of a prefix, one after another, through a bounded channel.
//!
//! A watch that cannot go on without a gap ends and says so: who watches reads everything again and begins anew.
//! That happens when who watches is too slow, or when what happened is not kept any more.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use super::Revision;
use crate::limits::WATCH_EVENTS_MAX;

/// A commit as a watch shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The commit.
    pub revision: Revision,
    /// The keys that it changed, with their values; nothing when the record was deleted.
    pub changes: Vec<(String, Option<Vec<u8>>)>,
}

/// Why there is no event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchEnd {
    /// None came in time: the watch goes on.
    Quiet,
    /// There is a gap behind the last event: read everything again.
    Lost,
    /// Whoever keeps the records is closed.
    Closed,
}

/// Who watches has this.
#[derive(Debug)]
pub struct Watch {
    events: Receiver<Event>,
    lost: Arc<AtomicBool>,
}

/// Who keeps records has this.
#[derive(Debug)]
pub struct WatchSource {
    events: SyncSender<Event>,
    lost: Arc<AtomicBool>,
}

impl Watch {
    /// A watch and its source.
    #[must_use]
    pub fn pair() -> (WatchSource, Self) {
        let (sender, events) = sync_channel(WATCH_EVENTS_MAX);
        let lost = Arc::new(AtomicBool::new(false));
        (WatchSource { events: sender, lost: Arc::clone(&lost) }, Self { events, lost })
    }

    /// The next event.
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
    /// Shows an event. False when nobody is to be shown any more: the source is dropped then.
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

    /// Says that there is a gap. The source is dropped next.
    pub fn lose(&self) {
        self.lost.store(true, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Event, Watch, WatchEnd};
    use crate::cluster::records::Revision;
    use crate::limits::WATCH_EVENTS_MAX;

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
