//! refused: src/lib.rs:6:24: a trait method that answers `impl Trait` or is async; instead, name the type, or write a function beside the trait
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
pub trait T { async fn f(&self); }
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
