//! Locks that threads try, since a worker waits for nobody. A thread that panicked inside left what can be used.

use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// The lock, unless somebody has it.
#[inline]
pub(crate) fn attempt<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// For threads that may wait.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
