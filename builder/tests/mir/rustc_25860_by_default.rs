//! refused: src/lib.rs:9:46: a function or a closure becomes a function pointer here; instead, use a parameter `impl Fn(..)`, or an enum and a `match`
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
pub fn calls<F: Fn(u8) -> u8>(f: F) -> u8 { f(1) }
pub fn one(x: u8) -> u8 { x }
pub fn two(x: u8) -> u8 { x + 1 }
pub fn f(first: bool) -> u8 { calls(if first { one } else { two }) }
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
