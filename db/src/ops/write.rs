//! Operations that change one object: put, delete, increment.
//!
//! Each returns a [`WriteOutcome`]: a status with a reply of at most two words, small enough for the exactly-once ring
//! as it is. The store performs each in one atomic step.

use store::{Pinned, Table, WriteError};
use wire::{Condition, Status};

use crate::ops::WorkerEnvironment;
use crate::tenant::limit::TenantLimit;

/// The destination of a write: the part of a table that holds the key.
#[derive(Clone, Copy, Debug)]
pub struct WriteTarget<'w> {
    /// Whether the tenant may write to the table.
    pub writable: bool,
    /// The part.
    pub part: &'w Table,
    /// [`store::hash`] of the key.
    pub hash: u64,
}

/// The status of a write with the body of its reply: the first `bytes` bytes of the little-endian words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteOutcome {
    /// The status.
    pub status: Status,
    /// Bytes of the body, at most 16.
    pub bytes: usize,
    /// The body.
    pub words: [u64; 2],
}

impl WriteOutcome {
    /// Creates a status without a body.
    #[must_use]
    pub const fn bare(status: Status) -> Self {
        Self { status, bytes: 0, words: [0; 2] }
    }

    /// Creates a status with a version.
    #[must_use]
    pub const fn version(status: Status, version: u64) -> Self {
        Self { status, bytes: wire::reply::VERSION_BYTES, words: [version, 0] }
    }

    /// Creates a request to retry after this many microseconds.
    #[must_use]
    pub const fn retry(after_us: u32) -> Self {
        Self { status: Status::Retry, bytes: 4, words: [after_us as u64, 0] }
    }

    /// The write depends on an object in transit: a retry without a time.
    pub const LACKS: Self = Self::bare(Status::Retry);

    /// Returns whether it is [`WriteOutcome::LACKS`].
    #[must_use]
    pub const fn lacks(&self) -> bool {
        self.status as u8 == Status::Retry as u8 && self.bytes == 0
    }

    /// Creates the refusal of a tenant that has used up this limit; the body is its name.
    #[must_use]
    pub const fn over_quota(limit: TenantLimit) -> Self {
        let name = limit.name().as_bytes();
        assert!(name.len() <= 16, "the name fits two words");
        let mut words = [0; 2];
        let mut at = 0;
        while at < name.len() {
            words[at / 8] |= (name[at] as u64) << (8 * (at % 8));
            at += 1;
        }
        Self { status: Status::OverQuota, bytes: name.len(), words }
    }

    /// Writes the body: exactly [`WriteOutcome::bytes`].
    #[inline]
    pub fn write_body(&self, body: &mut [u8]) {
        match body.len() {
            8 => body.copy_from_slice(&self.words[0].to_le_bytes()),
            0 => {}
            _ => {
                let words = u128::from(self.words[0]) | u128::from(self.words[1]) << 64;
                body.copy_from_slice(&words.to_le_bytes()[..self.bytes]);
            }
        }
    }
}

/// Second step of a batch: prefetches the object that a put or delete will replace, for a key of `key_bytes` bytes
/// whose bucket should be in the cache by now.
#[inline]
pub fn prefetch_replaced(pin: &Pinned<'_>, part: &Table, hash: u64, key_bytes: usize) {
    pin.prefetch_replaced(part, hash, key_bytes);
}

/// Writes an object.
#[inline]
#[must_use]
pub fn put(
    pin: &Pinned<'_>,
    target: WriteTarget<'_>,
    key: &[u8],
    value: &[u8],
    condition: Condition,
) -> WriteOutcome {
    if !target.writable {
        return WriteOutcome::bare(Status::NotPermitted);
    }
    match pin.put(target.part, target.hash, key, value, to_store(condition)) {
        Ok(version) => WriteOutcome::version(Status::Ok, version),
        Err(error) => refused(error),
    }
}

/// Writes an object that expires after `ttl_ms` milliseconds.
#[must_use]
pub fn put_for(
    environment: &WorkerEnvironment<'_>,
    target: WriteTarget<'_>,
    (key, value): (&[u8], &[u8]),
    condition: Condition,
    ttl_ms: u64,
) -> WriteOutcome {
    if !target.writable {
        return WriteOutcome::bare(Status::NotPermitted);
    }
    // The sum fits: the edge has refused times beyond `TTL_MS_MAX`.
    let expires_ms = environment.core.store().now_ms().saturating_add(ttl_ms);
    match environment.pin.put_until(target.part, target.hash, key, value, expires_ms, to_store(condition)) {
        Ok(version) => WriteOutcome::version(Status::Ok, version),
        Err(error) => refused(error),
    }
}

/// Deletes an object.
#[inline]
#[must_use]
pub fn delete(pin: &Pinned<'_>, target: WriteTarget<'_>, key: &[u8], condition: Condition) -> WriteOutcome {
    if !target.writable {
        return WriteOutcome::bare(Status::NotPermitted);
    }
    match pin.delete(target.part, target.hash, key, to_store(condition)) {
        Ok(Some(version)) => WriteOutcome::version(Status::Ok, version),
        Ok(None) => WriteOutcome::bare(Status::NotFound),
        Err(error) => refused(error),
    }
}

/// Adds to the number in an object.
#[inline]
#[must_use]
pub fn increment(pin: &Pinned<'_>, target: WriteTarget<'_>, key: &[u8], delta: i64) -> WriteOutcome {
    if !target.writable {
        return WriteOutcome::bare(Status::NotPermitted);
    }
    match pin.increment(target.part, target.hash, key, delta) {
        Ok((version, value)) => {
            WriteOutcome { status: Status::Ok, bytes: 16, words: [version, value as u64] }
        }
        Err(error) => refused(error),
    }
}

/// Adds to the floating point number in an object. A number that is not finite is not added.
#[must_use]
pub fn increment_float(pin: &Pinned<'_>, target: WriteTarget<'_>, key: &[u8], delta: f64) -> WriteOutcome {
    if !target.writable {
        return WriteOutcome::bare(Status::NotPermitted);
    }
    if !delta.is_finite() {
        return WriteOutcome::bare(Status::OutOfRange);
    }
    match pin.increment_float(target.part, target.hash, key, delta) {
        Ok((version, value)) => {
            WriteOutcome { status: Status::Ok, bytes: 16, words: [version, value.to_bits()] }
        }
        Err(error) => refused(error),
    }
}

/// Converts a wire condition to a store condition.
#[inline]
#[must_use]
pub const fn to_store(condition: Condition) -> store::Condition {
    match condition {
        Condition::Always => store::Condition::Always,
        Condition::Absent => store::Condition::Absent,
        Condition::Present => store::Condition::Present,
        Condition::Version(version) => store::Condition::Version(version),
    }
}

/// Converts the store's refusal to its wire form. No other place decides this.
#[must_use]
pub fn refused(error: WriteError) -> WriteOutcome {
    match error {
        WriteError::ConditionFailed { current } => WriteOutcome::version(Status::ConditionFailed, current),
        WriteError::Retry { after_us } => WriteOutcome::retry(after_us),
        WriteError::NotANumber => WriteOutcome::bare(Status::NotANumber),
        WriteError::Overflow => WriteOutcome::bare(Status::Overflow),
        WriteError::OutOfMemory => WriteOutcome::bare(Status::OutOfMemory),
        WriteError::OverQuota => const { WriteOutcome::over_quota(TenantLimit::MemoryBytes) },
        WriteError::OverBudget => WriteOutcome::bare(Status::OverBudget),
        WriteError::KeyTooLarge => WriteOutcome::bare(Status::KeyTooLarge),
        WriteError::ValueTooLarge => WriteOutcome::bare(Status::ValueTooLarge),
        WriteError::Collisions => WriteOutcome::bare(Status::Collisions),
        WriteError::TableRetired => WriteOutcome::bare(Status::UnknownTable),
        WriteError::StorageFull => WriteOutcome::bare(Status::StorageFull),
        WriteError::StorageFailed => WriteOutcome::bare(Status::StorageFailed),
        WriteError::NotArrived => WriteOutcome::LACKS,
    }
}

#[cfg(test)]
mod tests {
    use super::{WriteOutcome, refused};
    use wire::Status;

    #[test]
    fn the_body_is_the_words_little_endian() {
        let outcome = WriteOutcome { status: Status::Ok, bytes: 16, words: [1, u64::MAX] };
        let mut body = [0; 16];
        outcome.write_body(&mut body);
        assert_eq!(wire::reply::Number::decode(&body).map(|sum| (sum.version, sum.value)), Ok((1, -1)));
        let mut body = [0; 4];
        WriteOutcome::retry(77).write_body(&mut body);
        assert_eq!(wire::reply::decode_retry(&body), Ok(77));
        let over = refused(store::WriteError::OverQuota);
        let mut body = [0; 12];
        over.write_body(&mut body);
        assert_eq!((over.status, over.bytes, &body), (Status::OverQuota, 12, b"memory_bytes"));
        let mut body = [0; 8];
        WriteOutcome::version(Status::Ok, 9).write_body(&mut body);
        assert_eq!(wire::reply::decode_version(&body), Ok(9));
    }
}
