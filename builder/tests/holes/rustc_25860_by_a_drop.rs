//! refused: src/lib.rs:18:1: a destructor of a type with bounds or several lifetimes; instead, leave them out of the type, and give bounds to its methods
#![no_std]
use core::cell::Cell;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
pub struct Holder<T>(pub T);
pub trait Pick<U> { fn pick(&self, other: U) -> &[u8]; }
impl<'b> Pick<&'b [u8]> for Holder<&'b [u8]> {
    fn pick(&self, other: &'b [u8]) -> &[u8] { other }
}
fn pick<T: Pick<U>, U>(of: &T, other: U) -> &[u8] { of.pick(other) }
const NONE: &[u8] = &[];
pub trait Put<V> { fn put(&self, value: V); }
impl<V> Put<V> for &Cell<V> {
    fn put(&self, value: V) { self.set(value); }
}
pub struct Calls<'h, T, U: Copy, C: Put<&'h [u8]>, F: Fn(&T, U) -> &[u8]>(F, U, C, &'h T);
impl<'h, T, U: Copy, C: Put<&'h [u8]>, F: Fn(&T, U) -> &[u8]> Drop for Calls<'h, T, U, C, F> {
    fn drop(&mut self) { self.2.put((self.0)(self.3, self.1)); }
}
pub fn lengthen(value: &[u8]) -> &'static [u8] {
    let kept = Cell::new(NONE);
    { let _calls = Calls(pick, value, &kept, &Holder(NONE)); }
    kept.get()
}
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
