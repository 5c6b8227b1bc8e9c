//! Who pulls: bulk pulls of partitions in any order and at any pace, priority pulls of what is wanted.

use std::thread;

use store::{Core, Cursor, ReplayError, Replayed, WriteError};

use super::site::{PARTITIONS, Site, Source};

/// Pulls into a site's part.
pub struct Driver<'s> {
    pub site: &'s Site,
    pub source: &'s Source,
    core: Core,
    source_core: Core,
    /// Where each partition goes on; `None` where it is done.
    next: [Option<Cursor>; PARTITIONS],
    pub priority_hashes: u64,
}

impl<'s> Driver<'s> {
    pub fn new(site: &'s Site, source: &'s Source) -> Self {
        let core = site.store.core(super::site::WORKERS);
        let mut next = [None; PARTITIONS];
        for (next, hashes) in next.iter_mut().zip(site.part.partitions()) {
            *next = Some(Cursor::before(hashes.first()));
        }
        Self { site, source, core, source_core: source.store.core(0), next, priority_hashes: 0 }
    }

    /// Takes at most so many of the hashes that are wanted, and pulls them. How many there were.
    pub fn pull_wanted(&mut self, count_max: usize) -> usize {
        let mut hashes = Vec::new();
        self.site.part.take_wanted(count_max, &mut hashes);
        if hashes.is_empty() {
            return 0;
        }
        let mut pull = Vec::new();
        let source = self.source_core.pin();
        hashes.iter().for_each(|&hash| source.gather_hash(&self.source.table, hash, &mut pull));
        self.replay(&pull);
        self.site.part.pulled(&hashes);
        self.site.wake(Some(&hashes));
        self.priority_hashes += hashes.len() as u64;
        hashes.len()
    }

    /// One pull of a partition. False where it is done.
    pub fn pull(&mut self, partition: usize, bytes_max: usize) -> bool {
        let Some(from) = self.next[partition] else { return false };
        let last = self.site.part.partitions()[partition].last();
        let mut pull = Vec::new();
        let source = self.source_core.pin();
        let next = source.gather(&self.source.table, from, last, bytes_max, &mut pull).expect("it is there");
        self.replay(&pull);
        if let Some(done) = next.map_or(Some(last), |next| next.done_to()) {
            let partition_first = self.site.part.partitions()[partition].first();
            if done >= partition_first {
                self.site.part.arrived(partition, done.min(last));
            }
        }
        self.next[partition] = next;
        true
    }

    /// Whether all has arrived.
    pub fn is_done(&self) -> bool {
        self.next.iter().all(Option::is_none)
    }

    /// Pulls everything, at random.
    pub fn run(&mut self, seed: u64) {
        let mut random = fastrand::Rng::with_seed(seed);
        while !self.is_done() {
            if random.u8(..3) > 0 {
                self.pull_wanted(1 + random.usize(..16));
            }
            if random.u8(..40) == 0 {
                self.pull(random.usize(..PARTITIONS), 1 << random.usize(4..12));
            }
            if random.bool() {
                thread::yield_now();
            }
        }
        assert!(self.site.part.is_complete());
        self.site.wake(None);
    }

    fn replay(&self, mut pull: &[u8]) {
        let (pin, mut replayed) = (self.core.pin(), Replayed::default());
        let hashes = self.site.part.hashes();
        while let Err(error) = pin.replay(&self.site.part, hashes, &mut pull, &mut replayed) {
            // The index grows meanwhile.
            assert!(matches!(error, ReplayError::Refused(WriteError::Retry { .. })), "{error}");
            self.core.step();
            thread::yield_now();
        }
        assert_eq!(replayed.corrupted, 0);
    }
}
