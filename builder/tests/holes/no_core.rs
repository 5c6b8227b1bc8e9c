//! refused: src/lib.rs:2:1: the attribute `no_core`; instead, leave it out; docs/extensions.md lists the attributes that work
#![no_core]
#![no_std]
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
