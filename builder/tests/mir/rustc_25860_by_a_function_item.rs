//! refused: src/lib.rs:15:9: a function whose types bear several lifetimes is a value here; instead, call it by its name, or in a closure: `|x| f(x)`
#![no_std]
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
pub struct Holder<T>(pub T);
pub trait Pick<U> { fn pick(&self, other: U) -> &[u8]; }
impl<'b> Pick<&'b [u8]> for Holder<&'b [u8]> {
    fn pick(&self, other: &'b [u8]) -> &[u8] { other }
}
fn pick<T: Pick<U>, U>(of: &T, other: U) -> &[u8] { of.pick(other) }
const NONE: &[u8] = &[];
#[inline(never)]
fn dangling() -> &'static [u8] {
    let local = core::hint::black_box([7u8; 64]);
    let lengthen = pick;
    lengthen(&Holder(NONE), &local[..])
}
/// Replies with what lies on the stack.
async fn run(_: &Db<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> { reply.write(dangling()) }
