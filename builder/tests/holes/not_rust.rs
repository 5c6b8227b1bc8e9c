//! refused: src/lib.rs:6:6: this is no Rust that the check understands: expected `!`; instead, mend the syntax; `cargo check` says more
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
this is no Rust at all
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
