//! refused: src/lib.rs:6:8: a name with letters beyond ASCII; instead, use a to z, 0 to 9 and _
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
pub fn K() {}
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
