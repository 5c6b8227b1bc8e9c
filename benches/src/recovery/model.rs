//! What recoveries take on clusters that do not fit on this machine: a simulation of the pipeline over disks, network and cores,
//! with the processor time for each byte that was measured here.
//!
//! ```text
//!   backup    disk ──► divide (cores) ──► network ──► target    recover (cores) ──► network ──► backups    keep (cores) ──► disk
//!             a segment once, for all targets                   each target a part of each segment
//! ```
//! Each server is a backup and a target; the log's segments lie at random servers, the less loaded of two. Each target asks each
//! backup for two segments at a time, as `db/src/moving/recovering/holders.rs` does. Not simulated: detection, the metadata,
//! and the cost of a request apart from its bytes.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use clap::{Args, ValueEnum};
use fastrand::Rng;
use serde::Serialize;

/// Segments that a target asks a backup for at a time.
const ASKED: usize = 2;
/// Of the processor time of a recovery, what backups need to read and divide, and what all backups of the targets need to keep it.
const DIVIDE_SHARE: f64 = 0.15;
const KEEP_SHARE: f64 = 0.4;

/// The machines of the clusters that are simulated; by default those of Ousterhout et al., TOCS'15, §11.
#[derive(Args, Clone, Debug, Serialize)]
pub(super) struct ModelSettings {
    /// Simulate also clusters of so many servers, of which each recovers `--model-megabytes`.
    #[arg(long, value_delimiter = ',')]
    pub(super) model: Vec<usize>,
    /// Megabytes of the log that are lost for each server that recovers.
    #[arg(long, default_value_t = 500.0)]
    pub(super) model_megabytes: f64,
    /// Cores of a server.
    #[arg(long, default_value_t = 4)]
    pub(super) model_cores: usize,
    /// Disks of a server.
    #[arg(long, default_value_t = 2)]
    pub(super) model_disks: usize,
    /// MB/s that a disk reads.
    #[arg(long, default_value_t = 250.0)]
    pub(super) model_disk_reads: f64,
    /// MB/s that a disk writes.
    #[arg(long, default_value_t = 250.0)]
    pub(super) model_disk_writes: f64,
    /// MB/s of the network, each way.
    #[arg(long, default_value_t = 3_000.0)]
    pub(super) model_network: f64,
    /// Other servers that have each log.
    #[arg(long, default_value_t = 3)]
    pub(super) model_replicas: usize,
}

/// What a backup acknowledges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
pub(super) enum Kept {
    /// What it has received, as RAMCloud's backups do, which survive a power cut with their memory.
    InMemory,
    /// What is on its disk, as here.
    OnDisk,
}

/// Megabytes of a segment.
const SEGMENT_MB: f64 = 8.0;

/// What one cluster needs, in seconds, and how busy its busiest resources were meanwhile.
#[derive(Clone, Debug, Serialize)]
pub(super) struct ModelRow {
    pub(super) servers: usize,
    pub(super) kept: Kept,
    pub(super) gigabytes: f64,
    pub(super) seconds: f64,
    pub(super) cores_busy: f64,
    pub(super) disks_busy: f64,
    pub(super) network_busy: f64,
}

/// Some equal things that work one after another on what comes to them.
struct Resource {
    free_at: BinaryHeap<Reverse<Seconds>>,
    busy: f64,
}

/// Seconds that can be compared.
#[derive(Clone, Copy, PartialEq)]
struct Seconds(f64);

impl Eq for Seconds {}

impl PartialOrd for Seconds {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Seconds {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl Resource {
    fn of(count: usize) -> Self {
        Self { free_at: (0..count).map(|_| Reverse(Seconds(0.0))).collect(), busy: 0.0 }
    }

    /// Works for some seconds on what is there at a moment; returns when that is done.
    fn work(&mut self, at: f64, seconds: f64) -> f64 {
        let Reverse(Seconds(free_at)) = self.free_at.pop().expect("there is one");
        let done = free_at.max(at) + seconds;
        self.busy += seconds;
        self.free_at.push(Reverse(Seconds(done)));
        done
    }
}

struct Server {
    cores: Resource,
    disks: Resource,
    sends: Resource,
    receives: Resource,
}

/// A part of a segment on its way: the moment of the next step, the target, the segment, and the step.
type Step = Reverse<(Seconds, usize, usize, u8)>;

struct Model<'s> {
    settings: &'s ModelSettings,
    kept: Kept,
    servers: Vec<Server>,
    /// The backup of each segment that is asked for it.
    holders: Vec<usize>,
    /// When each segment was divided, once somebody has asked for it.
    divided: Vec<Option<f64>>,
    /// What each target has not asked for, by backup.
    left: Vec<Vec<VecDeque<usize>>>,
    steps: BinaryHeap<Step>,
    random: Rng,
    /// Seconds of a core for each megabyte: divide, recover, and keep one replica.
    costs: [f64; 3],
    ended: f64,
}

/// Simulates a recovery, of which a megabyte needs so many seconds of a core with two replicas.
pub(super) fn simulate(settings: &ModelSettings, kept: Kept, servers: usize, core_seconds: f64) -> ModelRow {
    let segments = (servers as f64 * settings.model_megabytes / SEGMENT_MB).ceil() as usize;
    let mut random = Rng::with_seed(servers as u64);
    let mut counts = vec![0; servers];
    let holders: Vec<usize> = (0..segments)
        .map(|_| {
            let [one, other] = [(); 2].map(|()| random.usize(..servers));
            let holder = if counts[one] <= counts[other] { one } else { other };
            counts[holder] += 1;
            holder
        })
        .collect();
    let of = |holder: usize| (0..segments).filter(|segment| holders[*segment] == holder).collect();
    let all: Vec<VecDeque<usize>> = (0..servers).map(of).collect();
    let server = |_| Server {
        cores: Resource::of(settings.model_cores),
        disks: Resource::of(settings.model_disks),
        sends: Resource::of(1),
        receives: Resource::of(1),
    };
    let keep = core_seconds * KEEP_SHARE / 2.0;
    let divide = core_seconds * DIVIDE_SHARE;
    let mut model = Model {
        settings,
        kept,
        servers: (0..servers).map(server).collect(),
        divided: vec![None; segments],
        left: vec![all; servers],
        holders,
        steps: BinaryHeap::new(),
        random,
        costs: [divide, core_seconds - divide - 2.0 * keep, keep],
        ended: 0.0,
    };
    for target in 0..servers {
        for holder in 0..servers {
            (0..ASKED).for_each(|_| model.ask(target, holder, 0.0));
        }
    }
    while let Some(Reverse((Seconds(at), target, segment, step))) = model.steps.pop() {
        model.step(at, (target, segment), step);
    }
    let seconds = model.ended;
    let most = |busy: &dyn Fn(&Server) -> f64| model.servers.iter().map(busy).fold(0.0, f64::max) / seconds;
    ModelRow {
        servers,
        kept,
        gigabytes: servers as f64 * settings.model_megabytes / 1e3,
        seconds,
        cores_busy: most(&|server| server.cores.busy / settings.model_cores as f64),
        disks_busy: most(&|server| server.disks.busy / settings.model_disks as f64),
        network_busy: most(&|server| server.sends.busy.max(server.receives.busy)),
    }
}

impl Model<'_> {
    /// A target asks a backup for the next segment, if there is one.
    fn ask(&mut self, target: usize, holder: usize, at: f64) {
        if let Some(segment) = self.left[target][holder].pop_front() {
            self.steps.push(Reverse((Seconds(at), target, segment, 0)));
        }
    }

    fn step(&mut self, at: f64, (target, segment): (usize, usize), step: u8) {
        let (settings, count, holder) = (self.settings, self.servers.len(), self.holders[segment]);
        let part = SEGMENT_MB / count as f64;
        let sent = part / settings.model_network;
        let done = match step {
            // Read and divide, once for all.
            0 => {
                let server = &mut self.servers[holder];
                let [divide, ..] = self.costs;
                *self.divided[segment].get_or_insert_with(|| {
                    let read = server.disks.work(at, SEGMENT_MB / settings.model_disk_reads);
                    server.cores.work(read, SEGMENT_MB * divide)
                })
            }
            1 => self.servers[holder].sends.work(at, sent),
            2 => self.servers[target].receives.work(at, sent),
            3 => {
                self.ask(target, holder, at);
                self.servers[target].cores.work(at, part * self.costs[1])
            }
            _ => {
                for _ in 0..settings.model_replicas {
                    let backup = self.random.usize(..count);
                    let left = self.servers[target].sends.work(at, sent);
                    let server = &mut self.servers[backup];
                    let kept = server.receives.work(left, sent);
                    let kept = server.cores.work(kept, part * self.costs[2]);
                    // What is in memory goes to the disk when that has nothing else to do.
                    let done = match self.kept {
                        Kept::InMemory => kept,
                        Kept::OnDisk => server.disks.work(kept, part / settings.model_disk_writes),
                    };
                    self.ended = self.ended.max(done);
                }
                return;
            }
        };
        self.steps.push(Reverse((Seconds(done.max(at)), target, segment, step + 1)));
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::Kept::{InMemory, OnDisk};
    use super::{ModelSettings, simulate};

    #[derive(Parser)]
    struct Settings {
        #[command(flatten)]
        model: ModelSettings,
    }

    fn settings(words: &[&str]) -> ModelSettings {
        Settings::parse_from([&["model"], words].concat()).model
    }

    #[test]
    fn what_is_short_decides_and_the_rest_waits_for_it() {
        // 500 MB for each server: two disks read them in a second.
        let reads = settings(&[]);
        let of_disks = simulate(&reads, InMemory, 20, 1e-6);
        assert!((1.0..2.0).contains(&of_disks.seconds) && of_disks.cores_busy < 0.1, "{of_disks:?}");
        // Four cores need 500 MB x 0.02 s / 4.
        let of_cores = simulate(&reads, InMemory, 20, 0.02);
        let replicas = 0.02 * super::KEEP_SHARE / 2.0 * 500.0 / 4.0;
        assert!((2.5 + replicas..5.0).contains(&of_cores.seconds), "{of_cores:?}");
        assert!(of_cores.cores_busy > 0.7, "{of_cores:?}");
        let slow = simulate(&settings(&["--model-network", "100"]), InMemory, 20, 1e-6);
        assert!(slow.network_busy > 0.7 && slow.seconds > 10.0, "{slow:?}");
        // Each replica is on a disk before it counts.
        let written = simulate(&reads, OnDisk, 20, 1e-6);
        assert!((4.0..7.0).contains(&written.seconds) && written.disks_busy > 0.6, "{written:?}");
    }
}
