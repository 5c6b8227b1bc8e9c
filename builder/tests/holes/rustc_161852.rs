//! refused: src/lib.rs:7:18: an index that does more than read values and calculate; instead, compute it with `let` first
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
pub fn f(mut x: &[&[&[u32]]], y: &[&[&[u32]]]) {
    let _ = x[0][{ x = y; 0 }][{ return; 0 }];
}
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
