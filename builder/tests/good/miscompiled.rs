//! Safe code that rustc 1.95 or its LLVM miscompiles, unless the builder's flags keep the pass off.
#![no_std]

use sandstorm::{Args, Db, Error, Reply};

sandstorm::extension! { read wrong_bool, read endless }

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
