//! refused: src/lib.rs:9:12: an index that does more than read values and calculate; instead, compute it with `let` first
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
pub struct S<'a>(pub &'a [&'a [u32]]);
pub fn g(s: &mut S<'_>) -> usize { s.0 = &[]; 0 }
pub fn f(s: &mut S<'_>) -> u32 {
    s.0[0][g(s)]
}
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
