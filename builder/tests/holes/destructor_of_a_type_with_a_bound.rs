//! refused: src/lib.rs:17:1: a destructor of a type with bounds or several lifetimes; instead, leave them out of the type, and give bounds to its methods
#![no_std]
use core::cell::Cell;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
pub struct Holder<T>(pub T);
pub trait Pick<U> { fn pick(&self, other: U) -> &[u8]; }
impl<'b> Pick<&'b [u8]> for Holder<&'b [u8]> {
    fn pick(&self, other: &'b [u8]) -> &[u8] { other }
}
const NONE: &[u8] = &[];
pub trait Put<V> { fn put(&self, value: V); }
impl<V> Put<V> for &Cell<V> {
    fn put(&self, value: V) { self.set(value); }
}
pub struct Picks<'h, T: Pick<U>, U: Copy, C: Put<&'h [u8]>>(&'h T, U, C);
impl<'h, T: Pick<U>, U: Copy, C: Put<&'h [u8]>> Drop for Picks<'h, T, U, C> {
    fn drop(&mut self) { self.2.put(self.0.pick(self.1)); }
}
fn lengthen(value: &[u8]) -> &'static [u8] {
    let kept = Cell::new(NONE);
    {
        let mut picks = Picks(&Holder(NONE), NONE, &kept);
        picks.1 = value;
    }
    kept.get()
}
#[inline(never)]
fn dangling() -> &'static [u8] {
    let local = core::hint::black_box([7u8; 64]);
    lengthen(&local[..])
}
/// Replies with what lies on the stack.
async fn run(_: &Db<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> { reply.write(dangling()) }
