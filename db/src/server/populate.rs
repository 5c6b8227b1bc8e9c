//! A thread that backs the store's memory before it is needed.
//!
//! The kernel clears a page at the first write to it: 100 us and more for 2 MiB, paid by whichever request
//! comes first, and a third of the time of a server that is being filled. A thread beside the workers takes
//! that off them: first the log, a segment at a time in the order in which it will be used, then whatever index is about
//! to grow. It holds up neither the start nor a stop; where the kernel refuses (memory is short, or older than 5.14) it
//! says so and ends, and the first writes pay as they would have.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Builder, JoinHandle};
use std::time::Duration;

use store::{AHEAD_LOOK_MS, Store};

/// Starts the thread. It ends when `stopping` is set and it is unparked, or by itself where the kernel refuses.
///
/// # Errors
/// When no thread can be started.
pub fn start(store: Arc<Store>, stopping: Arc<AtomicBool>) -> io::Result<JoinHandle<()>> {
    Builder::new().name("populate".to_owned()).spawn(move || {
        let mut segment = 0;
        while !stopping.load(Ordering::Relaxed) {
            let populated = store.populate_indexes().and_then(|()| store.populate_segment(segment));
            match populated {
                Ok(true) => segment += 1,
                Ok(false) => thread::park_timeout(Duration::from_millis(AHEAD_LOOK_MS)),
                Err(error) => {
                    tracing::warn!(%error, "memory is not backed ahead of its use");
                    return;
                }
            }
        }
    })
}
