//! Random valid messages, and damage to them.

use fastrand::Rng;
use wire::limits::TTL_MS_MAX;
use wire::{Changes, CommitRange, CommitRead, CommitWrite, Condition, FrameWriter, KeyRange, Keys, Request};

/// Owned bytes that random requests borrow.
pub struct Material {
    key: Vec<u8>,
    value: Vec<u8>,
    keys: Vec<Vec<u8>>,
}

/// What commits borrow.
pub struct Lists<'a> {
    reads: Vec<CommitRead<'a>>,
    ranges: Vec<CommitRange<'a>>,
    writes: Vec<CommitWrite<'a>>,
}

impl Material {
    pub fn new(rng: &mut Rng) -> Material {
        Material {
            key: bytes(rng, 40),
            value: bytes(rng, 200),
            keys: (0..rng.usize(..6)).map(|_| bytes(rng, 30)).collect(),
        }
    }

    pub fn slices(&self) -> Vec<&[u8]> {
        self.keys.iter().map(Vec::as_slice).collect()
    }

    /// Reads, ranges and writes of a commit; a write at least.
    pub fn lists<'a>(&'a self, rng: &mut Rng, slices: &[&'a [u8]]) -> Lists<'a> {
        let reads: Vec<_> =
            slices.iter().map(|&key| CommitRead { table: rng.u32(..), key, version: rng.u64(..) }).collect();
        let mut behind = 0;
        let mut range = |rng: &mut Rng| {
            let start = rng.u16(behind..=reads.len() as u16);
            behind = rng.u16(start..=reads.len() as u16);
            CommitRange {
                table: rng.u32(..),
                range: KeyRange {
                    from: &self.key,
                    to: rng.bool().then_some(&*self.key),
                    ..KeyRange::default()
                },
                until: rng.bool().then_some(&*self.key),
                reads: start..behind,
            }
        };
        let ranges = (0..rng.usize(..3)).map(|_| range(rng)).collect();
        let write = |rng: &mut Rng| {
            let value = rng.bool().then_some(&*self.value);
            let ttl_ms = value.filter(|_| rng.bool()).map(|_| rng.u64(1..=TTL_MS_MAX));
            CommitWrite { table: rng.u32(..), key: &self.key, value, ttl_ms }
        };
        let writes = (0..rng.usize(1..4)).map(|_| write(rng)).collect();
        Lists { reads, ranges, writes }
    }

    /// A request of a random kind.
    pub fn request<'a>(&'a self, rng: &mut Rng, slices: &'a [&'a [u8]], lists: &'a Lists<'a>) -> Request<'a> {
        let (table, key, value) = (rng.u32(..), self.key.as_slice(), self.value.as_slice());
        let condition = match rng.u8(..4) {
            0 => Condition::Always,
            1 => Condition::Absent,
            2 => Condition::Present,
            _ => Condition::Version(rng.u64(..)),
        };
        match rng.u8(..15) {
            0 => Request::Ping,
            1 => Request::Get { table, key },
            2 => Request::Put { table, key, value, condition },
            3 => Request::Delete { table, key, condition },
            4 => Request::Increment { table, key, delta: rng.i64(..) },
            5 => Request::PutFor { table, key, value, condition, ttl_ms: rng.u64(1..=TTL_MS_MAX) },
            6 => Request::IncrementFloat { table, key, delta_bits: rng.u64(..) },
            7 => Request::Enumerate {
                table,
                cursor: key,
                keys_only: rng.bool(),
                objects_max: rng.u16(1..=512),
                bytes_max: rng.u32(1..=65_536),
            },
            8 => Request::Verify { table, cursor: key },
            10 => Request::Scan {
                table,
                range: KeyRange {
                    from: key,
                    to: rng.bool().then_some(key),
                    prefix: slices.first().copied().unwrap_or_default(),
                    reverse: rng.bool(),
                    hashes: rng.bool().then(|| (rng.u64(..1 << 63), rng.u64(1 << 63..))),
                },
                cursor: key,
                keys_only: rng.bool(),
                objects_max: rng.u16(1..=512),
                bytes_max: rng.u32(1..=65_536),
            },
            11 => Request::Tablets { table },
            12 => Request::GetNow { table, key },
            13 => Request::Commit { changes: Changes::listed(&lists.reads, &lists.ranges, &lists.writes) },
            9 => Request::MultiGet { table, keys: Keys::from_slices(slices) },
            _ => Request::Invoke {
                extension: rng.u32(..),
                version: rng.u32(..),
                function: rng.u32(..),
                table,
                key,
                arguments: value,
            },
        }
    }
}

/// Up to `most` random bytes.
pub fn bytes(rng: &mut Rng, most: usize) -> Vec<u8> {
    let length = rng.usize(..=most);
    (0..length).map(|_| rng.u8(..)).collect()
}

pub fn encode(request: &Request<'_>) -> Vec<u8> {
    let mut body = vec![0xaa; request.body_bytes()];
    request.encode(&mut body);
    body
}

/// A frame with a few groups of random requests.
pub fn frame(rng: &mut Rng) -> Vec<u8> {
    let mut buffer = vec![0; 1_472];
    let mut writer = FrameWriter::new();
    writer.start(&mut buffer, rng.u64(..));
    for _ in 0..rng.usize(1..4) {
        if !writer.group(&mut buffer, rng.u64(..), rng.u64(..), 0) {
            break;
        }
        for _ in 0..rng.usize(1..6) {
            let material = Material::new(rng);
            let slices = material.slices();
            let lists = material.lists(rng, &slices);
            let request = material.request(rng, &slices, &lists);
            let place = writer.message(&mut buffer, request.opcode(), 0, rng.u32(..), request.body_bytes());
            if let Some(place) = place {
                request.encode(place);
            }
        }
    }
    let frame_bytes = writer.finish(&mut buffer);
    buffer.truncate(frame_bytes);
    buffer
}

/// Damages bytes: flips, edge values, cuts, additions, moved runs.
pub fn damage(rng: &mut Rng, bytes: &mut Vec<u8>) {
    for _ in 0..rng.usize(1..5) {
        if bytes.is_empty() {
            bytes.push(rng.u8(..));
        }
        let at = rng.usize(..bytes.len());
        match rng.u8(..6) {
            0 => bytes[at] ^= 1 << rng.u8(..8),
            1 => bytes[at] = rng.choice([0, 1, 0x7f, 0x80, 0xff]).unwrap_or(0),
            2 => bytes[at] = rng.u8(..),
            3 => bytes.truncate(at),
            4 => bytes.insert(at, rng.u8(..)),
            _ => {
                let run = bytes[at..(at + rng.usize(1..16)).min(bytes.len())].to_vec();
                let to = rng.usize(..bytes.len());
                bytes.splice(to..to, run);
            }
        }
    }
}
