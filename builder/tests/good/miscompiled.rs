//! Safe code that rustc 1.95 or its LLVM miscompiles, unless the builder's flags keep the pass off.
#![no_std]

use sandstorm::{Args, Db, Error, Reply};

sandstorm::extension! {
    read wrong_bool, read endless, read store_in_turn, read load_in_turn, read bounded, read recursive, read stale_exit,
    read alignment, read walked
}

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

#[inline(never)]
fn store_far(small: &mut [u8; 8], index: usize, next: usize, far: usize, depth: u32) {
    small[index] = 99;
    if depth != 0 {
        store_far(small, next, far, far, depth - 1)
    }
}

#[inline(never)]
fn store_from(at: usize, far: usize, depth: u32) -> [[u8; 8]; 2] {
    let mut tables = core::hint::black_box([[1; 8], [7; 8]]);
    store_far(&mut tables[0], at % 8, at % 8, far, depth);
    core::hint::black_box(tables)
}

/// llvm #219503: the range of `index` is taken from the outermost call, though `next` becomes `far`. Panics.
async fn recursive(_: &Db<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let (at, far, depth) = core::hint::black_box((3, 12, 2));
    reply.write(&store_from(at, far, depth)[1])
}

struct Cursor {
    sum: i32,
    at: usize,
    mode: i32,
    copy: usize,
    negated: i16,
}

#[inline(never)]
fn exchange(table: &mut [u8], new: u8, sum: &mut i32, at: &mut usize, mode: &mut i32, copy: &mut usize, m: &mut i16) -> u8 {
    'outer: loop {
        *mode = 2;
        'inner: loop {
            *m = (*mode as i16).wrapping_neg();
            *at = (*at).wrapping_sub(106119);
            let ok = *at < table.len();
            *sum = sum.wrapping_mul(3).wrapping_add(ok as i32);
            *copy = *at;
            let again = 2 <= *m;
            match *copy {
                7 => continue 'outer,
                1000 => return 55,
                _ => {
                    *mode = 0;
                    if again {
                        continue 'inner;
                    }
                    return if ok { core::mem::replace(&mut table[*at], new) } else { 200 };
                }
            }
        }
    }
}

/// llvm #197240: behind a loop that was removed, an index is taken for the 1000 of another exit. Replies with 1, and
/// with what lies 1000 bytes behind: 7 each.
async fn stale_exit(_: &Db<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let mut tables = core::hint::black_box([[1; 8]; 256]);
    tables[125] = [7; 8];
    let Cursor { mut sum, mut at, mut mode, mut copy, mut negated } =
        core::hint::black_box(Cursor { sum: 1, at: 106_119 + 3, mode: 0, copy: 0, negated: 0 });
    reply.u8(exchange(&mut tables[0], 99, &mut sum, &mut at, &mut mode, &mut copy, &mut negated))?;
    reply.write(&core::hint::black_box(tables)[125])
}

/// An array of bytes as aligned as 16 bytes are.
struct Aligned([u8; 32], [u128; 0]);

/// An array of bytes as aligned as 4 bytes are.
struct Less([u8; 32], [u32; 0]);

#[inline(never)]
fn aligned(bytes: &[u8; 32]) -> Aligned {
    let mut aligned = Aligned(*bytes, []);
    for byte in &mut aligned.0 {
        *byte = byte.wrapping_add(3);
    }
    aligned
}

#[inline(never)]
fn less(bytes: &[u8; 32]) -> Less {
    let mut less = Less(*bytes, []);
    less.0[3] = 7;
    less
}

#[inline(never)]
fn take(both: &mut [u8; 32], small: &mut [u8; 20], tiny: &mut [u8; 4]) {
    core::hint::black_box((both, small, tiny));
}

#[inline(never)]
fn fifth(is_less: bool, bytes: &[u8; 32]) -> u8 {
    let (mut small, mut tiny) = ([1; 20], [1; 4]);
    let mut both: [u8; 32];
    if is_less {
        both = less(bytes).0;
    } else {
        both = aligned(bytes).0;
    }
    take(&mut both, &mut small, &mut tiny);
    both[5]
}

/// llvm #208092: a local loses the alignment with which a function writes to it, a fault. Replies with 7 and 4.
async fn alignment(_: &Db<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let bytes = core::hint::black_box([4; 32]);
    reply.u8(fifth(core::hint::black_box(false), &bytes))?;
    reply.u8(fifth(core::hint::black_box(true), &bytes))
}

#[inline]
fn low(value: i32) -> i64 {
    let low = if value < 0 { value } else { 0 };
    low as i64
}

#[inline(never)]
fn walk(table: &mut [u8; 16], steps: &[i32], counts: &mut [u32; 2]) {
    let mut before = 0;
    for &step in steps {
        if before < -5 {
            counts[1] = counts[1].wrapping_add(1);
        }
        let step = step.max(-15);
        let mut at = low(step);
        if step >= 0 {
            counts[0] = counts[0].wrapping_add(1);
            at = 0;
        }
        table[(at + 15) as usize] = 99;
        before = at;
    }
}

/// llvm #221274: correlated value propagation takes `at` for `step` where it is 0, by the range that `low` had, and
/// removes the bounds check by that range. Replies with what lies behind the table: 7 each.
async fn walked(_: &Db<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let mut tables = core::hint::black_box([[1; 16], [7; 16]]);
    let mut counts = [0; 2];
    walk(&mut tables[0], core::hint::black_box(&[-3, 4, -20, 7]), &mut counts);
    core::hint::black_box(counts);
    reply.write(&core::hint::black_box(tables)[1])
}
