//! refused: src/lib.rs:6:12: a trait with lifetime parameters; instead, give the lifetimes to the methods
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
pub trait T<'a> { fn f(&self) -> &'a u8; }
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
