//! Safe code that rustc 1.95 or its LLVM miscompiles, unless the builder's flags keep the pass off.
#![no_std]

use sandstorm::{Args, Db, Error, Reply};

sandstorm::extension! { read wrong_bool, read endless, read store_in_turn, read load_in_turn, read bounded }

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    First,
    Other,
}

struct Ring(u32);

impl Ring {
    fn peek(&self, kinds: &[Kind; 32]) -> Kind {
        kinds[self.0 as usize % 32]
    }

    fn is(&self, kinds: &[Kind; 32], expected: Kind) -> bool {
        self.peek(kinds) == expected
    }

    #[inline]
    fn consume(&mut self, kinds: &[Kind; 32], expected: Kind) -> bool {
        let is = self.is(kinds, expected);
        self.0 += is as u32;
        is
    }
}

#[inline(never)]
fn next_behind_first(kinds: &[Kind; 32], mut ring: Ring) -> u8 {
    if !ring.consume(kinds, Kind::First) {
        return 0;
    }
    match ring.peek(kinds) {
        Kind::First => 17,
        Kind::Other => 27,
    }
}

/// rustc #158206: a `bool` that an optimization of MIR has removed is read. Replies with 27.
async fn wrong_bool(_: &Db<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let mut kinds = [Kind::Other; 32];
    kinds[0] = Kind::First;
    reply.u8(next_behind_first(core::hint::black_box(&kinds), Ring(0)))
}

#[inline(never)]
fn read_at(values: &[u8], seed: usize, index: usize) -> u8 {
    let mut at = 0;
    loop {
        let mut other = seed;
        while at.max(other) >= values.len() {
            other = (other ^ at) & 1;
        }
        let here = at;
        at += 1;
        if at == index {
            return values[here];
        }
    }
}

/// rustc #153222: a loop ends though one within it does not, and bounds are not checked any more. Never ends.
async fn endless(_: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let index = args.bytes().len() + 50;
    reply.u8(read_at(args.bytes(), 0, index))
}

/// An array, and what lies behind it.
#[repr(C)]
struct Neighbours {
    small: [u8; 8],
    behind: [u8; 56],
}

#[inline(never)]
fn store(from: &[u8], small: &mut [u8; 8]) {
    let mut i = 0u32;
    while (i as usize) < from.len() {
        small[(i % 8) as usize] = from[i as usize];
        i = i.wrapping_add(1);
    }
}

/// llvm #191382: a loop is vectorized without the check that its index into a small array begins anew. Replies with
/// what lies behind the array: 7 each.
async fn store_in_turn(_: &Db<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let mut neighbours = core::hint::black_box(Neighbours { small: [0; 8], behind: [7; 56] });
    store(core::hint::black_box(&[1; 32]), &mut neighbours.small);
    reply.write(&core::hint::black_box(neighbours).behind)
}

#[inline(never)]
fn load(to: &mut [u8], small: &[u8; 8]) {
    let mut i = 0u32;
    while (i as usize) < to.len() {
        to[i as usize] ^= small[(i % 8) as usize];
        i = i.wrapping_add(1);
    }
}

/// The same with loads. Replies with the array in turn: 0 each.
async fn load_in_turn(_: &Db<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let neighbours = core::hint::black_box(Neighbours { small: [0; 8], behind: [7; 56] });
    let mut to = [0; 32];
    load(core::hint::black_box(&mut to[..]), &neighbours.small);
    reply.write(&to)
}

#[inline(never)]
fn swap(table: &mut [u8; 16], out: &mut [i64; 4], x: i64, y: i64, c: i64, d: i64) -> u8 {
    if x < 0 {
        return 200;
    }
    out[0] = 5;
    if y < 1 {
        return 200;
    }
    out[1] = 6;
    if c > 100 || d > 16 {
        return 200;
    }
    let a = x.wrapping_add(-i64::MAX);
    let b = y.wrapping_add(-1);
    out[0] = a;
    out[1] = b;
    if a.wrapping_add(b) <= c {
        out[2] = 1;
        if x < d {
            return core::mem::replace(&mut table[x as usize], 3);
        }
        out[3] = 2;
    }
    201
}

/// llvm #218569: constraint elimination takes `x < d` for true, by which a bounds check was removed. Replies with 201,
/// and with what lies behind the table: 99 each.
async fn bounded(_: &Db<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let (mut tables, mut out) = core::hint::black_box(([[7; 16], [99; 16]], [0; 4]));
    let [y, c, d] = core::hint::black_box([1, 0, 0]);
    reply.u8(swap(&mut tables[0], &mut out, core::hint::black_box(20), y, c, d))?;
    reply.write(&core::hint::black_box(tables)[1])
}
