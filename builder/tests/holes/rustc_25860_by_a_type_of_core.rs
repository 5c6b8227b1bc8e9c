//! refused: src/lib.rs:7:39: a named lifetime beside a type with another one; instead, leave one of the names out, or use one name for both
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
use core::slice::Iter;
pub fn lengthen<'a, 'b>(_: Option<Iter<'a, &'b ()>>, value: &'b [u8]) -> &'a [u8] { value }
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
