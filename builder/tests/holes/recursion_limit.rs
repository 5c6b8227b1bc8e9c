//! refused: src/lib.rs:3:1: the attribute `recursion_limit`; instead, leave it out; docs/extensions.md lists the attributes that work
#![no_std]
#![recursion_limit = "1000000"]
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
