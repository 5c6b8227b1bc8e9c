//! refused: src/lib.rs:4:30: there is no `async fn run` in this file; instead, write `async fn NAME(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error>`
#![no_std]
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
