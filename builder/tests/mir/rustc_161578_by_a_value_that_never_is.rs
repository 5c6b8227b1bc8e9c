//! refused: src/lib.rs:16:9: a value of the type `!` is read here; instead, leave `!` to functions that panic
#![no_std]
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read peek }

pub enum Cell2 { Numbers(usize, usize), Bytes(&'static [u8]) }
pub struct Change<A>(pub usize, pub usize, pub core::marker::PhantomData<A>);
impl<A: core::ops::DerefMut<Target = Cell2>> core::ops::BitOr<A> for &Change<A> {
    type Output = bool;
    fn bitor(self, mut cell: A) -> bool { *cell = Cell2::Numbers(self.0, self.1); false }
}
/// An empty slice of what the closure answers.
fn none<T>(_: impl Fn() -> T) -> [T; 0] { [] }
#[inline(never)]
pub fn forge<'c>(change: &Change<&'c mut Cell2>, cell: &'c mut Cell2, at: usize) -> &'static [u8] {
    let never = none(|| -> ! { panic!() });
    let never = &never[..];
    match *cell {
        Cell2::Bytes(_) if (change | cell) && never[at] => b"",
        Cell2::Bytes(bytes) => bytes,
        Cell2::Numbers(..) => b"",
    }
}
/// Replies with `length` bytes at `address`: both u64 in the arguments.
async fn peek(_: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let mut reader = args.reader();
    let (address, length) = (reader.u64()? as usize, reader.u64()? as usize);
    let mut cell = Cell2::Bytes(b"x");
    reply.write(forge(&Change(address, length, core::marker::PhantomData), &mut cell, length))
}
