//! refused: src/lib.rs:6:1: a doc attribute that is no text could read files of the server; instead, write a doc comment
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
#[doc = include_str!("/etc/passwd")]
pub fn f() {}
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
