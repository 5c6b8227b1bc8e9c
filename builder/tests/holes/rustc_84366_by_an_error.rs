//! refused: src/lib.rs:6:11: `core::error` is not for extensions; instead, keep to the parts that docs/extensions.md lists
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
use core::error::Error as _;
pub fn f(error: &core::fmt::Error) -> bool { error.source().is_none() }
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
