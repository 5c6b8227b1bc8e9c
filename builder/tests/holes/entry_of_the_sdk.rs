//! refused: src/lib.rs:6:33: `sandstorm::entry` is not for extensions; instead, keep to the parts that docs/extensions.md lists
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
pub fn f() { let _ = sandstorm::entry::run; }
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
