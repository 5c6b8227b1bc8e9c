//! refused: src/lib.rs:7:1: a static keeps state outside the store; instead, use a `const`, or put a record
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
pub enum Never {}
static X: &Never = weird(&X);
const fn weird(_: &&Never) -> &'static Never { loop {} }
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
