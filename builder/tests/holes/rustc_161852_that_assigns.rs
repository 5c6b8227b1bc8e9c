//! refused: src/lib.rs:7:7: an index that does more than read values and calculate; instead, compute it with `let` first
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
pub fn f(x: &mut [&mut [u8]], mut i: usize) {
    x[{ i += 1; i }][0] = 1;
}
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
