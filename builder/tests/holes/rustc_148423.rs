//! refused: src/lib.rs:7:1: the attribute `discard`; instead, leave it out; docs/extensions.md lists the attributes that work
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
#[derive(PartialEq)]
#[discard]
pub enum Thing { One(u32), Two(u32) }
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
