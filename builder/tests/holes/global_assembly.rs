//! refused: src/lib.rs:6:1: a macro in the place of an item; instead, write items out; only sandstorm::extension! makes items
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
core::arch::global_asm!(".globl memcpy", "memcpy: ud2");
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
