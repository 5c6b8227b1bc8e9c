//! refused: src/lib.rs:6:16: a `'static` reference to more than text or numbers; instead, use a constant by value
#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { read run }
pub fn g<T>(x: &'static T) {}
pub fn f<T>(x: S<T>) -> S<T> { x }
async fn run(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> { Ok(()) }
