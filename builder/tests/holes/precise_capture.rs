//! refused: src/lib.rs:6:34: `use<..>` as a bound; instead, leave it out; the compiler finds what a type borrows
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
pub fn f(x: &u8) -> impl Sized + use<> { 0 }
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
