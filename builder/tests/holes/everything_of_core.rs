//! refused: src/lib.rs:6:11: an import of everything in a crate; instead, name what you need
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
use core::*;
pub fn f() { arch::asm!("ud2") }
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
