//! refused: src/lib.rs:4:41: the name is too long or there twice; instead, use at most 64 letters, once
#![no_std]
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run, write run }
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
