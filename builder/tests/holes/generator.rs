//! refused: src/lib.rs:6:27: this kind of expression; instead, write stable, plain Rust
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
pub fn f() { let _ = || { yield 1; }; }
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
