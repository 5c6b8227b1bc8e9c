//! refused: src/lib.rs:6:21: a trait with lifetime parameters; instead, give the lifetimes to the methods
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
pub trait Supertrait<'a, 'b> { fn convert(_: &'a (), x: &'b u8) -> &'a u8; }
pub trait Subtrait<'a, 'b, R>: Supertrait<'a, 'b> {}
pub fn f<T>() where T: for<'x, 'y> Subtrait<'x, 'y, &'y &'x ()> {}
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
