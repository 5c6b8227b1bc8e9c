//! A thread that backs the store's memory before it is needed, then ends.
//!
//! The kernel clears a page at the first write to it: 100 us and more for 2 MiB, paid by whichever request
//! comes first, and a third of the time of a server that is being filled. A thread beside the workers takes
//! that off them, a segment at a time in the order in which the log will use them. It holds up neither the
//! start nor a stop; where the kernel refuses (memory is short, or older than 5.14) it says so and ends, and
//! the first writes pay as they would have.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};

use store::Store;

/// Starts the thread. It ends by itself, earlier when `stopping` is set.
///
/// # Errors
/// When no thread can be started.
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
                    tracing::warn!(%error, "memory is not backed ahead of its use");
                    return;
                }
            }
        }
    })
}
