//! refused: src/lib.rs:6:5: unsafe code is not for extensions; instead, use the safe operations of core, alloc and sandstorm
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
pub unsafe trait T {}
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
