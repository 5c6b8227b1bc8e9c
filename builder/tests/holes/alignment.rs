//! refused: src/lib.rs:6:1: the attribute `repr`; instead, leave it out; docs/extensions.md lists the attributes that work
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
#[repr(align(536870912))]
pub struct S(u8);
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
