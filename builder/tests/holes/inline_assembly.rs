//! refused: src/lib.rs:6:14: the macro `core::arch::asm!`; instead, write Rust
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
pub fn f() { core::arch::asm!("ud2") }
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
