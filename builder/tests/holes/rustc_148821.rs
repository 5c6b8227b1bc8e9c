//! refused: src/lib.rs:6:16: a function pointer type; instead, use a parameter `impl Fn(..)` or an enum
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
pub fn f(call: for<'a> fn(&'a u8)) -> fn(&'static u8) { call }
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
