//! refused: src/lib.rs:6:47: there is a raw pointer here; instead, use references and slices
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
pub fn f(waker: &core::task::Waker) -> bool { waker.data().is_null() }
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
