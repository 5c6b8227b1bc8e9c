//! The store's memory: backed before its use by a thread, and reported when it fails.
//!
//! The kernel clears a page at the first write to it: 100 us and more for 2 MiB, paid by the first request, and a
//! third of the time of a server that is being filled. A separate thread relieves the workers of that, a segment at a
//! time in the order in which the log will use them. It delays neither the start nor a stop, and leaves the CPUs to a replay
//! of the log and who waits for it. If the kernel refuses
//! (memory is short, or the kernel is older than 5.14) the thread logs that and ends, and the first writes pay the
//! cost.
//!
//! The cleaner checks each object that it copies against its checksum. It runs on workers and therefore only counts
//! damage; housekeeping reads the counters and informs the operator once that memory fails.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Builder, JoinHandle};
use std::time::Duration;

use store::Store;

use crate::front::gate::Gate;

/// Interval at which is looked whether the log is replayed.
const LOOK: Duration = Duration::from_millis(10);

/// Starts the thread that backs the memory once the log is replayed. It ends automatically, earlier if `stopping` is set.
///
/// # Errors
/// If the thread cannot be started.
pub fn populate(
    store: Arc<Store>,
    (gate, stopping): (Arc<Gate>, Arc<AtomicBool>),
) -> io::Result<JoinHandle<()>> {
    Builder::new().name("populate".to_owned()).spawn(move || {
        while !gate.has_replayed() && !stopping.load(Ordering::Relaxed) {
            thread::park_timeout(LOOK);
        }
        for segment in 0.. {
            if stopping.load(Ordering::Relaxed) {
                return;
            }
            match store.populate_segment(segment) {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => {
                    tracing::warn!(%error, "cannot back memory ahead of its use");
                    return;
                }
            }
        }
    })
}

/// The counts already reported.
#[derive(Debug, Default)]
pub struct Damage {
    told: (u64, u64),
}

impl Damage {
    /// Logs the damage found since the last call.
    pub fn look(&mut self, store: &Store) {
        if let Some((objects, segments)) = self.news(store.damaged()) {
            tracing::error!(
                objects,
                segments,
                "memory corruption: the objects are lost, the segments set aside; check other objects with \
                 `splinter table verify`"
            );
        }
    }

    fn news(&mut self, found: (u64, u64)) -> Option<(u64, u64)> {
        let told = std::mem::replace(&mut self.told, found);
        (found != told).then(|| (found.0 - told.0, found.1 - told.1))
    }
}

#[cfg(test)]
mod tests {
    use super::Damage;

    #[test]
    fn what_was_told_is_not_told_again() {
        let mut damage = Damage::default();
        let news = [(0, 0), (2, 0), (2, 0), (3, 1)].map(|found| damage.news(found));
        assert_eq!(news, [None, Some((2, 0)), None, Some((1, 1))]);
    }
}
