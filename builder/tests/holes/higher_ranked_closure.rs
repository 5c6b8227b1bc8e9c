//! refused: src/lib.rs:6:22: `for<..>`; instead, leave the lifetimes of `Fn(&T)` to the compiler
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
pub fn f() { let _ = for<'a> |x: &'a u8| -> &'a u8 { x }; }
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
