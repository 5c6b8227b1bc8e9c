//! refused: src/lib.rs:6:1: the attribute `unsafe`; instead, leave it out; docs/extensions.md lists the attributes that work
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
#[unsafe(naked)]
pub extern "C" fn f() -> i64 { core::arch::naked_asm!("mov eax, 39", "syscall", "ret") }
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
