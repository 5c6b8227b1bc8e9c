//! refused: src/lib.rs:6:23: this kind of literal; instead, write a string or a byte string
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
pub fn f() -> usize { c"text".count_bytes() }
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
