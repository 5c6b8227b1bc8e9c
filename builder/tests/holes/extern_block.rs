//! refused: src/lib.rs:6:1: an extern block; instead, call what core, alloc and sandstorm offer
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
extern "C" { fn getpid() -> i32; }
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
