//! refused: src/lib.rs:6:14: a bound between lifetimes; instead, use one lifetime for both
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
pub fn f<'a, 'b: 'a>(x: &'b u8) -> &'a u8 { x }
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
