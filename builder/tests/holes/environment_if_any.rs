//! refused: src/lib.rs:6:29: the macro `option_env!`; instead, pass it as an argument of the invocation
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
pub const S: Option<&str> = option_env!("HOME");
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
