//! refused: src/lib.rs:6:54: `as_ptr` gives an address; instead, use references and slices
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
pub fn f(v: &u8) -> usize { core::slice::from_ref(v).as_ptr() as usize }
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
