//! refused: src/lib.rs:6:5: a static keeps state outside the store; instead, use a `const`, or put a record
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
pub static X: core::cell::Cell<u64> = core::cell::Cell::new(0);
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
