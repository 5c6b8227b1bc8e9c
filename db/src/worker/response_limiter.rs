//! Rate limits for replies to strangers: a token bucket per source prefix.
//!
//! A sender without a session gets at most as many bytes as it sent, and only at the bucket's rate, so forging an
//! address gains nothing. Prefixes (/24 of IPv4, /48 of IPv6) share a fixed number of buckets, which bounds the
//! memory.

use std::net::{IpAddr, SocketAddr};

use crate::limits::SOURCE_BUCKETS;

/// A source prefix, the unit in which sources are distinguished.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SourcePrefix(u64);

impl SourcePrefix {
    /// Returns the prefix of an address.
    #[must_use]
    pub fn of(source: IpAddr) -> Self {
        Self(match source.to_canonical() {
            IpAddr::V4(address) => u64::from(address.to_bits() >> 8),
            IpAddr::V6(address) => (address.to_bits() >> 80) as u64 | 1 << 63,
        })
    }

    fn bucket(self) -> usize {
        (self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize % SOURCE_BUCKETS
    }
}

/// The rate of one kind of reply.
#[derive(Clone, Copy, Debug)]
pub struct ResponseRate {
    /// Burst of answers.
    pub burst: u32,
    /// Answers per second.
    pub per_second: u32,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    /// Remaining answers, in millionths.
    left: u64,
    filled_us: u64,
}

/// A rate limiter with a bucket per source prefix.
#[derive(Debug)]
pub struct ResponseLimiter {
    rate: ResponseRate,
    buckets: Box<[Bucket]>,
}

const WHOLE: u64 = 1_000_000;

impl ResponseLimiter {
    /// Creates a limiter whose buckets are full.
    #[must_use]
    pub fn new(rate: ResponseRate) -> Self {
        let full = Bucket { left: u64::from(rate.burst) * WHOLE, filled_us: 0 };
        Self { rate, buckets: vec![full; SOURCE_BUCKETS].into_boxed_slice() }
    }

    /// Takes one answer from the source's bucket; returns false if it is empty.
    pub fn take(&mut self, source: IpAddr, now_us: u64) -> bool {
        let bucket = &mut self.buckets[SourcePrefix::of(source).bucket()];
        let full = u64::from(self.rate.burst) * WHOLE;
        let elapsed_us = now_us.saturating_sub(bucket.filled_us);
        let gained = elapsed_us.saturating_mul(u64::from(self.rate.per_second));
        bucket.left = bucket.left.saturating_add(gained).min(full);
        bucket.filled_us = now_us;
        let allowed = bucket.left >= WHOLE;
        if allowed {
            bucket.left -= WHOLE;
        }
        allowed
    }

    /// Same as [`ResponseLimiter::take`], for the address of a frame.
    pub fn take_for(&mut self, peer: SocketAddr, now_us: u64) -> bool {
        self.take(peer.ip(), now_us)
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::{ResponseLimiter, ResponseRate};

    #[test]
    fn a_source_that_asks_too_often_gets_no_answer() {
        let mut limit = ResponseLimiter::new(ResponseRate { burst: 4, per_second: 2 });
        let source: IpAddr = [192, 0, 2, 1].into();
        let neighbour: IpAddr = [192, 0, 2, 200].into();
        let stranger: IpAddr = [198, 51, 100, 1].into();
        assert!((0..4).all(|_| limit.take(source, 0)));
        assert!(!limit.take(source, 0));
        assert!(!limit.take(neighbour, 0), "the prefix shares a bucket");
        assert!(limit.take(stranger, 0), "another prefix has its own");
        assert!(limit.take(source, 500_000));
        assert!(!limit.take(source, 500_000));
        assert!((0..4).all(|_| limit.take(source, 100_000_000)));
        assert!(!limit.take(source, 100_000_000), "a bucket holds no more than the burst");
    }
}
