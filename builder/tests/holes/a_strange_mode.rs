//! refused: src/lib.rs:4:25: a function is `read` or `write`; instead, write `sandstorm::extension! { read NAME, write NAME }`
#![no_std]
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { execute run }
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
