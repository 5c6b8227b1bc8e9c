//! A thread that backs the store's memory before its use, then ends.
//!
//! The kernel clears a page at the first write to it: 100 us and more for 2 MiB, paid by the first request, and a
//! third of the time of a server that is being filled. A separate thread relieves the workers of that, a segment at a
//! time in the order in which the log will use them. It delays neither the start nor a stop. If the kernel refuses
//! (memory is short, or the kernel is older than 5.14) the thread logs that and ends, and the first writes pay the
//! cost.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};

use store::Store;

/// Starts the thread. It ends automatically, earlier if `stopping` is set.
///
/// # Errors
/// If the thread cannot be started.
pub fn start(store: Arc<Store>, stopping: Arc<AtomicBool>) -> io::Result<JoinHandle<()>> {
    Builder::new().name("populate".to_owned()).spawn(move || {
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
