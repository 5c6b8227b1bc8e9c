//! A file of replicas over a disk that crashes, with a model: what was flushed is read, as long as it is not forgotten, and
//! whatever is read was appended.

use std::collections::BTreeMap;

use cluster::replication::Item;
use disk::{BLOCK_BYTES, Fault, Fragment, FrameId, SimulatedDisk};
use fastrand::Rng;

use super::{LogId, ReplicaError, ReplicaFile};
use crate::durability::tests::seeds;

const FRAME_BYTES: usize = 2 * BLOCK_BYTES;
const FRAMES_MAX: u32 = 40;

/// A fragment that was appended: its cut, its place, and the byte that its bytes repeat.
type Appended = Vec<(Fragment, Vec<u8>)>;

/// A replica: everything that was ever appended, how much of that is stable, and whether it can go on.
#[derive(Clone, Default)]
struct Expected {
    appended: Appended,
    stable: usize,
    grows: bool,
    /// Whether it is of before a crash.
    is_old: bool,
    is_forgotten: bool,
}

struct World {
    random: Rng,
    disk: SimulatedDisk,
    file: ReplicaFile,
    /// Replicas by item, the earliest first.
    expected: BTreeMap<(LogId, Item), Vec<Expected>>,
    cut: u64,
    refused: u32,
}

impl World {
    fn new(mut random: Rng) -> Self {
        let disk = SimulatedDisk::new(random.u64(..), FRAME_BYTES, FRAMES_MAX);
        let file = ReplicaFile::open(Box::new(disk.clone()), FRAMES_MAX).expect("it reads");
        Self { random, disk, file, expected: BTreeMap::new(), cut: 1, refused: 0 }
    }

    fn key(&mut self) -> (LogId, Item) {
        let log = LogId { server: self.random.u32(1..3), number: self.random.u64(1..3) };
        let item =
            if self.random.u32(0..4) == 0 { Item::Digest } else { Item::Segment(self.random.u32(1..4)) };
        (log, item)
    }

    fn begin(&mut self) {
        let (log, item) = self.key();
        self.file.begin(log, item, 0);
        let replicas = self.expected.entry((log, item)).or_default();
        replicas.iter_mut().for_each(|replica| replica.grows = false);
        replicas.push(Expected { grows: true, ..Expected::default() });
    }

    /// Appends some bytes to a replica. Those of a digest begin anew when it is whole.
    fn append(&mut self) {
        let (log, item) = self.key();
        let length = [1, 30, 300, 5_000, 20_000][self.random.usize(..5)];
        let length = self.random.u32(1..=length);
        let bytes = vec![self.random.u8(..); length as usize];
        let latest = self.expected.get_mut(&(log, item)).and_then(|replicas| replicas.last_mut());
        let latest = latest.filter(|replica| replica.grows);
        let last = latest.as_ref().and_then(|replica| replica.appended.last());
        let end = last.map_or(0, |(fragment, bytes)| fragment.at + bytes.len() as u32);
        let is_whole = last.is_some_and(|(fragment, _)| fragment.end == end);
        let at = if item == Item::Digest && is_whole { 0 } else { end };
        let rest = if self.random.bool() { 0 } else { 100 };
        let end = match last {
            Some((fragment, _)) if item == Item::Digest && !is_whole => fragment.end.max(at + length),
            _ => at + length + rest,
        };
        let (before, clock_ms) = (self.cut, self.random.u64(..));
        self.cut += 1;
        let fragment =
            Fragment { cut: self.cut, before, clock_ms, writes: 1, at, end, ..Fragment::default() };
        let result = self.file.append(log, item, &fragment, &bytes);
        match (result, latest) {
            (Ok(()), Some(replica)) => replica.appended.push((fragment, bytes)),
            (Err(ReplicaError::Full), Some(_)) => self.refused += 1,
            (Err(ReplicaError::NotNext), None) => {}
            // The file was growing.
            (Err(ReplicaError::Disk(_)), _) if self.disk.has_crashed() => return,
            (result, latest) => panic!("{result:?} of {fragment:?}, begun {}", latest.is_some()),
        }
        if self.random.u32(0..20) == 0 {
            self.cut += 1;
            let apart = Fragment { cut: self.cut, at: at + 1, end: end + 1, ..fragment };
            let result = self.file.append(log, item, &apart, &[1]);
            let follows = self.expected.get(&(log, item)).and_then(|replicas| replicas.last());
            let follows = follows.and_then(|replica| replica.appended.last());
            let follows = follows.is_some_and(|(fragment, bytes)| fragment.at + bytes.len() as u32 == at + 1);
            assert!(follows || matches!(result, Err(ReplicaError::NotNext)), "{result:?}");
            if result.is_ok() {
                let replicas = self.expected.get_mut(&(log, item)).expect("it was begun");
                replicas.last_mut().expect("it was begun").appended.push((apart, vec![1]));
            }
        }
    }

    /// Forgets replicas.
    fn forget(&mut self) {
        let (log, item) = self.key();
        let Some(replicas) = self.expected.get_mut(&(log, item)) else { return };
        let kept = if self.random.bool() {
            self.file.forget(log, item);
            0
        } else {
            self.file.forget_earlier(log, item);
            1
        };
        let forgotten = replicas.len().saturating_sub(kept);
        replicas[..forgotten]
            .iter_mut()
            .for_each(|replica| (replica.is_forgotten, replica.grows) = (true, false));
    }

    /// Does things until the disk fails, or for so many turns.
    fn run(&mut self, turns: u32) {
        for _ in 0..turns {
            match self.random.u32(0..20) {
                0 | 1 => self.begin(),
                2 => self.forget(),
                3..=8 => match self.file.flush() {
                    Ok(()) => {
                        let all = self.expected.values_mut().flatten().filter(|replica| !replica.is_old);
                        all.for_each(|replica| replica.stable = replica.appended.len());
                    }
                    Err(_) => return,
                },
                // Growth may be what fails.
                _ if self.disk.has_crashed() => return,
                _ => self.append(),
            }
        }
    }

    /// Reads everything and compares it.
    fn check(&mut self, what: &str) {
        for ((log, item), replicas) in &self.expected {
            let mut read: Vec<(Fragment, Vec<u8>)> = Vec::new();
            let mut join = |fragment: Fragment, bytes: &[u8]| match read.last_mut() {
                // One fragment in several frames.
                Some((last, had))
                    if last.cut == fragment.cut && last.at + had.len() as u32 == fragment.at =>
                {
                    had.extend_from_slice(bytes);
                }
                _ => read.push((fragment, bytes.to_vec())),
            };
            self.file.read(*log, *item, &mut join).expect("it reads");
            let all: Vec<_> = replicas.iter().flat_map(|replica| &replica.appended).collect();
            for (fragment, bytes) in &read {
                // The beginning of an earlier digest may be gone.
                let is_it = |(other, had): &&(Fragment, Vec<u8>)| {
                    let skipped =
                        fragment.at.checked_sub(other.at).map_or(usize::MAX, |skipped| skipped as usize);
                    let is_same = Fragment { at: fragment.at, ..*other } == *fragment;
                    is_same && had.get(skipped..).is_some_and(|rest| rest.starts_with(bytes))
                };
                assert!(
                    all.iter().copied().any(|appended| is_it(&appended)),
                    "{what}: {log:?} {item:?} {fragment:?}"
                );
            }
            for replica in replicas.iter().filter(|replica| !replica.is_forgotten) {
                // Of digests the last one that is whole counts.
                let stable = &replica.appended[..replica.stable];
                let ends = |(fragment, bytes): &(Fragment, Vec<u8>)| {
                    fragment.at + bytes.len() as u32 == fragment.end
                };
                let last = stable.iter().rposition(ends).filter(|_| *item == Item::Digest);
                let begins = |(fragment, _): &(Fragment, Vec<u8>)| fragment.at == 0;
                let from = last.and_then(|last| stable[..=last].iter().rposition(begins)).unwrap_or(0);
                for appended in stable.iter().skip(from) {
                    assert!(read.contains(appended), "{what}: {log:?} {item:?} lost {:?}", appended.0);
                }
            }
        }
    }

    /// Starts again after a crash: of what was not stable some may be there.
    fn restart(&mut self) {
        self.disk = self.disk.restart();
        let disk = Box::new(self.disk.clone());
        self.file = ReplicaFile::open(disk, FRAMES_MAX).expect("it reads");
        for replica in self.expected.values_mut().flatten() {
            (replica.grows, replica.is_old) = (false, true);
        }
    }

    /// What the file says that it has is what can be read.
    fn check_held(&mut self) {
        for log in self.file.logs() {
            for held in self.file.held(log).expect("it reads") {
                let mut ends = Vec::new();
                let mut note = |fragment: Fragment, bytes: &[u8]| {
                    ends.push((fragment.cut, fragment.at + bytes.len() as u32));
                };
                self.file.read(log, held.item, &mut note).expect("it reads");
                let is_there = (held.cut, held.bytes) == (0, 0) || ends.contains(&(held.cut, held.bytes));
                let is_forgotten =
                    self.expected[&(log, held.item)].iter().any(|replica| replica.is_forgotten);
                assert!(is_there || is_forgotten, "{log:?} {held:?} of {ends:?}");
            }
        }
    }
}

#[test]
fn what_was_flushed_is_read_after_crashes_and_nothing_else() {
    let (mut refused, mut fragments) = (0, 0);
    for seed in seeds("what_was_flushed", 300, 2_000) {
        let mut world = World::new(Rng::with_seed(seed));
        for round in 0..3 {
            let what = format!("seed {seed} round {round}");
            let fault =
                [Fault::Crash, Fault::Crash, Fault::CrashUntold, Fault::NoSpace][world.random.usize(..4)];
            world.disk.plan(world.random.u64(..60), fault);
            let turns = world.random.u32(10..400);
            world.run(turns);
            world.disk.crash();
            world.restart();
            world.check(&what);
            world.check_held();
        }
        refused += world.refused;
        fragments += world.expected.values().flatten().map(|replica| replica.stable).sum::<usize>();
    }
    println!("{fragments} fragments were stable, {refused} refused");
    assert!(fragments > 0);
}

#[test]
fn a_full_file_refuses_and_takes_more_when_something_is_forgotten() {
    let mut file = ReplicaFile::open(Box::new(SimulatedDisk::new(1, FRAME_BYTES, 4)), 4).expect("it reads");
    let log = LogId { server: 1, number: 1 };
    let fragment = Fragment {
        cut: 1,
        before: 0,
        clock_ms: 1,
        writes: 1,
        at: 0,
        end: 3 * FRAME_BYTES as u32,
        ..Fragment::default()
    };
    file.begin(log, Item::Segment(1), 0);
    file.append(log, Item::Segment(1), &fragment, &[1; 3 * FRAME_BYTES]).expect("four frames");
    file.begin(log, Item::Segment(2), 0);
    let refused = file.append(log, Item::Segment(2), &fragment, &[1]);
    assert!(matches!(refused, Err(ReplicaError::Full)), "{refused:?}");
    file.forget(log, Item::Segment(1));
    file.append(log, Item::Segment(2), &fragment, &[1]).expect("the frames are free");
    file.flush().expect("it writes");
    assert_eq!(file.held(log).expect("it reads").len(), 1);
}

#[test]
fn digests_do_not_fill_the_file() {
    let disk = SimulatedDisk::new(1, FRAME_BYTES, 5);
    let mut file = ReplicaFile::open(Box::new(disk), 5).expect("it reads");
    let log = LogId { server: 1, number: 1 };
    file.begin(log, Item::Digest, 0);
    for cut in 0..100 {
        let bytes = vec![cut as u8; FRAME_BYTES];
        let fragment = Fragment {
            cut,
            before: 0,
            clock_ms: 1,
            writes: 0,
            at: 0,
            end: FRAME_BYTES as u32,
            ..Fragment::default()
        };
        file.append(log, Item::Digest, &fragment, &bytes).expect("room for two");
        file.flush().expect("it writes");
    }
    let mut last = Vec::new();
    let mut join = |fragment: Fragment, bytes: &[u8]| {
        if fragment.at == 0 {
            last.clear();
        }
        last.extend_from_slice(bytes);
    };
    file.read(log, Item::Digest, &mut join).expect("it reads");
    assert_eq!(last, vec![99; FRAME_BYTES]);
}

#[test]
fn rot_ends_a_replica_and_is_never_read() {
    let disk = SimulatedDisk::new(1, FRAME_BYTES, 8);
    let mut file = ReplicaFile::open(Box::new(disk.clone()), 8).expect("it reads");
    let log = LogId { server: 1, number: 1 };
    file.begin(log, Item::Segment(1), 0);
    for cut in 0..100 {
        let fragment =
            Fragment { cut, at: cut as u32 * 100, end: cut as u32 * 100 + 100, ..Fragment::default() };
        file.append(log, Item::Segment(1), &fragment, &[7; 100]).expect("room");
    }
    file.flush().expect("it writes");
    for at in [70, 500, FRAME_BYTES - 30] {
        disk.flip(FrameId(0), at * 8);
        let (mut read, mut sound) = (0, true);
        let mut note = |_: Fragment, bytes: &[u8]| {
            (read, sound) = (read + bytes.len(), sound && bytes.iter().all(|byte| *byte == 7));
        };
        file.read(log, Item::Segment(1), &mut note).expect("it reads");
        assert!(sound && read < 100 * 100, "byte {at}: {read}");
        disk.flip(FrameId(0), at * 8);
    }
}
