//! refused: src/lib.rs:6:21: the macro `concat!`; instead, call a function; docs/extensions.md lists the macros that work
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
pub const S: &str = concat!(file!(), module_path!());
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
