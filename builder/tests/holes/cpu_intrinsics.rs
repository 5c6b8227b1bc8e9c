//! refused: src/lib.rs:6:11: `core::arch` is not for extensions; instead, keep to the parts that docs/extensions.md lists
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
use core::arch::x86_64::_rdtsc;
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
