//! refused: src/lib.rs:6:29: a trait object (`dyn`); instead, use a generic parameter or an enum
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
pub fn f(x: core::pin::Pin<&dyn core::fmt::Debug>) {}
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
