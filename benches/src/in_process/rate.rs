//! How many reads or writes a second a side does, on one core or several at once.
//!
//! Each thread is pinned to its core, draws numbers and hands them over in batches for a given time; it looks at the
//! clock every so many batches. All begin together. Drawing and hashing are in the figure (3 and 5 ns of each). A
//! second is one of the thread's own processor time: what else runs on the machine takes less away from the figure,
//! and on a quiet machine it is the same.

use std::sync::Barrier;

use fastrand::Rng;

use crate::in_process::side::{BATCH_MAX, Side, Worker};
use crate::machine;

/// Batches between two looks at the clock: some 0.1 ms.
const BATCHES_PER_LOOK: u32 = 32;

/// What the threads do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Reads.
    Read,
    /// Writes over what is there.
    Write,
}

/// One measurement.
#[derive(Clone, Copy, Debug)]
pub struct StoreRate<'a> {
    /// Numbers are drawn from below this.
    pub numbers: u64,
    /// How many are handed over together.
    pub batch: usize,
    /// How long.
    pub seconds: f64,
    /// Where each thread runs; as many threads as cores.
    pub cores: &'a [usize],
    /// Seed of the choices.
    pub seed: u64,
}

impl StoreRate<'_> {
    /// Operations a second of all threads together.
    pub fn measure(&self, side: &dyn Side, work: Work) -> Result<f64, String> {
        assert!((1..=BATCH_MAX).contains(&self.batch), "a batch has a length");
        let barrier = Barrier::new(self.cores.len());
        std::thread::scope(|scope| {
            let start = |(index, &core): (usize, &usize)| {
                let barrier = &barrier;
                let body = move || {
                    let pinned = machine::pin(core);
                    let mut worker = side.worker(index);
                    barrier.wait();
                    pinned?;
                    self.drive(&mut *worker, work, self.seed + index as u64)
                };
                scope.spawn(body)
            };
            let threads: Vec<_> = self.cores.iter().enumerate().map(start).collect();
            let joined = threads.into_iter().map(|thread| thread.join().map_err(|_| "a thread panicked")?);
            joined.sum::<Result<f64, String>>()
        })
    }

    fn drive(&self, worker: &mut dyn Worker, work: Work, seed: u64) -> Result<f64, String> {
        let mut random = Rng::with_seed(seed);
        let mut numbers = [0; BATCH_MAX];
        let numbers = &mut numbers[..self.batch];
        let (start_ns, length_ns) = (machine::own_cpu_ns(), (self.seconds * 1e9) as u64);
        let (mut done, mut missing) = (0_u64, 0_u64);
        loop {
            for _ in 0..BATCHES_PER_LOOK {
                numbers.iter_mut().for_each(|number| *number = random.u64(0..self.numbers));
                match work {
                    Work::Read => missing += (self.batch - worker.read(numbers)) as u64,
                    Work::Write => worker.write(numbers),
                }
                done += self.batch as u64;
            }
            let elapsed_ns = machine::own_cpu_ns() - start_ns;
            if missing > 0 {
                return Err(format!("{missing} of {done} reads found nothing, or the wrong value"));
            }
            if elapsed_ns >= length_ns {
                return Ok(done as f64 * 1e9 / elapsed_ns as f64);
            }
        }
    }
}

/// Writes all numbers once, in order, and settles; returns writes a second.
pub fn load(side: &dyn Side, numbers: u64, batch: usize) -> f64 {
    let mut worker = side.worker(0);
    let start_ns = machine::own_cpu_ns();
    let mut chunk = Vec::with_capacity(batch);
    for first in (0..numbers).step_by(batch) {
        chunk.clear();
        chunk.extend(first..numbers.min(first + batch as u64));
        worker.write(&chunk);
    }
    let seconds = (machine::own_cpu_ns() - start_ns) as f64 / 1e9;
    worker.settle();
    numbers as f64 / seconds
}
