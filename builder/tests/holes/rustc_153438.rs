//! refused: src/lib.rs:6:67: the macro `core::pin::pin!`; instead, use `Box::pin`, of alloc::boxed
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
pub fn f<F: Future>(f: &mut F) { let _p: core::pin::Pin<&mut F> = core::pin::pin!(f); }
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
