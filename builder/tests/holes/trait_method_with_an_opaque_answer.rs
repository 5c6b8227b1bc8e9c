//! refused: src/lib.rs:6:18: a trait method that answers `impl Trait` or is async; instead, name the type, or write a function beside the trait
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
pub trait T { fn f(&self) -> impl Sized; }
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
