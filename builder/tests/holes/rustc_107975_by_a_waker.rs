//! refused: src/lib.rs:6:18: `RawWaker` gives an address; instead, use references and slices
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
use core::task::{RawWaker, RawWakerVTable};
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
