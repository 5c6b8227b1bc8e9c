//! refused: src/lib.rs:7:49: a comparison of addresses; instead, compare numbers that you give the values
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
use alloc::rc::Rc;
pub fn f(a: &Rc<u8>, b: &Rc<u8>) -> usize { Rc::ptr_eq(a, b) as usize }
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
