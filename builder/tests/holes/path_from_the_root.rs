//! refused: src/lib.rs:6:14: a path that begins with `::`; instead, leave the colons out
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
pub fn f() { ::core::hint::spin_loop() }
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
