//! refused: src/lib.rs:6:5: a union needs unsafe code; instead, write an enum
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
pub union U { a: u8, b: i8 }
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
