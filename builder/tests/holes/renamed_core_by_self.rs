//! refused: src/lib.rs:6:20: `as c` hides what is imported; instead, import it under its own name; items of your own may be renamed
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
use core::{self as c};
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
