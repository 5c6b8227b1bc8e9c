//! refused: src/lib.rs:6:21: a const block; instead, write `core::array::from_fn(|_| ..)`, or name a `const`
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
pub fn f() -> u64 { const { 1 + 1 } }
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
