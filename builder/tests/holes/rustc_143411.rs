//! refused: src/lib.rs:8:1: the attribute `repr`; instead, leave it out; docs/extensions.md lists the attributes that work
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
pub struct Noisy<'a>(pub &'a [u64]);
impl Drop for Noisy<'_> { fn drop(&mut self) {} }
#[repr(packed)]
pub struct Packed<T>(pub u8, pub T);
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
