//! The server whose log it is: its starts, and the cuts of its log on their way.

use cluster::metadata::{MetadataError, OwnLogEnd, OwnLogExtent};
use cluster::replication::{BackupId, ReplicasRecord};
use disk::{Digest, DigestSegment, Fragment};

use super::{BACKUPS, Disk, OWNER, Owner, OwnerStage, PLACES, REPLICAS, World, segment_of, tablet_of};
use crate::durability::replicas::gathered::SegmentReplica;
use crate::limits::CUTS_PASSED_OVER;

impl World {
    /// Returns the digest of the owner's start, with what its disk has of earlier ones.
    pub(super) fn digest(&self, cut: u64) -> Digest {
        let segments = self.owner.disk.segments.iter().map(|(&sequence, &bytes)| DigestSegment {
            sequence,
            bytes,
            class: 0,
        });
        let segments: Vec<_> = segments.filter(|segment| segment.bytes > 0).collect();
        let last = segment_of(self.owner.start, 0) - 1;
        let (number, start) = (self.owner.start as u32, self.owner.start);
        Digest { number, cut, last, segments, start, ..Digest::default() }
    }

    /// Returns where the owner's log ends on its disk.
    pub(super) fn own_end(&self) -> OwnLogEnd {
        let Owner { disk, .. } = &self.owner;
        let digest = disk.digest.as_ref().expect("it has one");
        let bytes =
            [0, 1].map(|tablet| disk.segments.get(&segment_of(digest.start, tablet)).copied().unwrap_or(0));
        let latest = bytes[0].max(bytes[1]);
        let cut = match latest {
            0 => digest.cut,
            _ => self.content[&segment_of(digest.start, 0)][latest as usize - 1],
        };
        OwnLogEnd { start: digest.start, cut, latest: cut, before: None, is_whole: bytes[0] == bytes[1] }
    }

    /// Truncates the owner's log to what counts of it.
    pub(super) fn truncate(&mut self, up_to: Option<u64>) {
        let end = self.own_end();
        let pair = [0, 1].map(|tablet| segment_of(end.start, tablet));
        let counts = end.is_whole && up_to.is_none_or(|cut| end.cut <= cut);
        let bytes = pair.map(|segment| self.owner.disk.segments.get(&segment).copied().unwrap_or(0));
        let most = bytes[0].max(bytes[1]);
        let bytes = if counts || most == 0 { most } else { most - 1 };
        for segment in pair {
            self.owner.disk.segments.insert(segment, bytes);
        }
    }

    pub(super) fn owner_turn(&mut self) {
        match self.owner.stage {
            // Others have some time.
            OwnerStage::Down if self.random.u32(0..8) > 0 => {}
            OwnerStage::Down => {
                let tcp = ([10, 0, 0, 1], OWNER as u16).into();
                self.owner.run = self.metadata.member_start(OWNER, tcp, true).expect("room");
                self.metadata.migrations_restarted(self.owner.run).expect("room");
                self.owner.stage = OwnerStage::Begun;
            }
            OwnerStage::Begun => {
                if self.owner.disk.digest.is_none() {
                    // It has lost its log: whatever it does, it waits for the others.
                    self.owner.stage = OwnerStage::Behind;
                    return;
                }
                let extent = self.metadata.owner_returns(OWNER, self.own_end(), self.now_ms).expect("room");
                match extent {
                    OwnLogExtent::Behind => return self.owner.stage = OwnerStage::Behind,
                    OwnLogExtent::Whole => self.truncate(None),
                    OwnLogExtent::UpTo(cut) => self.truncate(Some(cut)),
                }
                self.owner.stage = OwnerStage::Judged;
            }
            OwnerStage::Behind => {
                if self.owned(OWNER) == [false; 2] {
                    // From now on it is a server with an empty log, of which the model says nothing.
                    self.owner.disk = Disk::default();
                }
            }
            OwnerStage::Judged => {
                // Its digest is on its disk from here on.
                (self.owner.start, self.owner.base) =
                    (self.owner.start + 1, self.next_cut + CUTS_PASSED_OVER);
                (self.owner.cuts, self.owner.settled) = (Vec::new(), 0);
                self.next_cut = self.owner.base + 1;
                self.owner.disk.digest = Some(self.digest(self.owner.base));
                if self.random.u32(0..8) == 0 {
                    return self.owner_dies();
                }
                match self.metadata.replicas_begin(OWNER, self.owner.start, false) {
                    Ok(_) => self.owner.stage = OwnerStage::Claimed,
                    Err(MetadataError::Conflict) => self.owner_dies(),
                    Err(error) => panic!("seed {}: {error}", self.seed),
                }
            }
            OwnerStage::Claimed => match self.register_run(self.owner.run) {
                Ok(lease) => (self.owner.lease, self.owner.stage) = (Some(lease), OwnerStage::Registered),
                Err(_) => self.owner_dies(),
            },
            OwnerStage::Registered | OwnerStage::Serving => self.serve(),
        }
    }

    /// Takes a turn of the owner's log's thread.
    pub(super) fn serve(&mut self) {
        let recovery = self.metadata.recovery(OWNER).expect("an answer");
        if self.random.u32(0..4) == 0 && recovery.is_some() {
            return self.owner_dies();
        }
        match self.random.u32(0..8) {
            0..2 => self.connect(recovery.is_some()),
            2..6 => self.deliver(),
            6 => {
                let tablet = self.random.usize(0..2);
                self.write_own(tablet);
            }
            _ => {}
        }
        let is_settled = self.is_settled();
        if self.owner.stage == OwnerStage::Registered && is_settled && self.owner.lease.is_some() {
            let backups = BACKUPS.map(|server| BackupId { server, file: u64::from(server) });
            let record = ReplicasRecord { backups: backups.into(), replicas: REPLICAS };
            match self.metadata.replicas_record(OWNER, self.owner.start, &record).expect("room") {
                Some(_) => {
                    self.owner.stage = OwnerStage::Serving;
                    self.outcomes.1 += u32::from(self.owned(OWNER) != [false; 2]);
                    self.check();
                }
                None => self.owner_dies(),
            }
        } else if self.owner.stage == OwnerStage::Serving && is_settled {
            let Owner { cuts, settled, .. } = &mut self.owner;
            if *settled < cuts.len() {
                *settled = cuts.len();
                let cut = cuts[*settled - 1];
                self.acknowledged.push((cut, self.written[&cut]));
                self.check();
            } else if self.random.bool() {
                let cut = self.next_cut;
                self.next_cut += 1;
                self.owner.cuts.push(cut);
                // What it takes for its own until it hears otherwise.
                let own = self.owned(OWNER);
                self.written.insert(cut, own);
                for tablet in 0..2 {
                    self.content.entry(segment_of(self.owner.start, tablet)).or_default().push(cut);
                }
            }
        }
    }

    pub(super) fn written_bytes(&self) -> u32 {
        self.owner.cuts.len() as u32
    }

    /// Returns whether the own disk and all backups have what was sent.
    pub(super) fn is_settled(&self) -> bool {
        let wanted = self.written_bytes();
        let start = self.owner.start;
        let own = |tablet| self.owner.disk.segments.get(&segment_of(start, tablet)).copied().unwrap_or(0);
        let has = |server: &u32, tablet: usize| {
            self.backups[server].stream.is_some_and(|bytes| bytes[tablet] == wanted)
        };
        (0..2).all(|tablet| own(tablet) == wanted && PLACES[tablet].iter().all(|server| has(server, tablet)))
    }

    /// Opens a stream to a backup: it gets a digest, and copies of what it is to have.
    pub(super) fn connect(&mut self, is_recovered: bool) {
        let server = BACKUPS[self.random.usize(0..3)];
        let (digest, start) = (self.owner.disk.digest.clone().expect("it has one"), self.owner.start);
        let backup = self.backups.get_mut(&server).expect("it is one");
        if !backup.is_up || is_recovered || backup.fenced >= start || backup.stream.is_some() {
            return;
        }
        backup.digests.push(digest);
        let base = self.owner.base;
        let mut stream = [0; 2];
        for (&segment, &bytes) in self.owner.disk.segments.iter().filter(|(_, bytes)| **bytes > 0) {
            let tablet = tablet_of(segment);
            if !PLACES[tablet].contains(&server) {
                continue;
            }
            // Of its own start what is settled; the rest comes as it was sent.
            let is_own = segment == segment_of(start, tablet);
            let bytes = if is_own { bytes.min(self.owner.settled as u32) } else { bytes };
            let cut = match self.owner.settled {
                0 => base,
                settled => self.owner.cuts[settled - 1],
            };
            if bytes > 0 {
                let fragment = Fragment {
                    cut,
                    before: cut,
                    settled: cut,
                    digest: start as u32,
                    end: bytes,
                    ..Fragment::default()
                };
                let copy = SegmentReplica { class: 0, fragments: vec![(fragment, bytes)] };
                backup.segments.entry(segment).or_default().push(copy);
            }
            if is_own {
                stream[tablet] = bytes;
            }
        }
        backup.stream = Some(stream);
    }

    /// Brings a backup the next byte of a tablet's segment.
    pub(super) fn deliver(&mut self) {
        let (server, tablet) = (BACKUPS[self.random.usize(0..3)], self.random.usize(0..2));
        let Owner { cuts, settled, base, start, .. } = &self.owner;
        let backup = self.backups.get_mut(&server).expect("it is one");
        let Some(stream) =
            backup.stream.as_mut().filter(|_| backup.is_up && PLACES[tablet].contains(&server))
        else {
            return;
        };
        let at = stream[tablet];
        let Some(&cut) = cuts.get(at as usize) else { return };
        let before = if at == 0 { *base } else { cuts[at as usize - 1] };
        let settled = if *settled == 0 { *base } else { cuts[*settled - 1] };
        let fragment = Fragment {
            cut,
            before,
            settled,
            writes: 2,
            digest: *start as u32,
            at,
            end: at + 1,
            ..Fragment::default()
        };
        let replicas = backup.segments.entry(segment_of(*start, tablet)).or_default();
        match replicas.last_mut().filter(|_| at > 0) {
            Some(replica) => replica.fragments.push((fragment, 1)),
            None => replicas.push(SegmentReplica { class: 0, fragments: vec![(fragment, 1)] }),
        }
        stream[tablet] += 1;
    }

    pub(super) fn write_own(&mut self, tablet: usize) {
        let wanted = self.written_bytes();
        let bytes = self.owner.disk.segments.entry(segment_of(self.owner.start, tablet)).or_default();
        *bytes = wanted.min(*bytes + 1);
    }

    pub(super) fn owner_dies(&mut self) {
        if self.owner.stage == OwnerStage::Down {
            return;
        }
        for _ in 0..self.random.u32(0..4) {
            if self.owner.stage == OwnerStage::Serving {
                self.deliver();
                let tablet = self.random.usize(0..2);
                self.write_own(tablet);
            }
        }
        self.owner_loses_its_lease();
        self.owner.stage = OwnerStage::Down;
        self.backups.values_mut().for_each(|backup| backup.stream = None);
    }

    pub(super) fn owner_loses_its_lease(&mut self) {
        if let Some(lease) = self.owner.lease.take() {
            self.metadata.records().lease_revoke(lease).expect("it was held");
        }
    }
}
