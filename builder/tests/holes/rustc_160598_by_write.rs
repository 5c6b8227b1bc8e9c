//! refused: src/lib.rs:13:68: a `break` or `continue` within the arguments of a call; instead, compute it with `let` first
#![no_std]
extern crate alloc;
use alloc::{boxed::Box, vec::Vec};
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }

pub struct S(u32);
impl S { fn write_fmt(&mut self, _: core::fmt::Arguments<'_>) -> &mut S { self } }
pub fn f(n: Option<u32>) -> u32 {
    let mut v = S(1); let mut r: Option<&mut S> = None;
    'b: { r = Some(write!(v, "{}", match n { Some(n) => n, None => break 'b })); }
    let s = &v; if let Some(r) = r { r.0 = 2; } s.0
}
