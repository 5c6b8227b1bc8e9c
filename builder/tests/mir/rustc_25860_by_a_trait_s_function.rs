//! refused: src/lib.rs:12:9: a function whose types bear several lifetimes is a value here; instead, call it by its name, or in a closure: `|x| f(x)`
#![no_std]
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
pub struct Holder<T>(pub T);
pub trait Pick<U> { fn pick(&self, other: U) -> &[u8]; }
impl<'b> Pick<&'b [u8]> for Holder<&'b [u8]> {
    fn pick(&self, other: &'b [u8]) -> &[u8] { other }
}
const NONE: &[u8] = &[];
pub fn lengthen(value: &[u8]) -> &'static [u8] {
    let both = (Pick::pick, value);
    (both.0)(&Holder(NONE), both.1)
}
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
