//! refused: src/lib.rs:7:1: a static keeps state outside the store; instead, use a `const`, or put a record
#![no_std]
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }

/// The place is the word, not its comment.
static X: u64 = 0;

async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
