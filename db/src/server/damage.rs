//! Reports damaged memory: logs once what the cleaner has found.
//!
//! The cleaner checks each object that it copies against its checksum. It runs on workers and therefore only counts
//! damage; housekeeping reads the counters and informs the operator that memory fails.

use store::Store;

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
