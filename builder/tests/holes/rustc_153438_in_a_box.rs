//! refused: src/lib.rs:7:75: the macro `pin!`; instead, use `Box::pin`, of alloc::boxed
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
use core::pin::{Pin, pin};
pub fn f<F: Future>(f: &mut alloc::boxed::Box<F>) { let _p: Pin<&mut F> = pin!(f); }
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
