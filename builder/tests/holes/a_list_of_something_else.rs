//! refused: src/lib.rs:4:30: this is no list of functions; instead, write `sandstorm::extension! { read NAME, write NAME }`
#![no_std]
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read 5 }
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
