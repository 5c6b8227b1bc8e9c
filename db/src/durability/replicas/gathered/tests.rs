//! A server that sends its cuts to backups, from seeds: whichever backups are missing, fewer than there are replicas of each
//! thing, what is found is the log as of one cut, and no settled one is later.

use std::collections::{BTreeMap, BTreeSet};

use disk::{Digest, DigestSegment, Fragment, OPEN_ENDED};
use fastrand::Rng;

use super::{GatherError, SegmentReplica, gather};
use crate::durability::log_reader::counting_bytes;
use crate::durability::tests::seeds;
use crate::limits::CUTS_PASSED_OVER;

const BACKUPS: usize = 5;
const REPLICAS: usize = 2;
/// Two heads of cores, and one of survivors.
const CLASSES: [u8; 3] = [0, 0, 1];

#[derive(Clone)]
enum Sent {
    Part(u32, Fragment, u32),
    Digest(Digest),
    Forget(u32),
}

/// A backup: what it was sent, and how much of that is stable.
#[derive(Clone, Default)]
struct Backup {
    sent: Vec<Sent>,
    stable: usize,
}

struct Segment {
    class: u8,
    /// The bytes at each cut that wrote to it.
    ends: Vec<(u64, u32)>,
    is_closed: bool,
    holders: Vec<usize>,
    /// Of survivors, which segments were emptied when a cut wrote to it.
    sources: Vec<(u64, BTreeSet<u32>)>,
}

impl Segment {
    fn at(&self, cut: u64) -> u32 {
        self.ends.iter().rev().find(|(number, _)| *number <= cut).map_or(0, |(_, end)| *end)
    }
}

/// The number of a cut, a digest or none for the cut itself, and what it waits for.
type Waiting = (u64, Option<Digest>, Vec<(usize, usize)>);

struct World {
    random: Rng,
    backups: Vec<Backup>,
    /// Backups that are gone for good.
    lost: BTreeSet<usize>,
    segments: BTreeMap<u32, Segment>,
    heads: [u32; CLASSES.len()],
    last: u32,
    cut: u64,
    /// The last cut that wrote anything.
    wrote: u64,
    settled: u64,
    /// Cuts and digests that are not settled, each with what must be stable: backups, and how much of what they were sent.
    waiting: Vec<Waiting>,
    digest: Digest,
    /// Segments whose objects are moving to those of survivors.
    emptied: BTreeSet<u32>,
    /// Segments that the digest under way does not have.
    freed: Vec<(u32, u32)>,
}

impl World {
    fn new(random: Rng) -> Self {
        let mut world = Self {
            random,
            backups: vec![Backup::default(); BACKUPS],
            lost: BTreeSet::new(),
            segments: BTreeMap::new(),
            heads: [0; CLASSES.len()],
            last: 0,
            cut: 1 << 32,
            wrote: 1 << 32,
            settled: 1 << 32,
            waiting: Vec::new(),
            digest: Digest { number: u32::MAX - 2, ..Digest::default() },
            emptied: BTreeSet::new(),
            freed: Vec::new(),
        };
        world.send_digest(&[]);
        world
    }

    fn choose(&mut self) -> Vec<usize> {
        let mut there: Vec<usize> = (0..BACKUPS).filter(|backup| !self.lost.contains(backup)).collect();
        self.random.shuffle(&mut there);
        there.truncate(REPLICAS);
        there
    }

    fn send(&mut self, to: usize, sent: Sent) -> (usize, usize) {
        self.backups[to].sent.push(sent);
        (to, self.backups[to].sent.len())
    }

    /// Sends a digest without these segments.
    fn send_digest(&mut self, without: &[u32]) {
        for sequence in without {
            self.freed.push((self.digest.number.wrapping_add(1), *sequence));
        }
        let freed: BTreeSet<u32> = self.freed.iter().map(|(_, sequence)| *sequence).collect();
        let there = self.segments.iter().filter(|(sequence, _)| !freed.contains(sequence));
        let segments = there.map(|(&sequence, segment)| {
            let is_fixed =
                segment.is_closed && segment.ends.last().is_none_or(|(cut, _)| *cut <= self.settled);
            let bytes = if is_fixed { segment.at(self.settled) } else { OPEN_ENDED };
            DigestSegment { sequence, bytes, class: segment.class }
        });
        let survivors = self.heads[2];
        let position =
            self.segments.get(&survivors).map_or((0, 0), |segment| (survivors, segment.at(self.settled)));
        self.digest = Digest {
            number: self.digest.number.wrapping_add(1),
            cut: self.settled,
            last: self.last,
            survivors: [position, (0, 0), (0, 0)],
            segments: segments.collect(),
            emptied: self.emptied.iter().copied().collect(),
            ..Digest::default()
        };
        let digest = self.digest.clone();
        let holders = self.choose();
        let waits = holders.into_iter().map(|to| self.send(to, Sent::Digest(digest.clone()))).collect();
        self.waiting.push((self.cut, Some(digest), waits));
    }

    fn make_cut(&mut self) {
        self.cut += self.random.u64(1..4);
        let mut parts: Vec<(u32, u32, u32)> = Vec::new();
        for (head, class) in CLASSES.into_iter().enumerate() {
            let rolls = self.random.u32(0..4) == 0 || self.heads[head] == 0;
            for opens in [false, true] {
                if opens && !rolls || !opens && self.heads[head] == 0 {
                    continue;
                }
                if opens {
                    self.last += 1;
                    if let Some(before) = self.segments.get_mut(&self.heads[head]) {
                        before.is_closed = true;
                    }
                    let holders = self.choose();
                    let (ends, sources, is_closed) = (Vec::new(), Vec::new(), false);
                    let segment = Segment { class, ends, is_closed, holders, sources };
                    self.segments.insert(self.last, segment);
                    self.heads[head] = self.last;
                }
                let (sequence, bytes) = (self.heads[head], self.random.u32(0..100));
                let before = self.segments[&sequence].at(self.cut);
                if bytes > 0 && self.random.bool() {
                    parts.push((sequence, before, before + bytes));
                }
            }
        }
        let mut waits = Vec::new();
        for &(sequence, at, end) in &parts {
            let fragment = Fragment {
                cut: self.cut,
                before: self.wrote,
                settled: self.settled,
                clock_ms: self.cut,
                writes: parts.len() as u32,
                digest: self.digest.number,
                at,
                end,
            };
            let segment = self.segments.get_mut(&sequence).expect("it is open");
            segment.ends.push((self.cut, end));
            segment.sources.push((self.cut, self.emptied.clone()));
            for to in segment.holders.clone() {
                // In one piece, or as the frames of the backup divide it.
                let first = self.random.u32(1..=end - at);
                if first < end - at {
                    self.send(to, Sent::Part(sequence, fragment, first));
                }
                let rest = if first < end - at { first } else { 0 };
                let fragment = Fragment { at: at + rest, ..fragment };
                waits.push(self.send(to, Sent::Part(sequence, fragment, end - at - rest)));
            }
        }
        if !parts.is_empty() {
            self.wrote = self.cut;
            self.waiting.push((self.cut, None, waits));
        }
    }

    /// Notes what is settled.
    fn settle(&mut self) {
        let is_there =
            |backups: &[Backup], (backup, index): &(usize, usize)| backups[*backup].stable >= *index;
        while let Some((cut, digest, _)) =
            self.waiting.first().filter(|(.., waits)| waits.iter().all(|wait| is_there(&self.backups, wait)))
        {
            match digest {
                None => self.settled = *cut,
                Some(digest) => {
                    let (number, freed) = (digest.number, std::mem::take(&mut self.freed));
                    for (since, sequence) in freed {
                        if since != number {
                            self.freed.push((since, sequence));
                            continue;
                        }
                        let segment = self.segments.remove(&sequence).expect("it is freed once");
                        segment.holders.into_iter().for_each(|to| _ = self.send(to, Sent::Forget(sequence)));
                    }
                }
            }
            self.waiting.remove(0);
        }
    }

    /// Loses a backup for good: others get what it had.
    fn lose(&mut self) {
        let Some(gone) = self.choose().first().copied().filter(|_| BACKUPS - self.lost.len() > REPLICAS + 1)
        else {
            return;
        };
        self.lost.insert(gone);
        let held: Vec<u32> = self
            .segments
            .iter()
            .filter(|(_, segment)| segment.holders.contains(&gone))
            .map(|(&sequence, _)| sequence)
            .collect();
        for sequence in held {
            let holders = self.segments[&sequence].holders.clone();
            let other = (0..BACKUPS)
                .find(|to| !self.lost.contains(to) && !holders.contains(to))
                .expect("there are enough");
            let settled = self.segments[&sequence].at(self.settled);
            let copied = Fragment {
                cut: self.settled,
                settled: self.settled,
                end: settled,
                digest: self.digest.number,
                ..Fragment::default()
            };
            // As the other holder got them.
            let from = holders.iter().find(|&&holder| holder != gone).expect("two had it");
            let parts = self.backups[*from].sent.iter().filter_map(|sent| match sent {
                Sent::Part(of, fragment, bytes) if *of == sequence && fragment.cut > self.settled => {
                    Some(Sent::Part(sequence, *fragment, *bytes))
                }
                _ => None,
            });
            let parts: Vec<Sent> = parts.collect();
            if settled > 0 {
                self.send(other, Sent::Part(sequence, copied, settled));
            }
            parts.into_iter().for_each(|part| _ = self.send(other, part));
            let segment = self.segments.get_mut(&sequence).expect("it is there");
            segment.holders.retain(|holder| *holder != gone);
            segment.holders.push(other);
        }
        let digest = self.digest.clone();
        let holder = (0..BACKUPS).filter(|to| !self.lost.contains(to)).collect::<Vec<_>>();
        holder.into_iter().for_each(|to| _ = self.send(to, Sent::Digest(digest.clone())));
        // The copies are complete before anything else happens.
        self.backups.iter_mut().for_each(|backup| backup.stable = backup.sent.len());
        self.waiting.iter_mut().for_each(|(.., waits)| waits.retain(|(to, _)| *to != gone));
    }

    fn turn(&mut self) {
        match self.random.u32(0..12) {
            0..=4 => self.make_cut(),
            5 => {
                let closed =
                    self.segments.iter().filter(|(_, segment)| segment.is_closed && segment.class == 0);
                let closed: Vec<u32> = closed.map(|(&sequence, _)| sequence).collect();
                self.emptied.extend(self.random.choice(closed));
                self.send_digest(&[]);
            }
            6 => {
                let freed: BTreeSet<u32> = self.freed.iter().map(|(_, sequence)| *sequence).collect();
                let is_fixed = |segment: &Segment| {
                    segment.is_closed && segment.ends.last().is_none_or(|(cut, _)| *cut <= self.settled)
                };
                let free: Vec<u32> = self
                    .segments
                    .iter()
                    .filter(|(sequence, segment)| is_fixed(segment) && !freed.contains(sequence))
                    .map(|(&sequence, _)| sequence)
                    .take(2)
                    .collect();
                self.send_digest(&free);
            }
            7 if self.random.u32(0..10) == 0 => self.lose(),
            _ => {
                let backup = self.random.usize(..BACKUPS);
                let left = self.backups[backup].sent.len() - self.backups[backup].stable;
                self.backups[backup].stable += self.random.usize(0..=left);
                self.settle();
            }
        }
    }

    /// Asks all but these, and compares what is found.
    fn check(&self, missing: &BTreeSet<usize>, what: &str) {
        let (mut copies, mut digests): (BTreeMap<u32, Vec<SegmentReplica>>, Vec<Digest>) = Default::default();
        for backup in (0..BACKUPS).filter(|backup| !missing.contains(backup) && !self.lost.contains(backup)) {
            let (mut own, mut newest): (BTreeMap<u32, SegmentReplica>, _) = (BTreeMap::new(), None);
            for sent in &self.backups[backup].sent[..self.backups[backup].stable] {
                match sent {
                    Sent::Digest(digest) => newest = Some(digest.clone()),
                    Sent::Forget(sequence) => _ = own.remove(sequence),
                    Sent::Part(sequence, fragment, bytes) => {
                        let class = self.segments.get(sequence).map_or(0, |segment| segment.class);
                        let copy =
                            own.entry(*sequence).or_insert(SegmentReplica { class, fragments: Vec::new() });
                        copy.fragments.push((*fragment, *bytes));
                    }
                }
            }
            digests.extend(newest);
            own.into_iter().for_each(|(sequence, copy)| copies.entry(sequence).or_default().push(copy));
        }
        let found = gather(digests, &copies, None).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(found.cut >= self.settled, "{what}: cut {} of {}", found.cut, self.settled);
        let mut expected = BTreeMap::new();
        for (&sequence, segment) in &self.segments {
            let is_named = found.digest.segments.iter().any(|named| named.sequence == sequence);
            if is_named || sequence > found.digest.last {
                let survivors = |class: usize| found.digest.survivors[class];
                let bytes = counting_bytes(sequence, segment.class, segment.at(found.cut), survivors);
                expected.insert(sequence, bytes);
            }
        }
        for (sequence, bytes) in &expected {
            let left_out = found.left_out.iter().find(|(left_out, _)| left_out == sequence);
            let segment = &self.segments[sequence];
            let beyond = segment
                .ends
                .iter()
                .zip(&segment.sources)
                .filter(|((cut, end), _)| *cut <= found.cut && end > bytes);
            let sources: BTreeSet<u32> = beyond.flat_map(|(_, (_, sources))| sources).copied().collect();
            let known: BTreeSet<u32> =
                left_out.into_iter().flat_map(|(_, sources)| sources).copied().collect();
            let lacking = |source: &u32| {
                !known.contains(source) && expected.get(source).is_some_and(|bytes| *bytes > 0)
            };
            assert!(
                !sources.iter().any(lacking),
                "{what}: {sequence} has what came from {sources:?}, known {known:?}"
            );
        }
        expected.retain(|_, bytes| *bytes > 0);
        assert_eq!(found.segments, expected, "{what}: as of cut {}", found.cut);
    }
}

#[test]
fn whichever_backups_are_missing_the_log_is_found_as_of_one_cut() {
    let (mut cuts, mut count) = (0, 0);
    for seed in seeds("whichever_backups", 300, 2_000) {
        let mut world = World::new(Rng::with_seed(seed));
        world.backups.iter_mut().for_each(|backup| backup.stable = backup.sent.len());
        world.settle();
        for turn in 0..world.random.u32(1..200) {
            world.turn();
            if world.random.u32(0..10) == 0 {
                let missing: BTreeSet<usize> =
                    world.choose().into_iter().take(world.random.usize(0..REPLICAS)).collect();
                world.check(&missing, &format!("seed {seed} turn {turn}"));
            }
        }
        (cuts, count) = (cuts + u32::from(world.settled > 1 << 32), count + 1);
    }
    assert!(cuts >= count / 2, "{cuts} of {count} settled a cut");
}

#[test]
fn what_no_backup_has_is_said() {
    assert_eq!(gather([], &BTreeMap::new(), None).err(), Some(GatherError::NoDigest));
    let segments = vec![DigestSegment { sequence: 3, bytes: 100, class: 0 }];
    let digest = Digest { number: 1, cut: 5, last: 3, segments, ..Digest::default() };
    let missing = gather([digest.clone()], &BTreeMap::new(), None).err();
    assert_eq!(missing, Some(GatherError::Missing { sequence: 3, bytes: 0, of_bytes: 100 }));
    let part = Fragment { cut: 4, at: 0, end: 100, ..Fragment::default() };
    let copies =
        |bytes| BTreeMap::from([(3, vec![SegmentReplica { class: 0, fragments: vec![(part, bytes)] }])]);
    let missing = gather([digest.clone()], &copies(60), None).err();
    assert_eq!(missing, Some(GatherError::Missing { sequence: 3, bytes: 60, of_bytes: 100 }));
    assert!(gather([digest], &copies(100), None).is_ok());
}

#[test]
fn a_copy_of_a_later_start_does_not_stand_for_a_cut_of_an_earlier_one() {
    let cut = 1 << 32;
    let digest = Digest { number: 5, start: 5, cut, last: 9, ..Digest::default() };
    let part = Fragment {
        cut: cut + 1,
        before: cut,
        settled: cut,
        writes: 2,
        digest: 5,
        end: 8,
        ..Fragment::default()
    };
    let later = cut + 1 + CUTS_PASSED_OVER;
    let copy =
        Fragment { cut: later, before: later, settled: later, digest: 8, end: 8, ..Fragment::default() };
    let found = |of_other: Fragment| {
        let replica = |fragment| vec![SegmentReplica { class: 0, fragments: vec![(fragment, 8)] }];
        let copies = BTreeMap::from([(10, replica(part)), (11, replica(of_other))]);
        gather([digest.clone()], &copies, Some(cut + 1)).map(|found| found.segments)
    };
    assert_eq!(found(part), Ok(BTreeMap::from([(10, 8), (11, 8)])));
    assert_eq!(found(copy), Err(GatherError::LacksCut { decided: cut + 1, whole: cut }));
}
