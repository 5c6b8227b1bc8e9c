//! refused: src/lib.rs:6:61: an address is printed here; instead, print the value
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
pub fn f(x: &u8) -> alloc::string::String { alloc::format!("{x:p}") }
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
