//! refused: src/lib.rs:6:26: a cell without rules; instead, use `Cell` or `RefCell`
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
pub struct S(core::cell::UnsafeCell<u8>);
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
