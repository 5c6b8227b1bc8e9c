//! Locks for workers, which only try them. A panic of a holder leaves the protected data usable.

use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// Returns the lock, unless another thread holds it.
#[inline]
pub(crate) fn attempt<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Returns the lock, for threads that may wait.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
