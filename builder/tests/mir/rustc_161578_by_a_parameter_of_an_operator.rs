//! refused: src/lib.rs:24:38: a guard or an index changes or moves something here; instead, compute it with `let` before
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
pub struct Change<A>(pub usize, pub usize, pub core::marker::PhantomData<A>);
impl<A: core::ops::DerefMut<Target = Cell2>> core::ops::BitOr<A> for &Change<A> {
    type Output = bool;
    fn bitor(self, mut cell: A) -> bool { *cell = Cell2::Numbers(self.0, self.1); false }
}
#[inline(never)]
pub fn forge<'c>(change: &Change<&'c mut Cell2>, cell: &'c mut Cell2) -> &'static [u8] {
    match *cell {
        Cell2::Bytes(_) if (change | cell) && (Stop + 1).is_empty() => b"",
        Cell2::Bytes(bytes) => bytes,
        Cell2::Numbers(..) => b"",
    }
}
/// Replies with `length` bytes at `address`: both u64 in the arguments.
async fn peek(_: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let mut reader = args.reader();
    let (address, length) = (reader.u64()? as usize, reader.u64()? as usize);
    let mut cell = Cell2::Bytes(b"x");
    reply.write(forge(&Change(address, length, core::marker::PhantomData), &mut cell))
}
