//! refused: src/lib.rs:6:15: `core::include_str` is not for extensions; instead, keep to the parts that docs/extensions.md lists
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
pub use core::include_str;
use crate::include_str as format;
pub const S: &str = format!("/etc/passwd");
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
