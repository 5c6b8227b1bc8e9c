//! refused: src/lib.rs:19:9: a function whose types bear several lifetimes is a value here; instead, call it by its name, or in a closure: `|x| f(x)`
#![no_std]
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
pub struct Holder<T>(pub T);
pub trait Pick<U> { fn pick(&self, other: U) -> &[u8]; }
pub trait Gives<V> { fn give(self) -> V; }
pub struct Given<T>(pub T);
impl<T> Gives<T> for Given<T> {
    fn give(self) -> T { self.0 }
}
impl<'b, O: Gives<&'b [u8]>> Pick<O> for Holder<&'b [u8]> {
    fn pick(&self, other: O) -> &[u8] { other.give() }
}
fn pick<T: Pick<U>, U>(of: &T, other: U) -> &[u8] { of.pick(other) }
const NONE: &[u8] = &[];
/// One of the two lifetimes is within a parameter.
fn long<'b, P: Gives<&'b [u8]>>(given: P) -> &'static [u8] {
    let lengthen = pick;
    lengthen(&Holder(NONE), given)
}
pub fn lengthen(value: &[u8]) -> &'static [u8] { long(Given(value)) }
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
