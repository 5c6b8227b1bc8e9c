//! refused: src/lib.rs:6:1: conditional compilation hides code from the check; instead, keep `#[cfg(test)]` to a `mod` at the top of a file
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
#[cfg(not(test))]
mod hidden { pub fn f() { unsafe { core::hint::unreachable_unchecked() } } }
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
