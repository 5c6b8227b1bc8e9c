//! refused: src/lib.rs:17:23: a trait for a mutable reference; instead, implement it for the type itself
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read peek }

pub enum Cell2 { Numbers(usize, usize), Bytes(&'static [u8]) }
pub enum Never {}
impl Never { pub fn is_empty(&self) -> bool { match *self {} } }
pub struct Stop;
impl core::ops::Add<u8> for Stop {
    type Output = Never;
    fn add(self, _: u8) -> Never { panic!("not reached") }
}
#[derive(Clone, Copy)]
pub struct Change(pub usize, pub usize);
impl core::ops::BitOr<&mut Cell2> for Change {
    type Output = bool;
    fn bitor(self, cell: &mut Cell2) -> bool { *cell = Cell2::Numbers(self.0, self.1); false }
}
#[inline(never)]
pub fn forge(change: Change, cell: &mut Cell2) -> &'static [u8] {
    match *cell {
        Cell2::Bytes(_) if (change | cell) && (Stop + 1).is_empty() => b"",
        Cell2::Bytes(bytes) => bytes,
        Cell2::Numbers(..) => b"",
    }
}
async fn peek(_: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let mut reader = args.reader();
    let (address, length) = (reader.u64()? as usize, reader.u64()? as usize);
    let mut cell = Cell2::Bytes(b"x");
    reply.write(forge(Change(address, length), &mut cell))
}
