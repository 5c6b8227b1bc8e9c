//! refused: src/lib.rs:6:1: `extern crate test`; instead, name packages in Cargo.toml; only `extern crate alloc;` is written
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
extern crate test;
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
