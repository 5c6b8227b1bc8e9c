//! refused: src/lib.rs:6:1: the attribute `link`; instead, leave it out; docs/extensions.md lists the attributes that work
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
#[link(name = "c", kind = "static", modifiers = "+whole-archive")]
extern "C" {}
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
