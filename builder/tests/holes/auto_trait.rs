//! refused: src/lib.rs:6:10: an unsafe or auto trait; instead, write a plain trait
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
pub auto trait T {}
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
