//! refused: src/lib.rs:12:14: a function or a closure becomes a function pointer here; instead, use a parameter `impl Fn(..)`, or an enum and a `match`
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
pub struct Holder<'b>(pub &'b [u8]);
impl<'b> Holder<'b> {
    pub fn pick(&self, other: &'b [u8], _: &()) -> &[u8] { other }
}
pub fn one<H, V>(_: H, _: V, _: &()) -> &'static [u8] { b"" }
pub fn hole(value: &[u8]) -> &'static [u8] {
    let g = [one, Holder::pick];
    g[1](&Holder(b""), value, &())
}
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
