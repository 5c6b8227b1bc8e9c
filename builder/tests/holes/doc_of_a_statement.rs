//! refused: src/lib.rs:6:19: a doc attribute that is no text could read files of the server; instead, write a doc comment
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
pub fn hole() { { #[doc = include_str!("/proc/self/environ")] <u8>::from(1u8); } }
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
