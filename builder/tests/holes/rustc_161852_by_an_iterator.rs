//! refused: src/lib.rs:18:22: an index that does more than read values and calculate; instead, compute it with `let` first
#![no_std]
extern crate alloc;
use alloc::vec::Vec;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read peek }

pub struct Rows<'a>(&'a [&'a [[u64; 2]]], &'a [&'a [[u64; 2]]]);
impl Iterator for Rows<'_> {
    type Item = usize;
    fn next(&mut self) -> Option<usize> { self.0 = self.1; None }
}
fn none<T>(_: impl Fn() -> T) -> [T; 0] { [] }
#[inline(never)]
pub fn read(rows: &mut Rows<'_>, at: usize, big: usize) -> u64 {
    let never = none(|| -> ! { panic!() });
    let never = &never[..];
    rows.0[big][rows.max().is_some() as usize + 1_000][never[at] as usize]
}
async fn peek(_: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let mut reader = args.reader();
    let (_, length) = (reader.u64()? as usize, reader.u64()? as usize);
    let rows: Vec<&[[u64; 2]]> = (0..1000).map(|_| &[][..]).collect();
    let mut s = Rows(&rows, &[]);
    reply.u64(read(&mut s, length, 500))
}
