//! refused: src/lib.rs:19:8: a method called `contains` that could change what it is given; instead, take `&self`, and besides shared references and numbers, or choose another name
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read peek }

pub enum Cell2 { Numbers(usize, usize), Bytes(&'static [u8]) }
/// No value of this is ever made, so the compiler takes what answers one for diverging.
pub enum Never {}
impl Never { pub fn is_empty(&self) -> bool { match *self {} } }
pub struct Stop;
impl core::ops::Add<u8> for Stop {
    type Output = Never;
    fn add(self, _: u8) -> Never { panic!("not reached") }
}
pub struct Change(pub usize, pub usize);
pub trait Mark<A: core::ops::DerefMut<Target = Cell2>> {
    fn numbers(&self) -> Cell2;
    fn contains(&self, mut cell: A) -> bool { *cell = self.numbers(); false }
}
impl Mark<&mut Cell2> for Change { fn numbers(&self) -> Cell2 { Cell2::Numbers(self.0, self.1) } }
#[inline(never)]
pub fn forge(change: &Change, cell: &mut Cell2) -> &'static [u8] {
    match *cell {
        Cell2::Bytes(_) if change.contains(cell) && (Stop + 1).is_empty() => b"",
        Cell2::Bytes(bytes) => bytes,
        Cell2::Numbers(..) => b"",
    }
}
/// Replies with `length` bytes at `address`: both u64 in the arguments.
async fn peek(_: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let mut reader = args.reader();
    let (address, length) = (reader.u64()? as usize, reader.u64()? as usize);
    let mut cell = Cell2::Bytes(b"x");
    reply.write(forge(&Change(address, length), &mut cell))
}
