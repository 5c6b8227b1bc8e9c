//! refused: src/lib.rs:6:13: extension! in a module; instead, write it at the root of src/lib.rs
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
mod inner { sandstorm::extension! { read run } }
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
